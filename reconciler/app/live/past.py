"""Answers about the past of a fleet, for the charts of the live page: made when somebody opens one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.model.desired import Fleet
from reconciler.model.live import DayHours, RolloutPast, WavePast
from reconciler.model.period_report import Hours
from reconciler.model.plan import Plan, RolloutPlan, Wave
from reconciler.model.records import NodeRecord
from reconciler.model.spread import Spreads
from reconciler.planner.fleet.period_report import hours_between
from reconciler.render.spreads import spreads

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

FRESH: Final = timedelta(minutes=1)  # as old as an answer may be: reading thousands of certificates takes a second
_Made = TypeVar("_Made")


class LivePast:
    """Answers that take long to make. Each is made once a minute at most, however many ask."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._made: dict[tuple[object, ...], tuple[datetime, Any]] = {}

    def measured(self, ledger: SqlLedger, fleet: Fleet, plan: Plan) -> Spreads:
        def make() -> Spreads:
            return spreads(fleet, list(plan.nodes), ledger.nodes(list(plan.nodes)))

        return self._fresh(("measured",), make)

    def availability(self, ledger: SqlLedger, fleet: Fleet, days: int) -> Sequence[DayHours]:
        def make() -> Sequence[DayHours]:
            now = self._now()
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            edges = [*(midnight - timedelta(days=back) for back in range(days - 1, -1, -1)), now]
            found = hours_between(ledger.past(edges[0], now), edges, fleet.nodes)
            return [_day(edges[at], edges[at + 1], one) for at, one in enumerate(found)]

        return self._fresh(("availability", days), make)

    def rollouts(self, ledger: SqlLedger, plan: Plan) -> Sequence[RolloutPast]:
        def make() -> Sequence[RolloutPast]:
            names = sorted({node for one in plan.rollouts for wave in one.waves for node in wave.nodes})
            records = ledger.nodes(names)
            return [
                RolloutPast(one.pool, one.digest, tuple(_wave(one, wave, records) for wave in one.waves))
                for one in plan.rollouts
            ]

        # A digest is of the values alone: members join, and waves are cut anew, under the same one.
        waves = tuple((one.digest, *(wave.nodes for wave in one.waves)) for one in plan.rollouts)
        return self._fresh(("rollouts", waves), make)

    def _fresh(self, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        with self._lock:
            now = self._now()
            self._made = {one: kept for one, kept in self._made.items() if timedelta() <= now - kept[0] < FRESH}
            if key not in self._made:
                self._made[key] = now, make()
            made: _Made = self._made[key][1]
            return made


def _day(start: datetime, end: datetime, hours: Hours) -> DayHours:
    seen = hours.in_service + hours.out
    return DayHours(start, end, hours, hours.in_service / seen if seen else None)


def _wave(rollout: RolloutPlan, wave: Wave, records: Mapping[str, NodeRecord]) -> WavePast:
    """Return when the nodes of a wave were converged to all values of the rollout."""
    times = sorted(at for node in wave.nodes if (at := _converged(rollout, records.get(node))) is not None)
    return WavePast(len(wave.nodes), len(times), times[0] if times else None, times[-1] if times else None)


def _converged(rollout: RolloutPlan, record: NodeRecord | None) -> datetime | None:
    """Return when a node was converged to the last of the values; None = it has not been, to all of them."""
    times = []
    for path, wanted in rollout.changes.items():
        applied = None if record is None else record.applied.get(path)
        if applied is None or applied.value not in wanted:
            return None
        times.append(applied.at)
    return max(times, default=None)
