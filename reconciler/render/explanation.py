"""The content of `explain`, before it is text: each value with its origin and with what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reconciler.diff.facts import Managed, managed
from reconciler.diff.installed import installed_rows
from reconciler.diff.readings import Missing
from reconciler.health.signals import watched_conditions
from reconciler.model.desired import Desired, Fleet, LineOrigin
from reconciler.model.drift import DriftItem
from reconciler.model.errors import Position, UsageError, did_you_mean
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.records import Hold, NodeRecord
from reconciler.model.reliability import Lemon
from reconciler.model.units import format_duration
from reconciler.model.vocab import Source
from reconciler.planner.node.estimates import Estimates
from reconciler.planner.node.why import Alternative
from reconciler.render.text import plain

_UNMANAGED = ("gate.", "health.", "trust.", "image.nonce")  # drift of what no line of a profile sets


@dataclass(frozen=True, slots=True)
class Explanation:
    """`observation`, `plan` and `record` are None when only the spec is explained. `path` "" = everything.

    `under_way`: how far an unfinished attempt is. `origins`: which commits set the lines that are shown.
    `alternatives`: by action, what there is without it. `lemon`: what it has cost in 28 days; None = nothing.
    """

    fleet: Fleet
    node: str
    path: str
    now: datetime
    observation: Observation | None = None
    plan: Plan | None = None
    record: NodeRecord | None = None
    holds: tuple[Hold, ...] = ()
    alternatives: Mapping[str, Alternative] = field(default_factory=dict)
    lemon: Lemon | None = None
    origins: Mapping[Position, LineOrigin] = field(default_factory=dict)
    estimates: Estimates = field(default_factory=Estimates)
    time_scale: float = 1.0
    under_way: str = ""

    @property
    def desired(self) -> Desired:
        return self.fleet.nodes[self.node]

    @property
    def observed(self) -> Observed | None:
        return None if self.observation is None else self.observation.nodes[self.node]

    @property
    def node_plan(self) -> NodePlan | None:
        return None if self.plan is None else self.plan.nodes[self.node]

    @property
    def alone(self) -> bool:
        """Return whether no other node was planned, so that nobody knows which nodes would go first."""
        return self.plan is not None and len(self.plan.nodes) < len(self.fleet.nodes)

    def ago(self, at: datetime) -> str:
        return f"{format_duration(max(0.0, (self.now - at).total_seconds()))} ago"


@dataclass(frozen=True, slots=True)
class Value:
    """`place` None: the default. `reading`: of the source that it was found in; None where nothing was looked at."""

    path: str
    wanted: Any
    place: Position | None
    origin: LineOrigin | None
    found: Any
    item: DriftItem | None
    source: Source | None
    reading: Answered[Any] | Silent | None

    @property
    def verdict(self) -> str:
        if self.item is None:
            return "as specified"
        since = f" since {self.item.first_seen:%Y-%m-%d %H:%M}" if self.item.first_seen else ""
        return self.item.kind.value + since + (f" ({plain(self.item.detail)})" if self.item.detail else "")


def within(path: str, asked: str) -> bool:
    return not asked or path == asked or path.startswith(asked + ".")


def values(made: Explanation) -> list[Value]:
    """Return the values at the path that was asked for. Raise UsageError when there are none."""
    everything = list(_all(made))
    found = [value for value in everything if within(value.path, made.path)]
    if made.path and not found:
        known = sorted({value.path for value in everything})
        stems = {path.partition(".")[0] for path in known}
        hint = did_you_mean(made.path, {*known, *stems}) or f"it has values of {', '.join(sorted(stems))}"
        raise UsageError(f"{made.node} has no managed value {made.path!r}; {hint}")
    return found


def _all(made: Explanation) -> Iterator[Value]:
    yield from own_values(made)
    yield from profile_values(made)
    yield from found_values(made)


def own_values(made: Explanation) -> Iterator[Value]:
    """Yield the values that the spec sets for this node alone."""
    desired, drift = made.desired, _drift(made)
    own = {
        "identity.serial": (desired.serial, Source.REDFISH),
        "identity.uuid": (desired.uuid, Source.REDFISH),
        "host.hostname": (desired.hostname, Source.SSH),
    }
    for path, (wanted, source) in own.items():
        if wanted is not None:
            item = drift.get(path)
            yield _value(made, path, wanted, item.observed if item else wanted, item, source)
    for row in installed_rows(desired):
        item = drift.get(row.path)
        if item is not None or made.observed is None or not isinstance(row.read(made.observed), Missing):
            yield _row_value(made, row, item)


def profile_values(made: Explanation) -> Iterator[Value]:
    """Yield the values that the spec sets for this node and its equals."""
    profile, drift = made.desired.profile, _drift(made)
    for row in managed(profile):
        yield _row_value(made, row, drift.get(row.path))
    for path in watched_conditions(profile):
        if path not in drift:
            unread = made.observed is None or isinstance(made.observed.member, Silent)
            yield _value(made, path, "absent", None if unread else "absent", None, Source.KUBERNETES)


def _row_value(made: Explanation, row: Managed, item: DriftItem | None) -> Value:
    seen = row.read(made.observed) if made.observed is not None else None
    found = None if isinstance(seen, Missing) else (item.observed if item else row.shown)
    return _value(made, row.path, row.shown, found, item, row.source)


def found_values(made: Explanation) -> Iterator[Value]:
    """Yield the findings that no line of the spec sets."""
    drift = _drift(made)
    for path, item in drift.items():
        if path.startswith(_UNMANAGED):
            yield _value(made, path, item.desired, item.observed, item, item.source)
    if made.plan is not None and made.desired.profile.acceptance is not None and "gate.certificate" not in drift:
        yield _value(made, "gate.certificate", "valid", "valid", None, Source.LEDGER)


def _drift(made: Explanation) -> Mapping[str, DriftItem]:
    plan = made.node_plan
    return {item.path: item for item in plan.drift} if plan is not None else {}


def _value(
    made: Explanation, path: str, wanted: Any, found: Any, item: DriftItem | None, source: Source | None
) -> Value:
    place = _place(made.desired, path)
    origin = made.origins.get(place) if place is not None else None
    return Value(path, wanted, place, origin, found, item, source, _reading(made, path, source))


def _place(desired: Desired, path: str) -> Position | None:
    """Return the most exact place that is known: of the value, of what holds it, or of the node's name."""
    for table in (desired.provenance, desired.profile.provenance):
        key = path
        while key:
            if key in table:
                return table[key]
            key = key.rpartition(".")[0]
    return desired.provenance.get("node")


_HOT = ("identity.", "hardware.manufacturer", "hardware.model")  # read each pass; the rest of Redfish less often


def _reading(made: Explanation, path: str, source: Source | None) -> Answered[Any] | Silent | None:
    seen = made.observed
    if seen is None:
        return None
    match source:
        case Source.REDFISH:
            return seen.hot if path.startswith(_HOT) else seen.inventory
        case Source.SSH:
            return seen.host
        case Source.KUBERNETES:
            return seen.member
        case Source.LEDGER | None:
            return None
