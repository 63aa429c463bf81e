"""Plan one node: drift -> conditions -> goal -> the fewest actions, each with its reason."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.diff.compare import Comparer
from reconciler.health.cure import cure_of
from reconciler.health.table import table_of
from reconciler.model.crash import of_its_own
from reconciler.model.desired import Desired, Profile, Rung
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.inputs import fingerprint, key_of
from reconciler.model.observed import Answered, Observed, crash_in
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, PlannedAction
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Certainty, Concern, NodeState
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import NodeTraits, spec_of
from reconciler.planner.node.assessment import Assessment, assess
from reconciler.planner.node.backoff import backing_off
from reconciler.planner.node.catalogue import Catalogue, Row, catalogue
from reconciler.planner.node.conditions import Conditions, Context
from reconciler.planner.node.crash import stopped_by, unplanned
from reconciler.planner.node.decommission import subjects
from reconciler.planner.node.deprecated_apis import deprecated_items
from reconciler.planner.node.draining import busy, draining
from reconciler.planner.node.estimates import Estimates
from reconciler.planner.node.evaluate import test_items, with_drift
from reconciler.planner.node.fingerprint import own_inputs, shared_inputs
from reconciler.planner.node.gate_time import timed
from reconciler.planner.node.goals import (
    Situation,
    as_treatment,
    is_rung,
    isolate,
    may_heal,
    situation,
    taken_out,
    usable_rows,
)
from reconciler.planner.node.holds import Holds, retracted
from reconciler.planner.node.k3s_variants import k3s_stopped
from reconciler.planner.node.moment import Memo
from reconciler.planner.node.operands import operator_items
from reconciler.planner.node.reasons import no_path, reasons, starting_conditions, undrainable, unmet
from reconciler.planner.node.record import is_uneventful, isolating_signals
from reconciler.planner.node.remarks import with_remarks
from reconciler.planner.node.renewals import renewals
from reconciler.planner.node.retest import planned_reasons, planned_tests
from reconciler.planner.node.search import apply, harmless, search
from reconciler.planner.node.serving import serving_items
from reconciler.planner.node.signal_items import signal_items
from reconciler.planner.node.unknowns import incomplete
from reconciler.planner.node.why import Question

KUBELET_SERVICE = "host.services.kubelet"


@dataclass(frozen=True, slots=True)
class _Decision:
    """The situation of a node, and the actions that follow from it."""

    found: Situation
    rows: tuple[Row, ...]
    actions: tuple[PlannedAction, ...]


@dataclass(slots=True)
class NodePlanner:
    """Plans nodes one by one. Nodes of one profile share a catalogue, and in the same state they share the decision.

    `shared`: the inputs that equal nodes share, by the key under which their plans name them.
    """

    context: Context
    comparer: Comparer
    holds: Holds = field(default_factory=dict)
    estimates: Estimates = field(default_factory=Estimates)
    shared: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _catalogues: dict[Hashable, Catalogue] = field(default_factory=dict)
    _decisions: Memo[_Decision] = field(default_factory=Memo)
    _searches: dict[Hashable, tuple[Row, ...] | None] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def plan(self, desired: Desired, observed: Observed, record: NodeRecord) -> NodePlan:
        return self.plan_parts(desired, observed, record)[0]

    def plan_parts(self, desired: Desired, observed: Observed, record: NodeRecord) -> tuple[NodePlan, NodePlan | None]:
        """Return the whole plan, and the plan without the changes that wait for a rollout; None if that does nothing.

        A failure of our own code, here or when the node was read, blocks this node alone (invariant 22).
        """
        whole, rest = of_its_own(
            desired.node,
            "planning it",
            lambda: self._plan_parts(desired, observed, record),
            lambda crash: (unplanned(desired, observed, crash), None),
        )
        crash = crash_in(observed)
        return (stopped_by(crash, whole), None) if crash and desired.state is NodeState.ACTIVE else (whole, rest)

    def _plan_parts(self, desired: Desired, observed: Observed, record: NodeRecord) -> tuple[NodePlan, NodePlan | None]:
        assessment, items = self._look_at(desired, observed, record)
        state = with_drift(assessment, desired, items, record, self.context)
        decided = self._decide(desired, observed, record, state)
        whole = self._node_plan(desired, observed, record, items, state, decided)
        changed = tuple([item.path for item in items if item.kind is DriftClass.PENDING])
        if not changed:
            return whole, None
        state = with_drift(assessment, desired, _without_postponed(items, changed), record, self.context)
        decided = self._decide(desired, observed, record, state)
        if assessment.moved_tests and any(c.IN_SERVICE in row.breaks for row in decided.rows):
            # It goes out of service for something else: what brings it back is the gate of today.
            items = tuple([replace(i, kind=DriftClass.RENEWAL) if i.concern is Concern.GATE else i for i in items])
            changed = tuple([item.path for item in items if item.kind is DriftClass.PENDING])
            state = with_drift(assessment, desired, _without_postponed(items, changed), record, self.context)
            decided = self._decide(desired, observed, record, state)
        if whole.actions and not decided.actions and not decided.found.watched:
            return whole, None
        return whole, replace(self._node_plan(desired, observed, record, items, state, decided), postponed=changed)

    def _look_at(
        self, desired: Desired, observed: Observed, record: NodeRecord
    ) -> tuple[Assessment, tuple[DriftItem, ...]]:
        """Return the assessment of a node, and its drift but for health and a certificate to renew."""
        assessment = assess(desired, observed, record, self.context, self.comparer.rules, self._retracted())
        if assessment.leaving is not None:
            return assessment, ()  # what it differs in from the spec is of no account any more
        items = self.comparer.compare(desired, observed, record)
        return assessment, (
            *items,
            *test_items(desired, assessment, record, self.context),
        ) if assessment.moved_tests else items

    def _node_plan(
        self,
        desired: Desired,
        observed: Observed,
        record: NodeRecord,
        items: tuple[DriftItem, ...],
        state: Conditions,
        decided: _Decision,
    ) -> NodePlan:
        decided, blocked = self._in_the_pause(desired, observed, record, items, state, decided)
        found, actions = decided.found, decided.actions
        kept = () if desired.profile.image is None else desired.profile.image.preserve
        items = with_remarks(items, self._catalogue(desired, observed, state), state, kept)
        if desired.state is NodeState.ACTIVE:
            told = (*signal_items(desired, state, self.comparer.rules), *renewals(desired, state))
            items = (*items, *told, *operator_items(desired, state), *serving_items(desired, state))
            items = (*items, *deprecated_items(desired, observed, self.comparer.rules))
        shared = self.key(desired.profile) if actions else ""
        inputs = own_inputs(desired, observed, record) if actions else {}
        drain = draining(desired, observed, actions)
        return NodePlan(
            node=desired.node,
            pool=desired.pool,
            goal=found.goal,
            situation=found.sentence,
            in_service=None if c.IN_SERVICE in state.unknown else c.IN_SERVICE in state.true,
            observed_at=observed.hot.at,
            incomplete=incomplete(desired, observed, state),
            drift=items,
            actions=drain.actions,
            blocked=blocked or found.blocked,
            wave=0 if actions else None,
            fingerprint=fingerprint(shared, inputs, items, actions),
            shared=shared,
            inputs=inputs,
            isolated=() if state.mark is None else isolating_signals(record, state.mark),
            unmanaged_pods=drain.lost.unmanaged,
            local_pods=drain.lost.local,
            drain_waits=drain.waits,
        )

    def _retracted(self) -> frozenset[str]:
        return retracted(self.holds, self.context.now) if self.holds else frozenset()

    def key(self, profile: Profile) -> str:
        """Return the key of the inputs that nodes of this profile share, and keep these inputs in `shared`."""
        if profile.digest not in self._keys:
            table = shared_inputs(profile, self.context.settings, self.context.endpoints)
            self._keys[profile.digest] = key = key_of(table)
            self.shared[key] = table
        return self._keys[profile.digest]

    def _in_the_pause(
        self,
        desired: Desired,
        observed: Observed,
        record: NodeRecord,
        items: Sequence[DriftItem],
        state: Conditions,
        decided: _Decision,
    ) -> tuple[_Decision, Blocked | None]:
        """Return what to do now, and why that has to wait.

        While one action has to wait, those that no workload notices and that don't wait themselves go first: a boot of
        a node in service is proved although a setting of its BIOS does not hold.
        """
        found = decided.found
        blocked = self._backing_off(observed, record, decided.rows, decided.actions, items)
        if blocked is None or found.goal is not Goal.IN_SERVICE or found.rung is not None:
            return decided, blocked
        full = self._catalogue(desired, observed, state)
        start, left = starting_conditions(full, state), full.without(state.impossible)
        while rows := harmless(left, state.unknown, start, found.wanted):
            actions = self._explain(desired, observed, state, found, rows)
            waiting = {row.id for row in rows if self._backing_off(observed, record, (row,), actions, items)}
            if not waiting:
                return _Decision(found, rows, actions), None
            left = left.without(waiting)
        return decided, blocked

    def _backing_off(
        self,
        observed: Observed,
        record: NodeRecord,
        rows: Sequence[Row],
        actions: Sequence[PlannedAction],
        items: Sequence[DriftItem],
    ) -> Blocked | None:
        """Return why the actions that go now must wait. Later rungs are left out: they may never be needed."""
        if not record.attempts:
            return None
        now = {row.id for row in rows}
        boot_id = (observed.host.value.boot_id or "") if isinstance(observed.host, Answered) else ""
        drifted = {item.path for item in items if item.kind is DriftClass.DRIFTED}
        here = [action for action in actions if action.id in now]
        return backing_off(record, here, drifted, self.context.now, boot_id)

    def question(
        self, desired: Desired, observed: Observed, record: NodeRecord, *, postponed: Collection[str] = ()
    ) -> Question | None:
        """Return the search that chose the actions of a plan; None if it has none."""
        assessment, items = self._look_at(desired, observed, record)
        state = with_drift(assessment, desired, _without_postponed(items, postponed), record, self.context)
        decided = self._decide(desired, observed, record, state)
        found, rows = decided.found, decided.rows
        if not rows:
            return None
        full, wanted = self._catalogue(desired, observed, state), found.wanted
        start = starting_conditions(full, state)
        usable = usable_rows(full, state, found, record, self.context.now)
        if found.harmless_only or self._search(desired, usable, start, found) != rows:
            # The goal is out of reach: the actions achieve as much of it as no workload notices.
            usable, reached = (
                Catalogue(tuple(row for row in full.without(state.impossible).rows if row.harmless), ()),
                start,
            )
            for row in rows:
                reached = apply(full, row, reached)
            wanted &= reached
        return Question(usable, start, wanted, rows)

    def _decide(self, desired: Desired, observed: Observed, record: NodeRecord, state: Conditions) -> _Decision:
        """Decide what to do. Nodes of one profile in one state share this, unless holds or attempts set one apart."""
        held = record.holds or not self.holds.keys().isdisjoint(subjects(desired, record))
        alone = held or state.leaving or state.repair or record.malformed
        if alone or state.foreign_mark is not None or not is_uneventful(record):
            return self._make_decision(desired, observed, record, state)
        serving, fed = desired.serving is not None, _fed(desired)
        own = (busy(observed), _other(desired), k3s_stopped(observed), serving, desired.by_person, fed)
        key = (desired.profile.digest, desired.state, *own, state.key)
        return self._decisions.of(key, self.context.now, lambda: self._make_decision(desired, observed, record, state))

    def _make_decision(self, desired: Desired, observed: Observed, record: NodeRecord, state: Conditions) -> _Decision:
        found = situation(desired, record, self.holds, state, self.context.now)
        rows, found = self._choose(desired, observed, record, state, found)
        actions = self._explain(desired, observed, state, found, rows)
        return _Decision(found, rows, actions)

    def _catalogue(self, desired: Desired, observed: Observed, state: Conditions) -> Catalogue:
        clustered = self.context.settings.cluster is not None and desired.profile.membership is not None
        is_busy, stopped = busy(observed), k3s_stopped(observed)
        registered, cordoned = c.REGISTERED in state.true, state.foreign_cordon
        stuck = is_busy and KUBELET_SERVICE in state.because.get(c.HOST, ())
        leaving = None if state.leaving is None else (desired.serial, state.leaving.key())
        slot, at_stake = state.needs_installer == "", bool(state.because.get(c.QUIESCED))
        rotates = c.BMC_PASSWORD in state.because
        serving, fed = desired.serving is not None, _fed(desired)
        own = (leaving, slot, _other(desired), state.repair, stopped, rotates, serving, desired.by_person, fed)
        key = (desired.profile.digest, clustered, registered, is_busy, cordoned, stuck, at_stake, *own)
        if key not in self._catalogues:
            traits = NodeTraits(
                desired, clustered, registered, is_busy, cordoned, stuck, at_stake, state.leaving, slot, state.repair,
                stopped, rotates,
            )  # fmt: skip
            self._catalogues[key] = catalogue(traits)
        return self._catalogues[key]

    def _choose(
        self, desired: Desired, observed: Observed, record: NodeRecord, state: Conditions, found: Situation
    ) -> tuple[tuple[Row, ...], Situation]:
        if found.goal is Goal.NOTHING:
            return (), found
        full = self._catalogue(desired, observed, state)
        found = taken_out(found, full)
        if found.wanted <= state.true:
            return (), found
        start = starting_conditions(full, state)
        if found.harmless_only:
            return harmless(full.without(state.impossible), state.unknown, start, found.wanted), found
        rows = self._search(desired, usable_rows(full, state, found, record, self.context.now), start, found)
        if rows is None and found.goal is Goal.ISOLATED:  # it can't be drained: at least keep new work away
            found = replace(found, wanted=frozenset({c.MARKED}), sentence=found.sentence + undrainable(state))
            rows = self._search(desired, usable_rows(full, state, found, record, self.context.now), start, found)
        if rows is not None:
            return rows, found
        if found.rung is not None or state.tampered:
            evidence = state.tampered or found.sentence
            missing = unmet(state, found.wanted) + undrainable(state)
            found = taken_out(isolate(f"{evidence}; no way back into service: {missing}", BlockCode.NO_PATH), full)
            rows = self._search(desired, usable_rows(full, state, found, record, self.context.now), start, found)
            return rows or (), found
        rows = harmless(full.without(state.impossible), state.unknown, start, found.wanted)
        return rows, no_path(desired, state, found, full, record, self.context)

    def _search(
        self, desired: Desired, usable: Catalogue, start: frozenset[str], found: Situation
    ) -> tuple[Row, ...] | None:
        rows = tuple((row.id, row.requires, row.achieves) for row in usable.rows)
        key = (desired.profile.digest, start, found.wanted, rows)
        if key not in self._searches:
            self._searches[key] = search(usable, start, found.wanted)
        return self._searches[key]

    def _explain(
        self, desired: Desired, observed: Observed, state: Conditions, found: Situation, rows: tuple[Row, ...]
    ) -> tuple[PlannedAction, ...]:
        if not rows:
            return ()
        full = self._catalogue(desired, observed, state)
        because_of = reasons(full, state, found, rows)
        actions: list[PlannedAction] = []
        predicted = False
        acceptance = desired.profile.acceptance
        for at, (row, because) in enumerate(zip(rows, because_of, strict=True)):
            if c.GATE in row.achieves and acceptance is not None:
                because = planned_reasons(acceptance, rows[:at], because)
            uncertain = predicted or bool(set(row.achieves) & set(state.explained))
            action = self._action(desired, row, because, uncertain)
            if c.GATE in row.achieves and acceptance is not None and desired.other_tests is None:
                action = timed(action, acceptance, state.asked_tests | planned_tests(acceptance, rows[:at]))
            actions.append(action)
            # What follows a boot, a flash or a treatment can be observed only after it has happened.
            predicted = predicted or bool(row.reboots) or spec_of(row.name).flashes
            if found.rung is not None and is_rung(found, row):
                actions += self._later_rungs(desired, full, found.rung, state)
        return tuple(actions)

    def _later_rungs(self, desired: Desired, full: Catalogue, first: Rung, state: Conditions) -> list[PlannedAction]:
        """Return the later rungs of the ladder: approving a treatment approves what follows if it does not help."""
        policy = desired.profile.remediation
        assert policy is not None, "a rung comes from a policy"
        cure = cure_of(table_of(desired.profile), state.own_signals)
        later = policy.ladder[policy.ladder.index(first) + 1 :]
        may = [one.action for one in later if one.action != first.action and may_heal(one.action, cure)]
        rows = {row.name: row for row in full.rows if not spec_of(row.name).of_service or row.target == cure.service}
        why = (f"if {first.action} does not help",)
        return [self._action(desired, as_treatment(rows[name]), why, True) for name in may if name in rows]

    def _action(self, desired: Desired, row: Row, because: tuple[str, ...], predicted: bool) -> PlannedAction:
        measured = self.estimates.of(desired.profile.inventory, row.name, row.target)
        return PlannedAction(
            name=row.name,
            target=row.target,
            concern=row.concern,
            because=because,
            disruption=row.disruption,
            estimate_s=row.seconds if measured is None else measured.median_s,
            certainty=Certainty.PREDICTED if predicted else Certainty.EXACT,
            requires=row.requires,
            achieves=row.achieves,
            breaks=row.breaks,
            p90_s=None if measured is None else measured.p90_s,
        )


def _without_postponed(items: tuple[DriftItem, ...], postponed: Collection[str]) -> tuple[DriftItem, ...]:
    """Return the items but for those under `postponed`: paths that the spec changed and that a rollout holds back."""
    return tuple([item for item in items if item.path not in postponed]) if postponed else items


def _fed(desired: Desired) -> tuple[str, ...] | None:
    return desired.cut_with if desired.outlets else None


def _other(desired: Desired) -> str:
    return "" if desired.other_tests is None else desired.other_tests.name
