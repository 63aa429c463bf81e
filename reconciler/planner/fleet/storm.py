"""The storm brake: many nodes that go bad at once have one cause, and treating them one by one is no cure (J5, C5).

A switch that fails makes a rack look dead; whoever power cycles it then, kills work that ran on. So when more than a
share of the fleet, or of one failure domain, goes bad within a while, nothing that disrupts begins, on nodes in service
or out of it, until somebody has looked and resumed.

Who has gone bad: a node that served, and that the cluster now calls not ready, that neither BMC nor host reach, that
is off, or whose host shows a fault of its hardware. Not who was out before, taken by us or by a person, nor who
went bad under our hands: their outage is no news. One silent BMC is no evidence at all.

What is counted are first sights, which the ledger keeps, so that a restart forgets nothing and passes may be far apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from reconciler.diff.ignore import IgnoreRules
from reconciler.health.signals import signals
from reconciler.health.table import Effect
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Answered, Member, Observation, Observed, Silent
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, NodeRecord, read_mark
from reconciler.model.units import format_duration
from reconciler.model.vocab import NodeState, Power, UnknownReason
from reconciler.planner.node.holds import Holds, held

BAD = "bad"  # under which the ledger keeps since when a node has been bad, beside its silent sources
LEAST_OF_FLEET = 3  # two nodes anywhere within minutes are a coincidence; a third is none
LEAST_OF_DOMAIN = 2  # one node is no storm, however small its rack
NAMED = 8
_UNREACHED = (UnknownReason.UNREACHABLE, UnknownReason.TIMEOUT)  # who refuses us or talks nonsense is there


@dataclass(frozen=True, slots=True)
class Storm:
    """`scope`: "the fleet" or "rack r1"; `total`: its active nodes; `limit`: as the spec says it.

    `nodes`: those that went bad -> how; `since`: when the first of them was seen so.
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


def bad(desired: Desired, seen: Observed, rules: IgnoreRules) -> str | None:
    """How a node is bad, in a word or two; "" when it is not, None when that can't be told."""
    member = seen.member
    joined = desired.profile.membership is not None
    if isinstance(seen.hot, Answered) and seen.hot.value.power is Power.OFF and isinstance(seen.host, Silent):
        return "powered off"
    if _unreached(seen.hot) and _unreached(seen.host):
        return "unreachable"
    if joined and isinstance(member, Answered) and (member.value is None or member.value.ready is False):
        return "not ready"
    for signal in signals(desired.profile, seen):
        if signal.effect is not Effect.REPORTS and rules.match(desired, signal.path) is None:
            return signal.name
    lost = isinstance(member, Silent) and member.reason is not UnknownReason.NOT_ASKED
    return None if joined and lost else ""


def gone_bad(fleet: Fleet, observation: Observation) -> Mapping[str, str | None]:
    """Active nodes that are bad now, whosever doing it is and since whenever, and how; None: that can't be told."""
    found = {}
    rules = IgnoreRules(fleet.settings.ignore, observation.finished_at)
    for name, seen in observation.nodes.items():
        desired = fleet.nodes.get(name)
        if desired is None or desired.state is not NodeState.ACTIVE:
            continue
        how = of_its_own(name, "looking for a storm", partial(bad, desired, seen, rules), _cannot_tell)
        if how != "":
            found[name] = how
    return found


def _cannot_tell(_crash: Crash) -> None:
    return None


def bad_since(record: NodeRecord) -> datetime | None:
    """When it was first seen to be bad; None: it was not, or we have brought it back since."""
    noted = record.silent_since.get(BAD)
    if noted is None or any(a.action == "admit" and a.outcome == "done" and a.at >= noted for a in record.attempts):
        return None
    return noted


def storm(
    fleet: Fleet,
    observation: Observation,
    gone: Mapping[str, str | None],
    records: Mapping[str, NodeRecord],
    holds: Holds,
    now: datetime,
) -> Storm | None:
    """`gone`: as `gone_bad` says; `records`: of these. Of several storms that which tells most: most nodes in least."""
    brake = fleet.settings.brake
    window = timedelta(seconds=brake.within_s)
    news: dict[str, datetime] = {}
    bad_now = {name: how for name, how in gone.items() if how}
    for name in bad_now:
        desired, record = fleet.nodes[name], records.get(name) or NodeRecord(name)
        since = bad_since(record) or now
        if since < now - window or not _served(desired, record) or held(desired, record, holds, now) is not None:
            continue
        if not _was_out(observation.nodes[name], since) and not _under_our_hands(record, since, window):
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
    """(scope, those of it that went bad, its active nodes, limit, fewest) of the fleet and of each domain concerned."""
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
    """More than the limit, and not rounded: 2 of 3 are more than 50%. A count is meant as it is said."""
    given = limit.strip()
    if not given.endswith("%"):
        return count > int(given)
    return count >= least and count * 100 > int(given[:-1]) * total


def _unreached(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason in _UNREACHED


def _served(desired: Desired, record: NodeRecord) -> bool:
    """Whether the ledger knows of a time at which it was well: what never worked has not gone bad."""
    if record.malformed:
        return False
    return record.serial is not None if desired.profile.membership is None else "cluster.member" in record.applied


def _was_out(seen: Observed, since: datetime) -> bool:
    """Whether somebody had taken it out of service before it went bad. A mark that came later is but the treatment."""
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


def _under_our_hands(record: NodeRecord, since: datetime, window: timedelta) -> bool:
    """Whether something was being done to it when it went bad, or had been shortly before, short of its admission."""
    for attempt in reversed(record.attempts):
        if attempt.outcome == "refused" or attempt.at > since:
            continue
        if (attempt.action, attempt.outcome) == ("admit", "done"):
            return False
        return attempt.ended_at is None or attempt.ended_at >= since - window
    return False
