"""`reconciler run`: follow the spec for ever, and lead the fleet while this process holds the lease (DESIGN 8, 9).

One of several processes leads; the others ask for the lease every few seconds. Whatever ends a term (the lease is lost,
the ledger can't be reached) parks what runs. The next term begins like the first one: it looks at every node, and takes
over what the journal says was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from reconciler.converge.events import LoopTold
from reconciler.converge.leader_term import LeaderTerm, LoopDeps
from reconciler.converge.lease import held_lease
from reconciler.model.desired import Fleet
from reconciler.model.errors import LeaseHeld, LedgerError, UsageError, first_of_ours
from reconciler.model.plan import Plan
from reconciler.model.ports import Fabric
from reconciler.model.spec_feed import Pulled, SpecFeed
from reconciler.model.status import LoopStatus, Role

ASK_AGAIN_S = 5.0  # wall clock: a standby asks for the lease, or a leader for its ledger
PASSES_LATE = 3  # intervals without a pass make a leader unready


class Loop:
    """The loop of one process.

    `reach` connects to a fleet as its spec says. `holder`: the name that the lease shows to others. `pull_s`: seconds
    between looks for a new spec.
    """

    def __init__(
        self, deps: LoopDeps, feed: SpecFeed, reach: Callable[[Fleet], Fabric], *, holder: str, pull_s: float
    ) -> None:
        self._deps = deps
        self._feed = feed
        self._reach = reach
        self._holder = holder
        self._pull_s = pull_s
        self._term: LeaderTerm | None = None  # None also until its first pass is over
        self._next: Fleet | None = None  # a spec that came during the first pass
        self._name = ""  # of the fleet
        self._passes = 0
        self._trouble = ""  # why this process does not lead, as last reported
        self._status = LoopStatus(pass_due_s=PASSES_LATE * deps.interval_s, time_scale=deps.time_scale)

    async def run(self) -> None:
        """Run until cancelled. Raise UsageError and the like where no later try could succeed."""
        self._set_status()
        try:
            async with asyncio.TaskGroup() as group:
                first = asyncio.Event()
                group.create_task(self._follow(first))
                await first.wait()
                while True:
                    await self._lead()
                    await self._pause(ASK_AGAIN_S)
        except ExceptionGroup as errors:
            raise first_of_ours(errors) or errors from None

    async def _follow(self, first: asyncio.Event) -> None:
        while True:
            self._take(await self._feed.pull())
            if self._feed.fleet is not None:
                first.set()
            await self._deps.clock.sleep(self._pull_s)

    def _take(self, pulled: Pulled) -> None:
        self._set_status(
            spec_commit=pulled.commit,
            spec_head=pulled.head,
            spec_trouble=pulled.trouble.value if pulled.trouble is not None else "",
        )
        fields: dict[str, Any] = {"commit": pulled.commit, "head": pulled.head}
        if pulled.news:
            self._tell("spec_trouble", pulled.detail, problem=True, **fields)
            for diagnostic in pulled.diagnostics[1:]:
                self._tell("spec_trouble", str(diagnostic), problem=True, **fields)
        if pulled.changed:
            for warning in pulled.diagnostics:
                self._tell("spec_warning", str(warning), problem=True, **fields)
            self._change(fields)

    def _change(self, fields: dict[str, Any]) -> None:
        fleet = self._feed.fleet
        assert fleet is not None
        if self._name and fleet.settings.fleet != self._name:
            raise UsageError(
                f"the spec is of fleet {fleet.settings.fleet} now, and this process manages {self._name}: restart it"
            )
        commit = fields["commit"][:12]
        self._tell("spec", f"commit {commit} is in force: {len(fleet.nodes)} nodes", **fields)
        if self._term is not None:
            self._term.change(fleet)
        else:
            self._next = fleet

    # --- one term of leadership ---

    async def _lead(self) -> None:
        """Try once to take the lease, and lead until it is lost."""
        fleet, deps = self._feed.fleet, self._deps
        assert fleet is not None
        self._name, self._next = fleet.settings.fleet, None
        try:
            async with held_lease(deps.ledger, fleet.settings.fleet, self._holder, deps.clock) as lease:
                self._tell("leading", f"holds the lease on {fleet.settings.fleet}: reading every node first")
                self._trouble = ""
                self._set_status(role=Role.LEADER, last_pass=None)
                fabric = self._reach(fleet)
                try:
                    self._term = await LeaderTerm.begin(deps, fleet, fabric, lease, self._passed)
                    if self._next is not None:
                        self._term.change(self._next)
                    await self._term.work()
                finally:
                    self._term = None
                    await fabric.close()
        except LeaseHeld as error:
            self._step_back(Role.STANDBY, "standby", str(error), problem=self._status.role is Role.LEADER)
        except LedgerError as error:
            self._step_back(Role.STARTING, "ledger", str(error), problem=True)
        except UsageError as error:  # a new spec names a secret that is not there, say
            if not self._passes:
                raise
            self._step_back(Role.STARTING, "trouble", str(error), problem=True)

    def _step_back(self, role: Role, event: str, why: str, *, problem: bool) -> None:
        if self._status.role is not role or (problem and why != self._trouble):
            self._tell(event, why, problem=problem)
        self._trouble = why
        self._set_status(role=role, stopped="")  # which only a leader knows

    def _passed(self, plan: Plan) -> None:
        self._passes += 1
        self._set_status(last_pass=self._deps.clock.now(), stopped=plan.stopped or plan.braked)

    # --- reporting ---

    def _set_status(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        self._deps.metrics.loop_status(self._status)

    def _tell(self, event: str, message: str, *, problem: bool = False, **fields: str | int | float) -> None:
        self._deps.progress(LoopTold(event, message, problem, fields))

    async def _pause(self, real_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(real_s):
                await asyncio.Event().wait()
