"""The storm brake: when many nodes go bad at once, no disruptive action begins (pitfalls J5, C5).

They have one cause then, and treating them one by one is no cure: a switch that fails makes a rack look dead, and to
power cycle its nodes kills work that still runs. So when more than a share of the fleet, or of one failure domain, goes
bad within a while, nothing that disrupts begins, on nodes in service or out of it, until a person has looked and
resumed.

A node has gone bad when it served before, and now the cluster calls it not ready, neither its BMC nor its host can be
reached, it is powered off, or its host shows a hardware fault. A node that was out of service before does not count,
and neither does one that went bad while it was being worked on, or that is not ready since its cluster was taken away:
that outage is expected. A silent BMC alone is no evidence.

The ledger keeps when each node was first seen to be bad, so that a restart forgets nothing and passes may be far apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from reconciler.diff.ignore import IgnoreRules
from reconciler.health.table import Effect
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Answered, Member, Observation, Observed, Silent, is_unread
from reconciler.model.records import BAD, MARK_TAINT, NO_CLUSTER, OWNER_ANNOTATION, NodeRecord, read_mark
from reconciler.model.units import format_duration
from reconciler.model.vocab import NodeState, Power, UnknownReason
from reconciler.planner.node.holds import Holds, held
from reconciler.planner.node.signal_cache import SignalCache

NOT_READY = "not ready"
LEAST_OF_FLEET = 3  # two nodes anywhere within minutes are a coincidence; a third is none
LEAST_OF_DOMAIN = 2  # one node is no storm, however small its rack
NAMED = 8
NO_RECORDS: Mapping[str, NodeRecord] = {}
_UNREACHED = (
    UnknownReason.UNREACHABLE,
    UnknownReason.TIMEOUT,
)  # a machine that refuses us or answers nonsense is there


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm: more nodes of one scope went bad together than the spec allows.

    `scope`: "the fleet" or "rack r1"; `total`: its active nodes; `limit`: as the spec says it.
    `nodes`: those that went bad -> how; `since`: when the first of them was seen to be bad.
    """

    scope: str
    nodes: Mapping[str, str]
    total: int
    limit: str
    within_s: float
    since: datetime

    @property
    def sentence(self) -> str:
        names = sorted(self.nodes)
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        how = ", ".join(f"{many} {word}" for word, many in sorted(Counter(self.nodes.values()).items()))
        return (
            f"{len(names)} of {self.total} nodes of {self.scope} went bad within {format_duration(self.within_s)}, "
            f"more than {self.limit}: {shown} ({how}), the first at {self.since.astimezone(UTC):%Y-%m-%d %H:%M UTC}"
        )


def symptom(
    desired: Desired,
    seen: Observed,
    rules: IgnoreRules,
    *,
    in_no_cluster: bool = False,
    signals: SignalCache | None = None,
) -> str | None:
    """Return how a node is bad, in a word or two; "" when it is not, None when that can't be told, or is expected.

    `in_no_cluster`: a teardown took it out of its cluster, so it is expected not to be ready; a fault counts as ever.
    `signals`: shared with others that ask what nodes show.
    """
    member = seen.member
    joined = desired.profile.membership is not None
    if isinstance(seen.hot, Answered) and seen.hot.value.power is Power.OFF and isinstance(seen.host, Silent):
        return "powered off"
    if _unreached(seen.hot) and _unreached(seen.host):
        return "unreachable"
    out = joined and isinstance(member, Answered) and (member.value is None or member.value.ready is False)
    if out and not in_no_cluster:
        return NOT_READY
    if is_unread(seen):
        return None
    for signal in (signals or SignalCache()).of(desired.profile, seen):
        lasts = signal.rule.lasts_s  # it may be over in a moment, and an incident of its domain is told apart
        if signal.effect is not Effect.REPORTS and not lasts and rules.match(desired, signal.path) is None:
            return signal.name
    lost = isinstance(member, Silent) and member.reason is not UnknownReason.NOT_ASKED
    return None if out or (joined and lost) else ""


def bad_nodes(
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord] = NO_RECORDS,
    signals: SignalCache | None = None,
) -> Mapping[str, str | None]:
    """Return the active nodes that are bad now, whatever the cause, and how; None: that can't be told, or is expected.

    `records`: of those that a teardown may have taken out of their cluster. `signals`: as of `symptom`.
    """
    found = {}
    rules = IgnoreRules(fleet.settings.ignore, observation.finished_at)
    for name, seen in observation.nodes.items():
        desired = fleet.nodes.get(name)
        if desired is None or desired.state is not NodeState.ACTIVE:
            continue
        expected = name in records and NO_CLUSTER in records[name].silent_since
        look = partial(symptom, desired, seen, rules, in_no_cluster=expected, signals=signals)
        how = of_its_own(name, "looking for a storm", look, _cannot_tell)
        if how != "":
            found[name] = how
    return found


def _cannot_tell(_crash: Crash) -> None:
    return None


def bad_since(record: NodeRecord) -> datetime | None:
    """Return when the node was first seen to be bad; None: it was not, or it has been admitted again since."""
    noted = record.silent_since.get(BAD)
    if noted is None or any(a.action == "admit" and a.outcome == "done" and a.at >= noted for a in record.attempts):
        return None
    return noted


def storm(
    fleet: Fleet,
    observation: Observation,
    bad: Mapping[str, str | None],
    records: Mapping[str, NodeRecord],
    holds: Holds,
    now: datetime,
) -> Storm | None:
    """Return the storm that the fleet is in, or None. Of several, the one with most nodes in the smallest scope.

    `bad`: what `bad_nodes` found. `records`: at least those of these nodes.
    """
    brake = fleet.settings.brake
    window = timedelta(seconds=brake.within_s)
    news: dict[str, datetime] = {}
    bad_now = {name: how for name, how in bad.items() if how}
    for name in bad_now:
        desired, record = fleet.nodes[name], records.get(name) or NodeRecord(name)
        since = bad_since(record) or now
        if since < now - window or not _served(desired, record) or held(desired, record, holds, now) is not None:
            continue
        if not _was_out(observation.nodes[name], since) and not _was_worked_on(record, since, window):
            news[name] = since
    if len(news) < min(LEAST_OF_FLEET, LEAST_OF_DOMAIN):
        return None
    trips = [
        Storm(scope, {n: bad_now[n] for n in names}, total, limit, brake.within_s, min(news[n] for n in names))
        for scope, names, total, limit, least in _scopes(fleet, news)
        if _exceeds(limit, len(names), total, least)
    ]
    return min(trips, key=lambda trip: (-len(trip.nodes), trip.total, trip.scope), default=None)


def _scopes(fleet: Fleet, news: Mapping[str, Any]) -> Iterator[tuple[str, list[str], int, str, int]]:
    """Yield (scope, nodes that went bad, number of active nodes, limit, fewest) for the fleet and its domains."""
    totals: Counter[tuple[str, str]] = Counter()
    members: dict[tuple[str, str], list[str]] = {}
    active = [node for node in fleet.nodes.values() if node.state is NodeState.ACTIVE]
    for node in active:
        totals.update(node.domains.items())
        if node.node in news:
            for domain in node.domains.items():
                members.setdefault(domain, []).append(node.node)
    brake = fleet.settings.brake
    yield "the fleet", sorted(news), len(active), brake.fleet, LEAST_OF_FLEET
    for domain, names in sorted(members.items()):
        yield " ".join(domain), names, totals[domain], brake.domain, LEAST_OF_DOMAIN


def _exceeds(limit: str, count: int, total: int, least: int) -> bool:
    """Return whether `count` is more than the limit, without rounding: 2 of 3 are more than 50%. A count is a count."""
    given = limit.strip()
    if not given.endswith("%"):
        return count > int(given)
    return count >= least and count * 100 > int(given[:-1]) * total


def _unreached(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason in _UNREACHED


def _served(desired: Desired, record: NodeRecord) -> bool:
    """Return whether the ledger knows of a time at which the node was well: one that never worked has not gone bad."""
    if record.malformed:
        return False
    return (
        (record.serial or record.uuid) is not None
        if desired.profile.membership is None
        else "cluster.member" in record.applied
    )


def _was_out(seen: Observed, since: datetime) -> bool:
    """Return whether the node was taken out of service before it went bad. A mark set later is only the treatment."""
    member: Member | None = seen.member.value if isinstance(seen.member, Answered) else None
    if member is None:
        return False
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    if mark is None:
        return member.unschedulable or any(taint.key == MARK_TAINT for taint in member.taints)
    try:
        return datetime.fromisoformat(mark.at) <= since
    except (ValueError, TypeError):  # not a time, or none that can be compared: an annotation is text
        return True


def _was_worked_on(record: NodeRecord, since: datetime, window: timedelta) -> bool:
    """Return whether the node was being worked on when it went bad, or shortly before, and not admitted since."""
    for attempt in reversed(record.attempts):
        if attempt.outcome == "refused" or attempt.at > since:
            continue
        if (attempt.action, attempt.outcome) == ("admit", "done"):
            return False
        return attempt.ended_at is None or attempt.ended_at >= since - window
    return False
