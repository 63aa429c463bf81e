"""Answers about the past of a fleet, for the charts of the live page: made when somebody opens one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
SPANS: Final = (7, 30, 90)  # days that are read at once: a question for fewer takes the last of them
_Made = TypeVar("_Made")


@dataclass(slots=True)
class _Answer:
    """An answer, made `at`; before, that is when it was asked for. `making` is held by who makes or takes it."""

    at: datetime
    making: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None  # until it is made

    def stays(self, now: datetime) -> bool:
        """Return whether it is young enough, or being made: dropped then, it would be made twice at a time."""
        return timedelta() <= now - self.at < FRESH or (self.value is None and self.making.locked())


class LivePast:
    """Answers that take long to make. Each is made once a minute at most, however many ask, and beside the others."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._answers: dict[tuple[object, ...], _Answer] = {}

    def measured(self, ledger: SqlLedger, fleet: Fleet, plan: Plan) -> Spreads:
        def make() -> Spreads:
            return spreads(fleet, list(plan.nodes), ledger.nodes(list(plan.nodes)))

        return self._fresh(("measured",), make)

    def availability(self, ledger: SqlLedger, fleet: Fleet, days: int) -> Sequence[DayHours]:
        span = next((one for one in SPANS if days <= one), days)

        def make() -> Sequence[DayHours]:
            now = self._now()
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            edges = [*(midnight - timedelta(days=back) for back in range(span - 1, -1, -1)), now]
            found = hours_between(ledger.past(edges[0], now), edges, fleet.nodes)
            return [_day(edges[at], edges[at + 1], one) for at, one in enumerate(found)]

        return self._fresh(("availability", span), make)[-days:]

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
        """Return the answer `key`. Who asks while it is made waits for it, and for no other."""
        with self._lock:
            now = self._now()
            self._answers = {one: kept for one, kept in self._answers.items() if kept.stays(now)}
            answer = self._answers.setdefault(key, _Answer(now))
        with answer.making:
            if answer.value is None:  # still so if making it failed
                made = make()
                answer.at, answer.value = self._now(), made  # in this order: without a value, it is being made
            found: _Made = answer.value
            return found


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
