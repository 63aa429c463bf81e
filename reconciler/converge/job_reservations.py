"""Keep nodes free of new jobs before the windows in which they are worked on, pass after pass.

What stands in the queue is the only memory: a process that was killed in between reads its reservations back by their
names. While Slurm gives no answer, the first call that waits for one is the last of a pass, which waits for it itself.
A reservation ends by itself, so one that nobody takes care of any more costs its own time at most. Those of
others are never touched, and where one of theirs overlaps, theirs goes first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TypeVar

from reconciler.converge.events import LoopTold
from reconciler.converge.guarded_ports import Deadlines
from reconciler.converge.run import Run
from reconciler.model.errors import DriverError, Failure
from reconciler.model.plan import NodePlan
from reconciler.model.reservations import Reservation, Reservations, ReservationStore
from reconciler.planner.fleet.reservations import has_moved, is_over, wanted_reservations

T = TypeVar("T")
_NO_ANSWER = frozenset({Failure.TIMEOUT, Failure.AMBIGUOUS, Failure.UNREACHABLE})


class ReservationKeeper:
    """`run`: that of the loop, whose spec may change."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told: dict[str, str] = {}  # node, or "" for all -> the trouble that was told last
        self._answers = True  # Slurm, in this pass

    async def keep(self, plans: Mapping[str, NodePlan]) -> None:
        """Make, move and delete reservations as the latest plans of all nodes ask for."""
        store, cluster = self._run.ports.fabric.reservations(), self._run.fleet.settings.cluster
        if store is None or cluster is None or cluster.slurm is None or not cluster.slurm.reserve_s:
            return
        now, settings = self._run.clock.now(), self._run.fleet.settings
        wanted = wanted_reservations(plans, settings.windows, now, timedelta(seconds=cluster.slurm.reserve_s))
        self._answers = True
        found = await self._try("", self._deadlines.read(store.found()))
        if found is None:
            return
        for name, ours in found.ours.items():
            if self._answers and name not in wanted and is_over(ours, plans.get(name), now):
                await self._write(name, partial(store.release, name), "may start any job again")
        if self._run.stop() is None:
            for name, reservation in wanted.items():
                if self._answers:
                    await self._reserve(store, found, reservation, found.ours.get(name))

    async def _reserve(
        self, store: ReservationStore, found: Reservations, wanted: Reservation, ours: Reservation | None
    ) -> None:
        if ours is not None and not has_moved(ours, wanted, self._run.clock.now()):
            return
        span = f"{wanted.start:%Y-%m-%d %H:%M}Z to {wanted.end:%Y-%m-%d %H:%M}Z"
        if (other := found.overlapped(wanted)) is not None:
            theirs = f"somebody else has reserved it in Slurm until {other.end:%Y-%m-%d %H:%M}Z"
            self._trouble(wanted.node, f"is not reserved from {span}: {theirs}")
            return
        done = f"is reserved in Slurm from {span}"
        await self._write(wanted.node, lambda: store.reserve(wanted, ours), done, may_be_gone=ours is not None)

    # --- calls -------------------------------------------------------------------------------------------------------

    @property
    def _deadlines(self) -> Deadlines:
        return Deadlines(self._run.clock, self._run.fleet.settings.kubernetes_deadline_s)

    async def _write(
        self, node: str, write: Callable[[], Awaitable[None]], done: str, *, may_be_gone: bool = True
    ) -> None:
        self._run.ports.lease.prove()
        if await self._try(node, self._wrote(write()), may_be_gone=may_be_gone):
            self._run.ports.progress(LoopTold("reservation", f"{node} {done}"))

    async def _wrote(self, call: Awaitable[None]) -> bool:
        await self._deadlines.write(call)
        return True

    async def _try(self, node: str, call: Awaitable[T], *, may_be_gone: bool = False) -> T | None:
        """Return what a call returns. What fails is told once, and tried again by the next pass.

        `may_be_gone`: what it is about may have ended since it was read, which is no trouble.
        """
        try:
            result = await call
        except DriverError as error:
            self._answers = error.kind not in _NO_ANSWER
            if error.kind is not Failure.CONFLICT or not may_be_gone:
                self._trouble(node, f"could not be reserved or released in Slurm: {error.detail}")
            return None
        self._told.pop(node, None)
        return result

    def _trouble(self, node: str, why: str) -> None:
        if self._told.get(node) != why:
            self._told[node] = why
            text = f"{node} {why}" if node else f"reservations: {why}"
            self._run.ports.progress(LoopTold("reservation", text, problem=True))
