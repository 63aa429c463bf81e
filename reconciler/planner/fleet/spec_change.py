"""The effect of a change of the spec: two plans from the same observation, compared (DESIGN 10).

One plan is of base, the other of what head wants (planner/fleet/revisions.py), so the change causes whatever differs.
Certificates are judged as if the node were as head wants it, and stored metrics by the bars of head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.gate.certificate import valid_until
from reconciler.gate.exchanged import fabric_of
from reconciler.model.change import BarFailure, Change, VoidCertificate
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.inputs import fingerprint
from reconciler.model.observed import Observation
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, Plan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern, Disruption, NodeState
from reconciler.planner.fleet.moved_bars import moved_bars
from reconciler.planner.fleet.permit import takes_out
from reconciler.planner.fleet.revisions import endpoint_changes, forgotten, joining, settings_edited
from reconciler.planner.node.certificate import MovedThresholds, certificate_flaws

_UNSETTLED = frozenset({BlockCode.UNKNOWN, BlockCode.UNDER_WAY, BlockCode.CRASHED})
_LEFT_ALONE = "the change adds this node: nobody contacts it before the change is merged"


def with_change(plan: Plan, head: Fleet, change: Change) -> Plan:
    """Return the plan of head with the effect of the change, and with the nodes that join, which are left alone."""
    nodes = {**plan.nodes, **{name: _left_alone(head.nodes[name], plan) for name in change.joining}}
    active = sum(head.nodes[name].state is NodeState.ACTIVE for name in change.joining)
    totals = replace(plan.totals, nodes_blocked=plan.totals.nodes_blocked + active)
    ordered = {name: nodes[name] for name in head.nodes if name in nodes}
    return replace(plan, nodes=ordered, totals=totals, change=change)


def _left_alone(desired: Desired, plan: Plan) -> NodePlan:
    return NodePlan(
        node=desired.node,
        pool=desired.pool,
        goal=Goal.NOTHING,
        situation=_LEFT_ALONE,
        in_service=None,
        observed_at=plan.created_at,
        incomplete=(),
        drift=(),
        actions=(),
        blocked=Blocked(BlockCode.JOINING, _LEFT_ALONE),
        wave=None,
        fingerprint=fingerprint("", {}, (), ()),
    )


def change_of(
    base: Fleet,
    head: Fleet,
    plans: tuple[Plan, Plan],
    observation: Observation,
    records: Mapping[str, NodeRecord],
    *,
    selected: Collection[str],
) -> Change:
    """Return what the plan of head does beyond that of base.

    `plans`: of base and of head, both without waves (`at_once`).
    `selected`: the names, at either revision, to tell of. `head`: as loaded, with its own endpoints.
    """
    before, after = plans
    shared = [name for name in after.nodes if name in before.nodes]
    pairs = [(before.nodes[name], after.nodes[name]) for name in shared]
    drift = _Drift.of(pairs)
    hit = {item.node for item in drift.caused}
    proofs = _Proofs(base, head, before, after, observation, records, after.created_at)
    affected = list(proofs.affected(shared))
    void, below, above, unmeasured = proofs.of(affected)
    paired = {new.node: (old, new) for old, new in pairs}
    bars, new_tests = moved_bars(base, head, affected, records, lambda name: _beyond(head.nodes[name], *paired[name]))
    return Change(
        base=base.source,
        head=head.source,
        caused=drift.caused,
        before=drift.before,
        removed=drift.removed,
        touched=_touched(pairs),
        gpu_hours_out=round(sum(_beyond(head.nodes[new.node], old, new) for old, new in pairs), 2),
        joining=tuple(name for name in joining(base, head) if name in selected),
        forgotten=tuple(name for name in forgotten(base, head) if name in selected),
        endpoints=tuple(
            change for change in endpoint_changes(base, head) if change.subject == "fleet" or change.subject in selected
        ),
        void_certificates=void,
        below_bar=below,
        above_bar=above,
        unmeasured=unmeasured,
        unseen=drift.unseen,
        set_by=_set_by(head, drift.caused),
        held_up=tuple(new.node for _, new in pairs if not new.actions and new.node in hit),
        unknown=tuple(_unknown(base, head, pairs)),
        states=_states(base, head, shared),
        settings=settings_edited(base, head),
        nodes=len(shared),
        bars=bars,
        new_tests=new_tests,
    )


def _unknown(base: Fleet, head: Fleet, pairs: Iterable[tuple[NodePlan, NodePlan]]) -> Iterator[str]:
    """Yield the nodes that the change edits and is not seen to touch, where what would show it was not read."""
    for old, new in pairs:
        before, after = base.nodes[new.node], head.nodes[new.node]
        values = [
            (node.profile.digest, node.serial, node.uuid, node.hostname, node.root_disk) for node in (before, after)
        ]
        if after.state is NodeState.ACTIVE and values[0] != values[1] and _added(old, new) is None:
            read = {item.path for item in new.drift if item.kind is DriftClass.UNKNOWN}
            if new.incomplete or read or (new.blocked is not None and new.blocked.code in _UNSETTLED):
                yield new.node


def _set_by(head: Fleet, items: Iterable[DriftItem]) -> Mapping[str, tuple[str, ...]]:
    """Return the lines of head that set each path, or what encloses it. Nodes may get a path from different lines."""
    found: dict[str, dict[str, None]] = {}
    known: dict[tuple[str, str], str] = {}
    for item in items:
        if _is_judged(item):
            continue
        node = head.nodes[item.node]
        key = (node.profile.digest, item.path)
        if key not in known or item.path in node.provenance:
            known[key] = _place(node, item.path)
        found.setdefault(item.path, {})[known[key]] = None
    return {path: tuple(place for place in sorted(places) if place) for path, places in sorted(found.items())}


def _place(node: Desired, path: str) -> str:
    while path:
        for table in (node.provenance, node.profile.provenance):
            if path in table:
                return str(table[path])
        path = path.rpartition(".")[0]
    return ""


def _states(base: Fleet, head: Fleet, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in names:
        state = head.nodes[name].state
        if state is not base.nodes[name].state:
            found.setdefault(state.value, []).append(name)
    return {state: tuple(nodes) for state, nodes in found.items()}


# --- drift ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Drift:
    caused: tuple[DriftItem, ...]
    before: tuple[DriftItem, ...]
    removed: tuple[DriftItem, ...]
    unseen: tuple[DriftItem, ...]

    @classmethod
    def of(cls, pairs: list[tuple[NodePlan, NodePlan]]) -> _Drift:
        caused: list[DriftItem] = []
        before: list[DriftItem] = []
        removed: list[DriftItem] = []
        unseen: list[DriftItem] = []
        for old, new in pairs:
            if old.drift == new.drift:  # as of most nodes
                before += [item for item in new.drift if item.kind in ACTIONABLE]
                continue
            was = {_same(item): item for item in old.drift if item.kind in ACTIONABLE}
            differs = {item.path for item in new.drift if item.kind in ACTIONABLE}
            unread = {item.path for item in old.drift if item.kind is DriftClass.UNKNOWN}
            for item in new.drift:
                if item.kind in ACTIONABLE:
                    known = was.get(_same(item))
                    (before if known else caused).append(known or item)
                elif item.kind is DriftClass.UNKNOWN and item.path not in unread:
                    unseen.append(item)
            removed += [item for item in old.drift if item.kind in ACTIONABLE and item.path not in differs]
        return cls(tuple(caused), tuple(before), tuple(removed), tuple(unseen))


def _same(item: DriftItem) -> tuple[str, str]:
    """Return the key of a difference: path and desired value; for a certificate and for health, the path only."""
    return item.path, "" if _is_judged(item) else repr(item.desired)


def _is_judged(item: DriftItem) -> bool:
    """Return whether it is our judgement of the node, and set nowhere in the spec, unlike a test."""
    return item.concern is Concern.HEALTH or item.path == "gate.certificate"


# --- blast radius ---------------------------------------------------------------------------------------------------


def _touched(pairs: list[tuple[NodePlan, NodePlan]]) -> Mapping[str, tuple[str, ...]]:
    found: dict[Disruption, list[str]] = {}
    for old, new in pairs:
        level = _added(old, new)
        if level is not None:
            found.setdefault(level, []).append(new.node)
    return {level.label: tuple(found[level]) for level in sorted(found, reverse=True)}


def _added(old: NodePlan, new: NodePlan) -> Disruption | None:
    """Return the worst disruption of what only head does to the node; None = it does nothing more."""
    if new.disruption > old.disruption:
        return new.disruption
    more = Counter((action.id, action.disruption) for action in new.actions)
    more.subtract(Counter((action.id, action.disruption) for action in old.actions))
    return max((disruption for (_, disruption), times in more.items() if times > 0), default=None)


def _beyond(desired: Desired, old: NodePlan, new: NodePlan) -> float:
    """Return the GPU-hours out of service that head costs and base does not; what head saves on others is no credit."""
    return max(0.0, _hours_out(new) - _hours_out(old)) * (desired.profile.inventory.gpus or 0)


def _hours_out(plan: NodePlan) -> float:
    if not takes_out(plan) and plan.disruption < Disruption.DRAIN:
        return 0.0
    return sum(action.estimate_s for action in plan.actions) / 3600


# --- certificates ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Proofs:
    """The effect of the change on certificates and stored measurements."""

    base: Fleet
    head: Fleet
    before: Plan
    after: Plan
    observation: Observation
    records: Mapping[str, NodeRecord]
    now: datetime

    def of(
        self, names: list[str]
    ) -> tuple[tuple[VoidCertificate, ...], tuple[BarFailure, ...], tuple[str, ...], tuple[str, ...]]:
        """Return what becomes of the proofs of the `affected` nodes."""
        void: list[VoidCertificate] = []
        below: list[BarFailure] = []
        above: list[str] = []
        unmeasured: list[str] = []
        known: dict[tuple[str, str], MovedThresholds] = {}
        for name in names:
            old, new = self.base.nodes[name].profile, self.head.nodes[name].profile
            bars = known.get((old.digest, new.digest))
            if bars is None:
                bars = known[old.digest, new.digest] = MovedThresholds.between(old.acceptance, new.acceptance)
            void += self._void(name, bars)
            certificate = self.records[name].certificate if name in self.records else None
            if not bars:
                continue
            reasons = bars.judge(certificate)
            if reasons is None or certificate is None:
                unmeasured.append(name)
            elif reasons:
                below.append(BarFailure(name, reasons, certificate.issued_at))
            else:
                above.append(name)
        return tuple(void), tuple(below), tuple(above), tuple(unmeasured)

    def affected(self, names: list[str]) -> Iterator[str]:
        """Yield the active nodes whose desired values or switches the change edits; no others count."""
        for name in names:
            old, new = self.base.nodes[name], self.head.nodes[name]
            edited = old.profile.digest != new.profile.digest or fabric_of(old.domains) != fabric_of(new.domains)
            if edited and old.state is NodeState.ACTIVE is new.state:
                yield name

    def _void(self, name: str, bars: MovedThresholds) -> Iterator[VoidCertificate]:
        old, new = self.base.nodes[name], self.head.nodes[name]
        record = self.records.get(name) or NodeRecord(name)
        certificate, seen = record.certificate, self.observation.nodes[name]
        if certificate is None or old.profile.acceptance is None:
            return
        if certificate_flaws(old, seen, self.before.nodes[name], certificate, self.now) != ():
            return
        found = certificate_flaws(new, seen, self.after.nodes[name], certificate, self.now)
        reasons = tuple(reason for reason in found or () if reason not in bars.reasons(certificate))
        if reasons:
            yield VoidCertificate(name, reasons, valid_until(certificate, old.profile.acceptance))
