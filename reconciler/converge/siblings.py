"""The siblings of a node: those that hang on its outlets, and lose power with it. All are cut off together, or none.

The attempt at the node's `ac_cycle` does all of it. It holds its siblings as a gate holds partners, so no work of their
own begins meanwhile, and they are charged to the budget together. Each is marked and drained as any node is. Before a
sibling is shut down, its own journal says that it is cut off: from then on only its gate can bring it back, whoever
dies. Until then a sibling is marked like a partner, and given back like one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from reconciler.converge.actions.ac_cycle import BMC_BOOT_S, NO_ANSWER
from reconciler.converge.actions.activation import answers_again
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.converge.actions.membership import tainted
from reconciler.converge.actions.power import ensure_off, ensure_on, wait_for_host
from reconciler.converge.events import ActionFinished, ActionStarted
from reconciler.converge.evidence_bundle import keep_evidence
from reconciler.converge.observe import observe_node
from reconciler.converge.partner_pool import CUT, GatePartners
from reconciler.converge.plan_questions import may_serve_as_before
from reconciler.converge.run import Run, Subject
from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Desired
from reconciler.model.observed import Member, Pod, Silent
from reconciler.model.outcome import TOGETHER, Done, Outcome, Transient, outcome_word
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, PlannedAction, WaveState, is_crashed
from reconciler.model.records import OWNER_ANNOTATION, TAKEN_ALONG, NodeRecord, read_mark
from reconciler.model.stakes import stakes
from reconciler.model.vocab import Certainty
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.foreign_holds import hold_of
from reconciler.planner.node.holds import held
from reconciler.planner.node.workload import cut_of, siblings_of
from reconciler.spec.shared_outlets import why_never

if TYPE_CHECKING:
    from reconciler.converge.attempt import Attempted
    from reconciler.converge.fleet_limits import FleetLimits
    from reconciler.converge.partner_pool import PartnerPool

_ALONG: Final = "with "  # before the node that is treated, as the target of the attempt on a sibling
_UNDER_WAY: Final = (BlockCode.UNDER_WAY, BlockCode.UNKNOWN, BlockCode.IDENTITY, BlockCode.CRASHED)


def refusal_of_siblings(run: Run, limits: FleetLimits, plan: NodePlan) -> Blocked | None:
    """Return why the siblings that a plan cuts off can't be taken now, by what is known; None when they can.

    It is asked before anything is done to the node, which its isolation protects until then.
    """
    why = _refusal(run, limits, plan)
    return Blocked(BlockCode.BUDGET, why) if why else None


def _refusal(run: Run, limits: FleetLimits, plan: NodePlan) -> str:
    cut = cut_of(plan)
    names = siblings_of(cut)
    left = None if cut is None else run.attempts.resumed.get((plan.node, cut.name, cut.target))
    if left is not None and left.intent.get("dark"):
        return ""  # all were cut off when the last run died: what is left is to switch the node on
    for name in names:
        seen, own = limits.nodes.get(name), limits.plan_of(name)
        if name not in run.fleet.nodes or seen is None or own is None:
            return _waits(name, "is not among the nodes that this run works on")
        subject = Subject(run.fleet.nodes[name], seen, run.ledger.node(name), own)
        if why := next(_objections(run, limits, subject, plan.node), ""):
            return _waits(name, why)
    why = limits.refusal_together((plan.node, *names)) if names else ""
    return f"its outlets give {', '.join(names)} power, too: {why}" if why else ""


def _waits(name: str, why: str) -> str:
    return f"its outlets give {name} power, too, and {name} {why}"


def _member(subject: Subject) -> Member | None:
    return None if isinstance(subject.observed.member, Silent) else subject.observed.member.value


def _is_ours(run: Run, member: Member) -> bool:
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    return mark is not None and mark.ledger == run.ledger.id and mark.cordoned


def _is_empty(run: Run, subject: Subject) -> bool:
    """Return whether a node is out of service by our mark and cordon, and nothing runs there that a drain evicts."""
    member = _member(subject)
    if member is None or not (_is_ours(run, member) and tainted(member) and member.unschedulable):
        return False
    return not member.work(subject.observed.host, run.clock.now())


def _objections(run: Run, limits: FleetLimits, subject: Subject, treated: str) -> Iterator[str]:
    """Yield what speaks against taking a node along now with the one that is treated.

    It serves and is well, or we took it out: then it is empty, or isolated, and would be drained for itself next.
    """
    member = _member(subject)
    yield from _of_others(run, limits, subject.desired, subject.record)
    if why := limits.partners.busy(subject.desired.node, treated):
        yield why
    if isinstance(subject.observed.hot, Silent):
        yield f"has a BMC that does not answer ({subject.observed.hot.reason})"
    plan = subject.plan
    if is_crashed(plan) or plan.incomplete or (plan.blocked is not None and plan.blocked.code in _UNDER_WAY):
        yield f"can't be judged now: {plan.blocked.detail if plan.blocked else '; '.join(plan.incomplete)}"
    if member is None:
        yield "can't be read in the cluster, or is no member of it"
    elif member.control_plane:
        yield "is a member of the control plane"
    elif others := hold_of(member):
        yield f"is maintained by others: {others}"
    elif read_mark(member.annotations.get(OWNER_ANNOTATION)) is None:
        yield from _of_service(subject, member.work(subject.observed.host, run.clock.now()))
    elif plan.isolated and any(action.name == "drain" for action in plan.actions):
        yield from _of_work(subject.desired, member.work(subject.observed.host, run.clock.now()))
    elif not _is_empty(run, subject):
        yield "is out of service, and not by our own mark and cordon alone, or not empty"


def _of_others(run: Run, limits: FleetLimits, desired: Desired, record: NodeRecord) -> Iterator[str]:
    """Yield what people, or other work of the reconciler, have against it."""
    if hold := held(desired, record, run.holds(), run.clock.now()):
        yield f"is {hold.detail}"
    if record.repair is not None:
        yield "is in repair by a person"
    if any(node == desired.node and not _is_step(action, target) for node, action, target in run.attempts.resumed):
        yield "has an action of its own that a dead run began"
    if desired.node in limits.spares.kept or desired.node in limits.spares.promoted:
        yield "is a spare, or takes the place of a failed node"
    if (wave := _wave(limits, desired)) is not None:
        yield f"is in a wave of the rollout of its pool that is {wave}"
    if why := _unapproved(run, desired.node):
        yield why


def _of_service(subject: Subject, pods: Sequence[Pod]) -> Iterator[str]:
    plan = subject.plan
    if plan.goal is not Goal.IN_SERVICE or plan.in_service is not True or plan.actions or plan.blocked is not None:
        yield f"has work of its own to wait for ({plan.situation})"
    yield from _of_work(subject.desired, pods)


def _of_work(desired: Desired, pods: Sequence[Pod]) -> Iterator[str]:
    policy = desired.profile.drain
    if pods and (policy.wait_for_jobs_s or policy.checkpoint is not None or policy.surge is not None):
        yield "has work that is given time before a drain: it is taken along once it has none"
    if why := stakes(pods, policy).refusal(policy):
        yield f"can't be drained: {why}"


def _is_step(action: str, target: str) -> bool:
    """Return whether this attempt of a dead run on a sibling may have been a step of a cut."""
    return spec_of(action).takes_out or target.startswith(_ALONG)


def _wave(limits: FleetLimits, desired: Desired) -> WaveState | None:
    progress = limits.rollouts.by_pool.get(desired.pool)
    number = None if progress is None else progress.wave_of.get(desired.node)
    if progress is None or number is None or number >= len(progress.plan.waves):
        return None
    state = progress.plan.waves[number].state
    return state if state in (WaveState.OPEN, WaveState.BAKING) else None


def _unapproved(run: Run, node: str) -> str:
    """Return why a sibling could not be brought back under the approved plan; "" where it could, or none is needed."""
    if why := run.bar_of(node):
        return f"waits, too: {why}"
    approved = run.context.approved
    if approved is None:
        return ""
    own = approved.nodes.get(node)
    does = set() if own is None else {action.name for action in own.actions}
    return "" if "run_gate" in does and "admit" in does else "has no approved plan to test and admit it again"


@dataclass(slots=True)
class Siblings:
    """Those that lose power with the node of one attempt. It implements converge.ports.SharedOutlets."""

    run: Run
    subject: Subject  # the node that is treated
    action: PlannedAction
    gate: GatePartners
    attempt: Callable[[Run, Subject, PlannedAction, PartnerPool], Awaitable[Attempted]]
    context: Callable[..., ActionContext]
    _held: dict[str, str] = field(default_factory=dict)  # each with the reason of the mark that this attempt set, or ""
    _cut: dict[str, ActionContext] = field(default_factory=dict)  # begun in the journal, and not ended there
    _off: set[str] = field(default_factory=set)

    @property
    def node(self) -> str:
        return self.subject.desired.node

    @property
    def names(self) -> tuple[str, ...]:
        return siblings_of(self.action)

    @property
    def limits(self) -> FleetLimits:
        return self.gate.pool.limits

    @property
    def disturbed(self) -> bool:
        return any(self._held.values())

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Give all back. A run that is being ended leaves them to the next one, as if it had died."""
        if kind is not None and not issubclass(kind, Exception):
            return
        if self._cut:
            await self.come_back(cut=False)
        for name, mark in self._held.items():
            await self.gate.pool.let_go(self.gate, name, mark if mark and await self._is_well(name) else "")

    async def _is_well(self, name: str) -> bool:
        """Return whether one that was marked and not shut down may serve as before; its own worker judges any other."""
        if name not in self.run.fleet.nodes:
            return True
        now = await self._look(name)
        return may_serve_as_before(now.plan, now.record, _member(now))

    async def gather(self) -> str:
        found = {name: await self._look(name) for name in self.names if name in self.run.fleet.nodes}
        if why := self.bar() or self._why_not(found):
            return why
        if why := self.gate.pool.hold_together(self.gate, self.names):
            return why
        self._held = dict.fromkeys(self.names, "")
        for name, subject in found.items():
            if _is_empty(self.run, subject):
                continue
            self._held[name] = CUT + self.node
            if why := await self._take_out(subject, "mark") or await self._take_out(subject, "drain"):
                return why
        return ""

    async def _take_out(self, subject: Subject, step: str) -> str:
        name = subject.desired.node
        made = await self.attempt(self.run, subject, _planned(step, self._held[name]), self.gate.pool)
        return "" if isinstance(made.outcome, Done) else f"{name} can't be taken out of service: {made.outcome.detail}"

    async def objection(self) -> str:
        if why := self.bar():
            return why
        own = await self._look(self.node)
        if hold := held(own.desired, own.record, self.run.holds(), self.run.clock.now()):
            return f"{self.node} is {hold.detail}"
        if not own.plan.actions or own.plan.actions[0].id != self.action.id:
            return f"{self.node} is not to be cut off any more: {own.plan.situation}"
        if _member(own) is not None and not _is_empty(self.run, own):
            return f"{self.node} is not out of service by our mark any more, or not empty"
        for name in self.names:
            if why := self.bar() or self._why_not({name: await self._look(name)}, taken=True):
                return why
        return self.bar() or self.limits.refusal_together((self.node, *self.names))

    def _why_not(self, found: dict[str, Subject], *, taken: bool = False) -> str:
        for name, subject in found.items():
            if why := next(_objections(self.run, self.limits, subject, self.node), ""):
                return f"{name} {why}"
            if taken and not _is_empty(self.run, subject):
                return f"{name} is not out of service by our mark any more, or not empty"
        return ""

    def bar(self) -> str:
        if stop := self.run.stop() or self.run.brake():
            return stop.detail
        desired, before = self.run.fleet.nodes.get(self.node), self.subject.desired
        if desired is None or desired.outlets != before.outlets or desired.cut_with != self.names:
            return f"the spec has changed the outlets of {self.node}, or who shares them"
        return why_never(desired, self.run.fleet.nodes)

    async def _look(self, name: str) -> Subject:
        run = self.run
        desired = run.fleet.nodes[name]
        async with run.ports.reads:
            seen = await observe_node(desired, run.ports.fabric, run.clock, run.fleet.settings)
        self.limits.see(seen)
        record = run.ledger.node(name)
        plan = self.limits.rollouts.part_allowed(*self.limits.plan_node(desired, seen, record))
        return Subject(desired, seen, record, plan)

    # --- the cut ---

    async def shut_down(self) -> str:
        for name in self.names:
            if why := self.bar():
                return why
            subject = await self._look(name)  # the others took minutes to shut down
            if why := self.bar() or self._why_not({name: subject}, taken=True):
                return why
            ctx = self._cut[name] = self._begin(subject)
            self._held[name] = ""  # its mark stays from now on

            async def shut(ctx: ActionContext, ill: bool = bool(subject.plan.illness)) -> Outcome:
                if ill:
                    await keep_evidence(ctx)
                await ensure_off(ctx)
                return Done("off")

            outcome = await carry_out(shut, ctx)
            if not isinstance(outcome, Done):
                return f"{name} can't be shut down: {outcome.detail}"
            self._off.add(name)
        return ""

    def _begin(self, subject: Subject) -> ActionContext:
        """Journal that a sibling is cut off, before anything is done to it. What a dead run journaled of that ends."""
        run, name, target = self.run, subject.desired.node, _ALONG + self.node
        now, token = run.clock.now(), run.ports.lease.token()
        if (left := run.attempts.resumed.pop((name, self.action.name, target), None)) is not None:
            run.ledger.finish(left.attempt, "ambiguous", f"{TOGETHER}{self.node} is cut off anew", now)
        intent: dict[str, Any] = {"at": now.isoformat(), "boot_id": subject.boot_id, "plan": run.context.plan_id}
        cause = TAKEN_ALONG + self.node
        if ill := sorted({item.path for item in subject.plan.illness}):
            cause, intent = REMEDIATION, {**intent, "signals": ill}  # it is as much a treatment of this node
        number = run.ledger.begin(run.context.run_id, name, self.action.name, target, cause, intent, token, now)
        action = _planned(self.action.name, cause)
        run.ports.progress(ActionStarted(name, action))
        return self.context(run, subject, action, number, intent, {}, self.gate.pool)

    async def answering(self) -> str:
        for name, ctx in self._cut.items():
            for _ in range(2):
                if isinstance(await ctx.bmc.hot(), Silent):
                    continue
                return name
        return ""

    async def come_back(self, *, cut: bool) -> None:
        begun, self._cut = self._cut, {}
        await asyncio.gather(*(self._one_comes_back(name, ctx, cut) for name, ctx in begun.items()))

    async def _one_comes_back(self, name: str, ctx: ActionContext, cut: bool) -> None:
        async def boot(ctx: ActionContext) -> Outcome:
            if not await answers_again(ctx, BMC_BOOT_S):
                return Transient(NO_ANSWER)
            await ensure_on(ctx)
            if name not in self._off:
                return Transient("it was to be cut off, and did not shut down")
            facts = await wait_for_host(ctx, unlike=ctx.intent["boot_id"])
            return Done(f"shut down with {self.node} and back, boot id {facts.boot_id}")

        outcome = await carry_out(boot, ctx)
        if not cut:
            outcome = Transient(TOGETHER + outcome.detail)  # it uses up no rung of a node that is ill
        now = self.run.clock.now()
        self.run.ledger.finish(ctx.attempt, outcome_word(outcome), outcome.detail, now)
        seconds = (now - datetime.fromisoformat(ctx.intent["at"])).total_seconds()
        self.run.ports.progress(ActionFinished(name, ctx.action, outcome, seconds))


def _planned(name: str, because: str) -> PlannedAction:
    spec = spec_of(name)
    return PlannedAction(
        name, "", spec.concern, (because,), spec.disruption, spec.seconds, Certainty.EXACT,
        spec.requires, spec.achieves, spec.breaks,
    )  # fmt: skip
