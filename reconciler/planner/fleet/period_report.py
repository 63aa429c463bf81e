"""The report of a period: drift, times to converge and recover, availability, quarantines (model/period_report.py)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, zip_longest
from operator import attrgetter

from reconciler import __version__
from reconciler.model.drift import ACTIONABLE
from reconciler.model.gate import Decline
from reconciler.model.period_report import (
    ILL,
    REPORT_FORMAT,
    ConcernTally,
    Day,
    DriftDay,
    Episode,
    Hours,
    NodeTally,
    Past,
    PeriodReport,
    Quarantine,
    Recovery,
    StatusInterval,
)
from reconciler.model.plan import BlockCode
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import Concern
from reconciler.planner.fleet.durations import times

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_SHORT = 2 * _DAY  # up to this length, a period is reported by the hour
_ISOLATED = frozenset({BlockCode.ATTEMPTS.value, BlockCode.QUARANTINED.value})
_CONCERNS = {concern.value: concern for concern in Concern}
_CAUSES = {  # by the status in which the outage began
    NodeStatus.ACTING: "worked on by the reconciler",
    NodeStatus.PLANNED: "went out by itself, before anything was done to it",
    NodeStatus.WAITING: "went out by itself, and waited for its turn",
    NodeStatus.UNKNOWN: "could not be read",
    NodeStatus.CONVERGED: "out of service for no reason that is ours",
}
_PARTS = {"in_service": 0, "out": 1, "aside": 2}
_NODE = attrgetter("node")
_DRIFT = frozenset(kind.value for kind in ACTIONABLE)


def period_report(
    past: Past,
    fleet: str,
    nodes: Collection[str],
    since: datetime,
    until: datetime,
    time_scale: float = 1.0,
    declines: Sequence[Decline] = (),
) -> PeriodReport:
    """Return the report of the period from `since` to `until`.

    `fleet`: its name. `nodes`: those that the spec names now. `declines`: their gray decline, as of now.
    """
    drift = [one for one in past.episodes if one.kind in _DRIFT]
    fresh = [one for one in drift if one.since >= since]
    gone = [one for one in drift if one.until is not None and one.until <= until]
    still = [one for one in drift if (one.until is None or one.until > until) and one.node in nodes]
    bucket = _HOUR if until - since <= _SHORT else _DAY
    spent = hours(past, since, until, nodes)
    observed = spent.in_service + spent.out
    back = recoveries(past.status_intervals, since, nodes)
    return PeriodReport(
        format_version=REPORT_FORMAT,
        tool_version=__version__,
        fleet=fleet,
        generated_at=until,
        since=since,
        until=until,
        watched_since=min(past.first.values(), default=None),
        nodes=len(nodes),
        introduced=len(fresh) + sum(sum(one.came) for one in past.drift_days),
        removed=len(gone) + sum(sum(one.went) for one in past.drift_days),
        open=len(still),
        bucket_s=bucket.total_seconds(),
        days=days(drift, since, until, bucket, nodes, past.drift_days),
        converge=times(chain(_seconds(gone), *(one.seconds for one in past.drift_days))),
        concerns=_concerns(fresh, gone, still, past.drift_days),
        top_nodes=_nodes(fresh, still, past.drift_days),
        hours=spent,
        availability=spent.in_service / observed if observed else None,
        unobserved_share=spent.unobserved / spent.total if spent.total else 1.0,
        recover=times(one.seconds for one in back if one.until is not None),
        recoveries=back,
        replace=times(one.seconds for one in past.replacements),
        replacements=tuple(sorted(past.replacements, key=lambda one: (-one.seconds, one.node))),
        quarantined=quarantines(past.status_intervals, nodes),
        actions=past.actions,
        damaged=past.damaged,
        time_scale=time_scale,
        declines=tuple(sorted(declines, key=lambda one: (-one.share, one.node))),
    )


# --- hours ---


def hours(past: Past, since: datetime, until: datetime, nodes: Collection[str]) -> Hours:
    """Add up node-hours: of each node from when it was first looked at, and until it was last seen if it left."""
    spent = [sum(times, timedelta()) for times in zip(*time_by_node(past, since, until).values(), strict=True)]
    in_service, out, aside = (one / _HOUR for one in spent or (timedelta(),) * 3)
    last = {interval.node: interval.end for interval in past.status_intervals if interval.node not in nodes}
    total = timedelta()
    throughout = 0
    for node, first in past.first.items():
        if node not in nodes:
            total += max(min(last.get(node, since), until) - max(first, since), timedelta())
        elif first <= since:
            throughout += 1
        elif first < until:
            total += until - first
    total += throughout * (until - since)
    return Hours(in_service, out, aside, max(total / _HOUR - in_service - out - aside, 0.0))


def time_by_node(past: Past, since: datetime, until: datetime) -> dict[str, list[timedelta]]:
    """Return how long each node was seen in service, out of it, and set aside.

    No time counts twice: an interval ends where the next begins, which may have been timed by another machine's clock.
    """
    found: dict[str, list[timedelta]] = {}
    afters = chain(past.status_intervals[1:], (None,))
    for (node, _, status, out, begin, seen, ended, _, _), after in zip(past.status_intervals, afters, strict=False):
        end = seen if ended is None else ended
        if after is not None and after.since < end and after.node == node:
            end = after.since
        if begin < since:
            begin = since
        if end > until:
            end = until
        if end > begin and (part := _PARTS.get(_part(status, out))) is not None:
            spent = found.get(node)
            if spent is None:
                spent = found[node] = [timedelta()] * len(_PARTS)
            spent[part] += end - begin
    return found


def hours_between(past: Past, edges: Sequence[datetime], nodes: Collection[str]) -> list[Hours]:
    """Add up node-hours between each two of these instants, which are in ascending order.

    A node counts from when it was first looked at, or until it was last seen if it left the spec. No hour counts twice:
    an interval ends where the next begins, which may have been timed by another machine's clock.
    """
    found = [dict.fromkeys(("in_service", "out", "aside", "unobserved"), 0.0) for _ in edges[1:]]
    total = [0.0] * len(found)
    last: dict[str, datetime] = {}
    for interval, after in zip_longest(past.status_intervals, past.status_intervals[1:]):
        end = min(interval.end, after.since) if after is not None and after.node == interval.node else interval.end
        for at, spent in _spread(interval.since, end, edges):
            found[at][_part(interval.status, interval.out)] += spent
        last[interval.node] = interval.end
    for node, first in past.first.items():
        end = edges[-1] if node in nodes else last.get(node, edges[0])
        for at, spent in _spread(first, end, edges):
            total[at] += spent
    for each, of in zip(found, total, strict=True):
        each["unobserved"] = max(of - each["in_service"] - each["out"] - each["aside"], 0.0)
    return [Hours(**each) for each in found]


def _spread(begin: datetime, end: datetime, edges: Sequence[datetime]) -> Iterator[tuple[int, float]]:
    """Yield how many hours of an interval are between each two edges that it touches."""
    at = max(bisect_right(edges, begin) - 1, 0)
    while at < len(edges) - 1 and edges[at] < end:
        spent = (min(end, edges[at + 1]) - max(begin, edges[at])) / _HOUR
        if spent > 0:
            yield at, spent
        at += 1


def _part(status: NodeStatus, out: bool | None) -> str:
    if status is NodeStatus.SET_ASIDE:
        return "aside"
    if out is None:
        return "unobserved"
    return "out" if out else "in_service"


# --- drift ---


def _seconds(gone: Iterable[Episode]) -> Iterator[float]:
    return ((one.until - one.since).total_seconds() for one in gone if one.until is not None)


def days(
    drift: Sequence[Episode],
    since: datetime,
    until: datetime,
    bucket: timedelta,
    nodes: Collection[str],
    summed: Sequence[DriftDay] = (),
) -> tuple[Day, ...]:
    """Return an entry for each hour or day (UTC), also without events. The first may begin before the period."""
    first = since - (since - datetime(1970, 1, 1, tzinfo=UTC)) % bucket
    number = max(math.ceil((until - first) / bucket), 1)
    edges = [first + at * bucket for at in range(number)]
    came, went = [0] * number, [0] * number
    still_open = 0
    for one in drift:
        over = one.until is not None and one.until <= until
        if not over and one.node not in nodes:
            continue
        if one.since < since:
            still_open += 1
        else:
            came[bisect_right(edges, one.since) - 1] += 1
        if over and one.until is not None:
            went[max(bisect_right(edges, one.until) - 1, 0)] += 1
    for day in summed:
        for hour, (new, gone) in enumerate(zip(day.came, day.went, strict=True)):
            at = bisect_right(edges, day.start + hour * _HOUR) - 1
            came[at] += new
            went[at] += gone
    found = []
    for at, edge in enumerate(edges):
        still_open += came[at] - went[at]
        found.append(Day(edge, came[at], went[at], still_open))
    return tuple(found)


def _by_concern(episodes: Iterable[Episode], summed: Sequence[DriftDay]) -> dict[str, set[str]]:
    """Return the nodes that drifted, by concern."""
    by_path: dict[str, set[str]] = defaultdict(set)
    for one in episodes:
        by_path[one.path].add(one.node)
    for day in summed:
        for path, where in day.where.items():
            by_path[path].update(where)
    found: dict[str, set[str]] = defaultdict(set)
    for path, nodes in by_path.items():
        found[_concern(path)] |= nodes
    return found


def _concern(path: str) -> str:
    return path.partition(".")[0]


def _concerns(
    fresh: Sequence[Episode], gone: Sequence[Episode], still: Sequence[Episode], summed: Sequence[DriftDay]
) -> tuple[ConcernTally, ...]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for at, some in enumerate((fresh, gone, still)):
        for path, number in Counter(one.path for one in some).items():
            counts[_concern(path)][at] += number
    for day in summed:
        for path, where in day.where.items():
            counts[_concern(path)][0] += len(where)
            counts[_concern(path)][1] += len(where)
    nodes, order = _by_concern(chain(fresh, gone, still), summed), {name: at for at, name in enumerate(_CONCERNS)}
    ranked = sorted(counts, key=lambda name: (-counts[name][0], -counts[name][2], order.get(name, len(order)), name))
    tallies = []
    for name in ranked:
        came, went, left = counts[name]
        tallies.append(ConcernTally(name, came, went, left, len(nodes[name])))
    return tuple(tallies)


def _nodes(fresh: Sequence[Episode], still: Sequence[Episode], summed: Sequence[DriftDay]) -> tuple[NodeTally, ...]:
    came, left = (Counter([one.node for one in some]) for some in (fresh, still))
    came.update(chain(*(where for day in summed for where in day.where.values())))
    by_concern = _by_concern(chain(fresh, still), summed)
    concerns: dict[str, tuple[Concern, ...]] = dict.fromkeys(chain(*by_concern.values()), ())
    for name, concern in _CONCERNS.items():
        joined: dict[tuple[Concern, ...], tuple[Concern, ...]] = {}  # of many nodes the same few
        for node in by_concern.get(name, ()):
            before = concerns[node]
            concerns[node] = joined.get(before) or joined.setdefault(before, (*before, concern))
    alike: dict[tuple[int, int], list[str]] = defaultdict(list)
    for node in sorted(concerns):
        alike[came.get(node, 0), left.get(node, 0)].append(node)
    return tuple(
        NodeTally(node, *numbers, concerns[node]) for numbers in sorted(alike, reverse=True) for node in alike[numbers]
    )


# --- out of service ---


def recoveries(
    status_intervals: Sequence[StatusInterval], since: datetime, nodes: Collection[str]
) -> tuple[Recovery, ...]:
    """Return the outages: those of nodes that are still out first, then the longest.

    A gap in observation does not end an outage, since nobody saw the node serve. A node that left the spec while it was
    out has not recovered, and is left out.
    """
    found: list[Recovery] = []
    were_out = {interval.node for interval in status_intervals if interval.out}
    for node, of_node in groupby((one for one in status_intervals if one.node in were_out), key=_NODE):
        out: list[StatusInterval] = []
        for interval in of_node:
            part = _part(interval.status, interval.out)
            if part == "out":
                out.append(interval)
            elif out and part != "unobserved":
                if part == "in_service" and interval.since >= since:
                    found.append(_recovery(out, interval.since))
                out = []
        if out and node in nodes:
            found.append(_recovery(out, None))
    return tuple(sorted(found, key=lambda one: (one.until is not None, -one.seconds, one.node)))


def _recovery(out: Sequence[StatusInterval], until: datetime | None) -> Recovery:
    end = out[-1].end if until is None else until
    return Recovery(out[0].node, _cause(out), out[0].since, until, (end - out[0].since).total_seconds())


def _cause(out: Sequence[StatusInterval]) -> str:
    """Return the most telling cause: why the node was blocked or held, else its illness, else how the outage began.

    An outage is the reconciler's if it was at work when the node went out: what it does about one that it met, such as
    a repair, has not caused it.
    """
    for status in (NodeStatus.BLOCKED, NodeStatus.HELD):
        for interval in out:
            if interval.status is status:
                return interval.why or status.value
    for interval in out:
        if interval.code == ILL and interval.why:
            return interval.why
    return _CAUSES.get(out[0].status, out[0].status.value)


def quarantines(status_intervals: Sequence[StatusInterval], nodes: Collection[str]) -> tuple[Quarantine, ...]:
    """Return the quarantines, newest first. A gap in observation does not split one, and leaving the spec ends it.

    A node that is ill and in service is not quarantined: the fleet may only be observed, for example.
    """
    found: list[Quarantine] = []
    isolated_once = {interval.node for interval in status_intervals if interval.code in _ISOLATED}
    for node, of_node in groupby((one for one in status_intervals if one.node in isolated_once), key=_NODE):
        current: StatusInterval | None = None
        end: datetime | None = None
        for interval in of_node:
            end = None if node in nodes else interval.end
            part = _part(interval.status, interval.out)
            isolated = interval.code in _ISOLATED and part != "in_service"
            if current is not None and isolated and interval.code == current.code:
                continue
            if current is not None and part != "unobserved":
                found.append(Quarantine(node, current.code, current.why, current.since, interval.since))
                current = None
            if current is None and isolated and part != "unobserved":
                current = interval
        if current is not None:
            found.append(Quarantine(node, current.code, current.why, current.since, end))
    return tuple(sorted(found, key=lambda one: (-one.since.timestamp(), one.node)))
