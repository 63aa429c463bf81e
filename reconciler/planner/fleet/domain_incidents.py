"""Incidents of failure domains: what many nodes of a rack show at once is the rack's, and no node is treated for it.

A power feed, the cooling of a room, a switch: a signal that may come from outside of the node (`SignalRule.domains`)
and that enough nodes of one failure domain begin to show within ten minutes has one cause (pitfall J5). The ledger
keeps since when each node shows such a signal, and for ten minutes that it did, so that the last nodes of a rack that
recovers are not drained. Faults of GPUs have no such rule: several at once are each their node's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from reconciler.health.table import Group, HealthTable, health_table
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Observation, Observed
from reconciler.model.plan import Incident
from reconciler.model.records import BEGUN, SHARED, WAS_SHARED, NodeRecord
from reconciler.model.units import format_duration
from reconciler.model.vocab import NodeState
from reconciler.planner.node.signal_cache import SignalCache
from reconciler.planner.node.unhealed import unhealed_signals

WITHIN: Final = timedelta(minutes=10)
LEAST, OF_DOMAIN_PERCENT = 3, 10  # nodes that begin within that time, whichever is more
NAMED: Final = 8
_ENDLESS: Final = datetime.max.replace(tzinfo=UTC)
Domain = tuple[str, str]  # label, value


@dataclass(frozen=True, slots=True)
class Sign:
    """A node shows a signal that may come from outside of it. `until` None: it still does, as far as is known."""

    node: str
    path: str
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class DomainIncident:
    """`signs`: all that belong to it, the first ones first. `total`: active nodes of the domain."""

    group: Group
    domain: Domain
    signs: tuple[Sign, ...]
    total: int

    @property
    def scope(self) -> str:
        return " ".join(self.domain)

    @property
    def begun(self) -> datetime:
        return self.signs[0].since

    @property
    def ended(self) -> datetime | None:
        """When the last node was well again; None while one is not."""
        ends = [sign.until for sign in self.signs]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({sign.node for sign in self.signs}))

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted({sign.path for sign in self.signs}))


def threshold(total: int) -> int:
    """Return how many nodes of a domain with `total` active ones make an incident: max(3, 10 %), rounded up."""
    return max(LEAST, -(-total * OF_DOMAIN_PERCENT // 100))


def incidents(signs: Iterable[Sign], nodes: Mapping[str, Desired], table: HealthTable) -> tuple[DomainIncident, ...]:
    """Return the incidents that these signs make, each sign in one: in the domain where most nodes show it.

    Of domains with as many, such as a rack and its room, the smallest. `table`: that of the fleet.
    """
    active = {name: node for name, node in nodes.items() if node.state is NodeState.ACTIVE}
    rules = [(sign, rule) for sign in signs if sign.node in active and (rule := table.rule_at(sign.path)) is not None]
    if len({sign.node for sign, _ in rules}) < LEAST:
        return ()
    totals = Counter(domain for node in active.values() for domain in node.domains.items())
    left: dict[tuple[Group, Domain], list[Sign]] = {}
    for sign, rule in rules:
        for label, value in active[sign.node].domains.items():
            if any(fnmatchcase(label, pattern) for pattern in rule.domains):
                left.setdefault((rule.group, (label, value)), []).append(sign)
    found: list[DomainIncident] = []
    while made := [one for key, some in left.items() for one in _of(*key, some, totals[key[1]])]:
        found.append(min(made, key=lambda one: (-len(one.nodes), one.total, one.domain, one.group, one.begun)))
        taken = frozenset(found[-1].signs)
        left = {key: [sign for sign in some if sign not in taken] for key, some in left.items()}
    return tuple(sorted(found, key=lambda one: (one.begun, one.group, one.domain)))


def _of(group: Group, domain: Domain, signs: Sequence[Sign], total: int) -> Iterator[DomainIncident]:
    """Yield the incidents of one domain: enough nodes that begin together, and what begins before they are all over."""
    least, at = threshold(total), 0
    ordered = sorted(signs, key=lambda sign: (sign.since, sign.node, sign.path))
    while at < len(ordered):
        to = at
        while to < len(ordered) and ordered[to].since <= ordered[at].since + WITHIN:
            to += 1
        if len({sign.node for sign in ordered[at:to]}) < least:
            at += 1
            continue
        end = max(sign.until or _ENDLESS for sign in ordered[at:to])
        while to < len(ordered) and ordered[to].since <= end:
            end, to = max(end, ordered[to].until or _ENDLESS), to + 1
        yield DomainIncident(group, domain, tuple(ordered[at:to]), total)
        at = to


# --- now -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """The fleet as it is known now. `counts`: whether a signal of a node is neither ignored nor retracted."""

    fleet: Fleet
    observation: Observation
    records: Mapping[str, NodeRecord]
    now: datetime
    signals: SignalCache
    counts: Callable[[Desired, str], bool]


def active_incidents(look: Look) -> tuple[DomainIncident, ...]:
    """Return the incidents that are not over."""
    signs: list[Sign] = []
    for name, node in look.fleet.nodes.items():
        signs += of_its_own(name, "looking for an incident", partial(_signs_of, look, name, node), _no_signs)
    found = incidents(signs, look.fleet.nodes, health_table(look.fleet.settings.health)) if signs else ()
    return tuple(one for one in found if one.ended is None)


def _no_signs(_crash: Crash) -> tuple[Sign, ...]:
    return ()


def _signs_of(look: Look, name: str, node: Desired) -> tuple[Sign, ...]:
    return tuple(_signs(look, name, node)) if _may_show(look, name, node) else ()


def _may_show(look: Look, name: str, node: Desired) -> bool:
    """Return whether `_signs` has anything to look at: nearly all nodes are well, and were."""
    seen, record = look.observation.nodes.get(name), look.records.get(name)
    shows = seen is not None and look.signals.of(node.profile, seen)
    return bool(shows or (record is not None and record.silent_since))


def _signs(look: Look, name: str, node: Desired) -> Iterator[Sign]:
    """Yield what a node shows now, or may still show, or showed a while ago. What a person has looked at is its own."""
    seen, record = look.observation.nodes.get(name), look.records.get(name) or NodeRecord(name)
    shown: set[str] = set()
    if seen is not None:
        found = look.signals.of(node.profile, seen)
        earlier = unhealed_signals(node, seen, record, found) if record.silent_since else ()
        shown = {one.path for one in (*found, *earlier) if one.rule.domains}
    signs = [Sign(name, path, record.silent_since.get(SHARED + path, look.now)) for path in sorted(shown)]
    signs += _kept(record, seen, node, shown, look) if record.silent_since else ()
    looked = record.released_at
    yield from (one for one in signs if look.counts(node, one.path) and (looked is None or one.since > looked))


def _kept(
    record: NodeRecord, seen: Observed | None, node: Desired, shown: AbstractSet[str], look: Look
) -> Iterator[Sign]:
    for key, at in record.silent_since.items():
        if key.startswith(SHARED) and (path := key.removeprefix(SHARED)) not in shown:
            if seen is None or _is_unread(path, node, seen, look.signals):
                yield Sign(record.node, path, at)
        elif key.startswith(WAS_SHARED) and at > look.now - WITHIN:
            path, _, begun = key.removeprefix(WAS_SHARED).partition(BEGUN)
            yield Sign(record.node, path, datetime.fromisoformat(begun), at)


def _is_unread(path: str, node: Desired, seen: Observed, signals: SignalCache) -> bool:
    unread = signals.unread(node.profile, seen)
    return bool(unread) and path.startswith(unread)


def by_node(found: Iterable[DomainIncident]) -> Mapping[str, Mapping[str, str]]:
    """Return node -> value path of each signal that an incident explains -> its failure domain."""
    told: dict[str, dict[str, str]] = {}
    for one in found:
        for sign in one.signs:
            if sign.until is None:
                told.setdefault(sign.node, {})[sign.path] = one.scope
    return told


def as_incident(one: DomainIncident) -> Incident:
    shown = ", ".join(one.nodes[:NAMED]) + (f" and {len(one.nodes) - NAMED} more" if len(one.nodes) > NAMED else "")
    detail = (
        f"{len(one.nodes)} of {one.total} active nodes, {threshold(one.total)} of them within "
        f"{format_duration(WITHIN.total_seconds())}, the first at {one.begun.astimezone(UTC):%Y-%m-%d %H:%M} UTC: "
        f"{shown}. None is drained or treated for it while it lasts: look at what they share. Where a node is ill by "
        "itself, `reconciler hold NODE` and `reconciler release NODE` leave its signals to its own ladder"
    )
    return Incident(", ".join(one.paths), one.scope, one.nodes, detail, one.group.value)


# --- for the ledger --------------------------------------------------------------------------------------------------


def shared_updates(
    node: Desired, seen: Observed, record: NodeRecord, shown: AbstractSet[str], now: datetime, signals: SignalCache
) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on). `shown`: paths of signals that a domain may cause, as read now."""
    yield from ((SHARED + path, True) for path in sorted(shown) if SHARED + path not in record.silent_since)
    for key, at in record.silent_since.items():
        path = key.removeprefix(SHARED)
        if key.startswith(SHARED) and path not in shown and not _is_unread(path, node, seen, signals):
            yield key, False
            yield f"{WAS_SHARED}{path}{BEGUN}{at.isoformat()}", True
        elif key.startswith(WAS_SHARED) and at <= now - WITHIN:
            yield key, False
