"""Keep the Helm releases of the fleet's cluster as declared, one after the other, beside the work on nodes.

Nothing is drained for it, and it needs no node: it begins as soon as the API server answers and a node takes pods. A
helm that dies with its run leaves its release `pending-*`, and refuses to touch it again (helm/helm pkg/action,
"another operation is in progress"); the journal tells that it was ours, so the next run ends that first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from reconciler.converge.events import LoopTold
from reconciler.converge.observe import answer, read_releases
from reconciler.converge.run import Ended, Run
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, ClusterState, Member, Silent
from reconciler.model.plan import Plan
from reconciler.model.ports import ReleaseStore
from reconciler.model.records import MARK_TAINT
from reconciler.model.releases import JOURNAL, DesiredRelease, ReleaseAction, ReleaseFacts, ReleasePlan, ReleaseStatus
from reconciler.planner.fleet.release_plans import plan_releases

PAUSE_S: Final = 20.0  # between two looks at releases that wait
TRIES: Final = 3  # in one run, of what may pass
_FINAL: Final = (Failure.REJECTED, Failure.AUTH, Failure.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class _Begun:
    """An attempt that has not ended. `fingerprint`: of the install or upgrade that it began with; "" = there is none.

    An attempt of an earlier version has none either.
    """

    attempt: int
    revision: int  # before it
    inputs: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """How the work on a release ended, or why it has not begun."""

    name: str
    state: Ended
    detail: str = ""


class ReleaseWork:
    """The work on the releases of one run. `approved`: the plan that binds what may be done; None = all."""

    def __init__(self, run: Run, approved: Plan | None = None) -> None:
        self._run = run
        self._approved = None if approved is None else {plan.name: plan for plan in approved.releases}
        self._tries: dict[str, int] = {}
        self._begun: dict[str, _Begun] = {}
        self.results: dict[str, ReleaseResult] = {}
        for attempt, node, _, name, intent in run.ledger.unfinished():
            if node == self._journal:
                if name in self._begun:
                    run.ledger.finish(
                        self._begun[name].attempt, "ambiguous", "a later run began it again", run.clock.now()
                    )
                inputs, bound = (str(intent.get(key, "")) for key in ("inputs", "fingerprint"))
                self._begun[name] = _Begun(attempt, int(intent.get("revision", 0)), inputs, bound)

    @property
    def _journal(self) -> str:
        cluster = self._run.fleet.settings.cluster
        return JOURNAL + ("" if cluster is None else cluster.name)

    @property
    def settled(self) -> set[str]:
        """The releases that can go no further under the approved plan."""
        states = (Ended.CONVERGED, Ended.DONE, Ended.STALE)
        return {one.name for one in self.results.values() if one.state in states}

    async def beside(self, nodes: asyncio.Future[None]) -> None:
        """Work until every release is as declared, or failed; once more when the work on nodes has ended."""
        while self._run.fleet.settings.releases:
            last = nodes.done()
            if not await self.once() or last:
                return
            pause = asyncio.ensure_future(self._run.clock.sleep(PAUSE_S))
            try:
                await asyncio.wait([nodes, pause], return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                with suppress(asyncio.CancelledError):
                    await pause

    async def once(self) -> bool:
        """Look at each release and do what is due; return whether one of them still waits for something."""
        while await self._advance():
            pass
        return any(result.state is Ended.NOT_STARTED for result in self.results.values())

    async def _advance(self) -> bool:
        """Look at all, and do the first thing that is due; return whether that was done."""
        run, settings = self._run, self._run.fleet.settings
        store = run.ports.fabric.releases()
        if store is None or not settings.releases:
            return False
        found = await read_releases(store, settings, run.clock)
        began = {name: one.revision for name, one in self._begun.items()}
        plans = plan_releases(settings.releases, found, run.clock.now(), began)
        wanted = {one.name: one for one in settings.releases}
        for plan in plans:
            reading = found[plan.name]
            why = await self._why_not(plan, reading)
            if not why and plan.changes_something and isinstance(reading, Answered):
                return await self._act(store, wanted[plan.name], plan, reading.value)
            self._settle(plan, why)
        return False

    async def _why_not(self, plan: ReleasePlan, reading: Answered[ReleaseFacts] | Silent) -> str:
        """Return why nothing is done to a release now; "" if something may be, or nothing has to be."""
        if plan.waits or not plan.changes_something:
            return plan.waits
        if self._tries.get(plan.name, 0) >= TRIES or self._is_over(plan.name):
            return self.results[plan.name].detail
        if (stop := self._run.stop() or self._run.brake()) is not None:
            return stop.detail
        if isinstance(reading, Silent) or not self._is_approved(plan, reading.value):
            return "it is not as in the approved plan: make a new one"
        return await self._nobody_runs_pods(plan.name)

    def _is_approved(self, plan: ReleasePlan, facts: ReleaseFacts) -> bool:
        """Return whether the approved plan binds this: it shows the same, or began what is gone on with.

        What ends an attempt that died is approved with it. An install after somebody else's shows what nobody has seen.
        """
        if self._approved is None:
            return True
        known, begun = self._approved.get(plan.name), self._begun.get(plan.name)
        if known is None or known.fingerprint == plan.fingerprint:
            return known is not None
        wanted = next(one.inputs for one in self._run.fleet.settings.releases if one.name == plan.name)
        if begun is None or begun.fingerprint != known.fingerprint or begun.inputs != wanted:
            return False
        return _is_left_by(begun, facts) and (facts.status.is_pending or _goes_over_the_same(plan, known))

    def _is_over(self, name: str) -> bool:
        return name in self.results and self.results[name].state is Ended.FAILED

    async def _nobody_runs_pods(self, name: str) -> str:
        """Return why pods of a release would not run: helm waits for them, and takes back what is not ready in time."""
        cluster, settings = self._run.ports.fabric.cluster(), self._run.fleet.settings
        if cluster is None:
            return "the spec names no cluster"
        state: Answered[ClusterState] | Silent = await answer(
            cluster.state, settings.kubernetes_deadline_s, self._run.clock
        )
        if isinstance(state, Silent):
            return f"the cluster could not be read: {state.detail}"
        tolerant = any(one.out_of_service for one in settings.releases if one.name == name)
        fit = (
            member
            for member in state.value.members.values()
            if member.ready and (tolerant if _is_marked(member) else not member.unschedulable)
        )
        if next(fit, None) is not None:
            return ""
        marked = "" if tolerant else ", and they don't tolerate our mark"
        return f"no node is in service that could run its pods{marked}"

    def _settle(self, plan: ReleasePlan, why: str) -> None:
        if self._is_over(plan.name):
            return
        if not why:
            done = self.results.get(plan.name)
            state = Ended.DONE if done is not None and done.state is Ended.DONE else Ended.CONVERGED
            self.results[plan.name] = ReleaseResult(plan.name, state, "; ".join(plan.not_ready))
            self._close(plan.name, "done", "it is as declared")
        else:
            stale = why.startswith("it is not as in the approved plan")
            state = Ended.STALE if stale else Ended.NOT_STARTED
            before = self.results.get(plan.name)
            self.results[plan.name] = ReleaseResult(plan.name, state, why)
            if before is None or before.detail != why:
                self._tell(f"release {plan.name} waits: {why}", problem=stale)

    # --- one change ---

    async def _act(self, store: ReleaseStore, wanted: DesiredRelease, plan: ReleasePlan, facts: ReleaseFacts) -> bool:
        """Do what is due to one release; return whether that was done."""
        run = self._run
        self._tries[plan.name] = self._tries.get(plan.name, 0) + 1
        token, now = run.ports.lease.token(), run.clock.now()
        if plan.name not in self._begun:
            bound = "" if plan.action is ReleaseAction.RECOVER else plan.fingerprint
            intent = {
                "revision": facts.revision, "chart": plan.chart, "inputs": wanted.inputs,
                "fingerprint": bound,
            }  # fmt: skip
            attempt = run.ledger.begin(
                run.context.run_id, self._journal, plan.action.value, plan.name, plan.why, intent, token, now
            )
            self._begun[plan.name] = _Begun(attempt, facts.revision, wanted.inputs, bound)
        self._tell(f"release {plan.name}: {plan.action.value} of {plan.chart}, since {plan.why}")
        try:
            if plan.action is ReleaseAction.RECOVER:
                await store.recover(wanted, facts)
                if not self._begun[plan.name].fingerprint:
                    self._close(plan.name, "done", "what had not ended is ended")
                return True
            await store.install(wanted)
            problem = await self._unproved(store, wanted)
        except DriverError as error:
            return self._failed(plan, str(error), final=error.kind in _FINAL)
        if problem:
            return self._failed(plan, problem, final=False)
        self.results[plan.name] = ReleaseResult(plan.name, Ended.DONE, f"{plan.chart} is deployed")
        self._close(plan.name, "done", f"{plan.chart} is deployed")
        self._tell(f"release {plan.name}: {plan.chart} is deployed")
        return True

    async def _unproved(self, store: ReleaseStore, wanted: DesiredRelease) -> str:
        """Look again: helm's own word proves nothing."""
        seen = await answer(lambda: store.look(wanted), wanted.timeout_s, self._run.clock, node=wanted.name)
        if isinstance(seen, Silent):
            return f"whether it is deployed could not be read: {seen.detail}"
        facts = seen.value
        if facts.status is ReleaseStatus.DEPLOYED and facts.inputs == wanted.inputs:
            return ""
        return f"helm said that it is done, and revision {facts.revision} is {facts.status} with other inputs"

    def _failed(self, plan: ReleasePlan, why: str, *, final: bool) -> bool:
        over = final or self._tries[plan.name] >= TRIES
        self._close(plan.name, "permanent" if final else "transient", why)
        self._tell(f"release {plan.name}: {plan.action.value} failed: {why}", problem=True)
        state = Ended.FAILED if over else Ended.NOT_STARTED
        self.results[plan.name] = ReleaseResult(plan.name, state, why)
        return False

    def _close(self, name: str, outcome: str, detail: str) -> None:
        """Journal how the attempt at a release ended, if there is one."""
        begun = self._begun.pop(name, None)
        if begun is not None:
            self._run.ledger.finish(begun.attempt, outcome, detail, self._run.clock.now())

    def _tell(self, message: str, *, problem: bool = False) -> None:
        self._run.ports.progress(LoopTold("release", message, problem=problem))


def _is_left_by(begun: _Begun, facts: ReleaseFacts) -> bool:
    """Return whether the newest revision can be of an attempt that died: its own, or the rollback that followed it.

    What is deployed right after the revision before it is somebody else's: ours would have our inputs.
    """
    after = facts.revision - begun.revision
    return facts.revision == 0 or after in ((0, 1, 2) if facts.status.is_pending else (0, 2))


def _goes_over_the_same(plan: ReleasePlan, known: ReleasePlan) -> bool:
    """Return whether a plan replaces what the approved one does, though a rollback has lost our description of that."""
    return (plan.runs, plan.changes) == (known.runs, known.changes)


def _is_marked(member: Member) -> bool:
    return any(one.key == MARK_TAINT for one in member.taints)
