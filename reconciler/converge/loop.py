"""The reconciler that runs for ever: follows the spec, and leads the fleet while it holds the lease (DESIGN 8, 9).

One of several leads, the others stand by and ask for the lease every few seconds. Whatever ends a term (the lease is
lost, the ledger can't be reached) parks what runs; the next term begins like a first one, with a look at everything and
with what the journal says was under way.
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
from reconciler.model.ports import Fabric, SpecFeed
from reconciler.model.spec_feed import Pulled
from reconciler.model.status import LoopStatus, Role

ASK_AGAIN_S = 5.0  # wall clock: a standby asks for the lease, or a leader for its ledger
PASSES_LATE = 3  # intervals without a pass make a leader unready


class Loop:
    """`holder`: whom the lease names to others. `pull_s`: between looks for a new spec."""

    def __init__(
        self, deps: LoopDeps, feed: SpecFeed, reach: Callable[[Fleet], Fabric], *, holder: str, pull_s: float
    ) -> None:
        self._deps = deps
        self._feed = feed
        self._reach = reach
        self._holder = holder
        self._pull_s = pull_s
        self._shift: LeaderTerm | None = None
        self._name = ""  # of the fleet
        self._passes = 0
        self._trouble = ""  # why this process does not lead, as last told
        self._status = LoopStatus(pass_due_s=PASSES_LATE * deps.interval_s, time_scale=deps.time_scale)

    async def run(self) -> None:
        """Until it is cancelled. UsageError and the like where no later try could fare better."""
        self._stand()
        try:
            async with asyncio.TaskGroup() as group:
                first = asyncio.Event()
                group.create_task(self._follow(first))
                await first.wait()
                while True:
                    await self._term()
                    await self._pause(ASK_AGAIN_S)
        except ExceptionGroup as errors:
            raise first_of_ours(errors) or errors from None

    async def _follow(self, first: asyncio.Event) -> None:
        while True:
            self._hear(await self._feed.pull())
            if self._feed.fleet is not None:
                first.set()
            await self._deps.clock.sleep(self._pull_s)

    def _hear(self, pulled: Pulled) -> None:
        self._stand(
            spec_commit=pulled.commit, spec_head=pulled.head,
            spec_trouble=pulled.trouble.value if pulled.trouble is not None else "",
        )  # fmt: skip
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
                f"the spec is of fleet {fleet.settings.fleet} now, and this process keeps {self._name}: start it anew"
            )
        commit = fields["commit"][:12]
        self._tell("spec", f"commit {commit} is in force: {len(fleet.nodes)} nodes", **fields)
        if self._shift is not None:
            self._shift.change(fleet)

    # --- one term of leadership ---

    async def _term(self) -> None:
        """From taking the lease to losing it, or one vain try."""
        fleet, deps = self._feed.fleet, self._deps
        assert fleet is not None
        self._name = fleet.settings.fleet
        try:
            async with held_lease(deps.ledger, fleet.settings.fleet, self._holder, deps.clock) as lease:
                self._tell("leading", f"holds the lease on {fleet.settings.fleet}: looking at everything first")
                self._trouble = ""
                self._stand(role=Role.LEADER, last_pass=None)
                fabric = self._reach(fleet)
                try:
                    self._shift = LeaderTerm(deps, fleet, fabric, lease, self._passed)
                    await self._shift.work()
                finally:
                    self._shift = None
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
        self._stand(role=role)

    def _passed(self, plan: Plan) -> None:
        self._passes += 1
        self._stand(last_pass=self._deps.clock.now(), stopped=plan.stopped or plan.braked)

    # --- telling ---

    def _stand(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        self._deps.metrics.loop_status(self._status)

    def _tell(self, event: str, message: str, *, problem: bool = False, **fields: str | int | float) -> None:
        self._deps.progress(LoopTold(event, message, problem, fields))

    async def _pause(self, real_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(real_s):
                await asyncio.Event().wait()
