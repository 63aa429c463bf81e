"""When nodes were taken out of service, which limits per time count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from reconciler.model.desired import Settings
from reconciler.model.records import NodeRecord

TimesTakenOut = Mapping[str, Sequence[datetime]]  # node -> when it was taken out of service, each time


def has_rates(settings: Settings) -> bool:
    return any(limit.per_s is not None for limit in settings.budgets)


def taken_out(records: Mapping[str, NodeRecord], settings: Settings) -> TimesTakenOut:
    """Return each time that each node was taken out of service; empty where no rate counts that.

    The attempts tell: a mark takes a node out, or without a cluster, a drain. One that did not end well may have had
    its effect all the same; together with those that repeat it, it counts once.
    """
    first = "mark" if settings.cluster is not None else "drain"
    found: dict[str, list[datetime]] = {}
    for name, record in records.items() if has_rates(settings) else ():
        times, tried = list[datetime](), None
        for attempt in record.attempts:
            if attempt.action != first or attempt.outcome == "refused":
                continue
            tried = attempt.begun
            if attempt.outcome == "done":
                times.append(attempt.begun)
                tried = None
        if times or tried is not None:
            found[name] = times if tried is None else [*times, tried]
    return found
