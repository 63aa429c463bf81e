"""The engine of a request: whose workers read and plan the nodes in place of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from reconciler.app.ports import FleetRequest
from reconciler.app.runtime import run_async
from reconciler.converge.events import LoopTold, Progress
from reconciler.converge.observer import places_of
from reconciler.drivers.engine.access import RENEW, EngineAccess
from reconciler.model.desired import Fleet
from reconciler.model.observed import Observation
from reconciler.model.observer_port import Observer
from reconciler.model.ports import Clock
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_ahead
from reconciler.planner.node.kept_plans import KeptPlans

if TYPE_CHECKING:
    from reconciler.drivers.engine.observer import EngineObserver

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Engine:
    """An engine, or none. Raise UsageError unless it is reached over mutual TLS.

    `workers`: the latest Observer, which knows what its workers have read, and has them plan; None: nothing was read.
    """

    def __init__(self, request: FleetRequest) -> None:
        self.access = None if request.engine is None else EngineAccess(request.engine, request.engine_tls)
        if self.access is not None:
            self.access.check()
        self.workers: EngineObserver | None = None

    def observer(self, clock: Clock, revoked: Callable[[], Sequence[str]]) -> Observer | None:
        """Return what reads nodes on workers; None without an engine. `revoked`: host keys that are never trusted."""
        if self.access is None:
            return None
        from reconciler.drivers.engine.observer import EngineObserver

        self.workers = EngineObserver(self.access, clock, revoked)
        return self.workers

    def workers_by_site(self) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
        """Ask the scheduler for the names of its workers that are well, and for certificates that will expire soon.

        Raise EngineError when it does not answer.
        """
        assert self.access is not None
        from reconciler.drivers.engine.client import EngineClient

        client = EngineClient(self.access)

        async def ask() -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
            try:
                return await client.workers(), client.expiring()
            finally:
                await client.close()

        return run_async(ask())

    def run_on_workers(self, tasks: Sequence[Callable[[], bytes]]) -> list[bytes | str]:
        """Have workers play runs, each packed at its turn. Return the result of each, or why there is none."""
        assert self.access is not None
        from reconciler.drivers.engine.runs import run_on_workers

        return run_async(run_on_workers(self.access, tasks))

    def planned_ahead(
        self, fleet: Fleet, observation: Observation, snapshot: LedgerSnapshot, clock: Clock, request: PlanRequest
    ) -> KeptPlans | None:
        """Return the plans that workers made of what they had read for this command; None where none has read."""
        if (workers := self.workers) is None:
            return None
        kept = KeptPlans()

        async def ahead() -> None:
            try:
                await plan_ahead(
                    fleet, observation, snapshot, clock.now(), request, kept, places_of(fleet), workers
                )  # fmt: skip
            finally:
                await workers.close()

        run_async(ahead())
        return kept


class CertificateWatch:
    """Tells of certificates that have expired or will soon, at the first pass of a leader and once a day."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine = engine
        self._progress = progress
        self._next = LONG_AGO

    def pass_ended(self, now: datetime) -> None:
        workers = self._engine.workers
        if workers is None or now < self._next:
            return
        self._next = now + timedelta(days=1)
        for one in workers.client.expiring():
            self._progress(LoopTold("certificate", f"{one}: {RENEW}", problem=True))
