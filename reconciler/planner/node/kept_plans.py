"""The plans of single nodes, kept from one pass of a leader to the next: most nodes are as they were.

Only what is pure and of one node is kept. Budgets, domains, waves, guards and the storm brake are decided from all
plans in each pass. Only plans that do nothing are kept, so what may be acted upon is always planned anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from reconciler.model.crash import of_its_own
from reconciler.model.desired import Desired
from reconciler.model.observed import Observed
from reconciler.model.plan import NodePlan, is_crashed
from reconciler.model.records import NodeRecord
from reconciler.planner.node.counted import rests, without_looks
from reconciler.planner.node.crash import unplanned
from reconciler.planner.node.moment import AT_ONCE, FOREVER, Horizon, Moment
from reconciler.planner.node.node_inputs import Basis, NodeInputs
from reconciler.planner.node.planner import NodePlanner
from reconciler.planner.node.signal_cache import SignalCache

_NONE: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class KeptPlan:
    """A plan that does nothing. It holds while no clock is before `clocks`, and none has come to `valid_until`."""

    seen: Observed
    inputs: NodeInputs
    clocks: tuple[datetime, ...]
    valid_until: datetime
    plan: NodePlan

    def serves(self, inputs: NodeInputs, seen: Observed, clocks: tuple[datetime, ...]) -> bool:
        holds = all(map(datetime.__le__, self.clocks, clocks)) and max(clocks) < self.valid_until
        return holds and (inputs == self.inputs or self._is_same_but_for_looks(inputs, seen))

    def _is_same_but_for_looks(self, inputs: NodeInputs, seen: Observed) -> bool:
        """Return whether nothing but looks at counters is another, as they are replaced when their windows are over.

        Nothing has risen since either look, so that the plan tells of neither.
        """
        plain, known = without_looks(inputs.record), without_looks(self.inputs.record)
        if plain != known or replace(inputs, record=plain) != replace(self.inputs, record=plain):
            return False
        return all(rests(inputs.desired, seen, one) for one in (inputs.record, self.inputs.record))


@dataclass(slots=True)
class KeptPlans:
    """Keeps the plans of nodes that do nothing. `made`, `served`: how many the latest pass made, and took from here."""

    signals: SignalCache = field(default_factory=SignalCache)
    made: int = 0
    served: int = 0
    unkept: set[str] = field(default_factory=set)  # nodes whose latest plan does something, or holds for a moment
    _basis: Basis | None = None
    _plans: dict[str, KeptPlan] = field(default_factory=dict)

    def begin(self, planner: NodePlanner, basis: Basis) -> KeptPlanner:
        """Begin a pass. What was kept on another basis is dropped."""
        if self._basis is None or not self._basis.serves(basis):
            self._plans.clear()
            self.unkept.clear()
            self.signals.keep(basis.fleet.nodes)
        self._basis, self.made, self.served = basis, 0, 0
        return KeptPlanner(self, self._plans, planner)

    def drop(self) -> None:
        """Drop all that is kept: the next pass plans every node."""
        self.signals.keep(())
        self._plans.clear()
        self.unkept.clear()
        self._basis = None


class KeptPlanner:
    """Plans nodes as `NodePlanner` does, in one pass, and makes only those plans that are not kept."""

    def __init__(self, kept: KeptPlans, plans: dict[str, KeptPlan], planner: NodePlanner) -> None:
        self._kept = kept
        self._plans = plans
        self._whole = planner.context
        self._now = planner.context.now
        self._horizon = Horizon()
        # Its own, as its decisions are made with moments in the place of clocks.
        self._planner = NodePlanner(
            planner.context, planner.comparer, planner.holds, planner.estimates, shared=planner.shared
        )

    def lacks(self, node: str) -> bool:
        """Return whether nobody has planned this node on this basis."""
        return node not in self._plans and node not in self._kept.unkept

    def put(self, desired: Desired, seen: Observed, record: NodeRecord, plan: NodePlan, valid_until: datetime) -> None:
        """Keep a plan that was made elsewhere of these inputs and at this time, and that does nothing."""
        inputs = NodeInputs.of(desired, seen, record, self._whole)
        clocks = (self._now, seen.hot.at, seen.host.at, seen.member.at)
        self._plans[desired.node] = KeptPlan(seen, inputs, clocks, valid_until, plan)

    def plan_parts(self, desired: Desired, seen: Observed, record: NodeRecord) -> tuple[NodePlan, NodePlan | None]:
        """Return what `NodePlanner.plan_parts` returns."""
        kept = self._plans.get(desired.node)
        if kept is not None and kept.seen is seen and self._is_untouched(kept, desired, record):
            self._kept.served += 1
            return kept.plan, None
        return of_its_own(
            desired.node,
            "planning it",
            lambda: self._plan_parts(kept, desired, seen, record),
            lambda crash: (unplanned(desired, seen, crash), None),
        )

    def _is_untouched(self, kept: KeptPlan, desired: Desired, record: NodeRecord) -> bool:
        """Return whether nothing can have changed, without a look at what was read: it is the very same reading."""
        known, context = kept.inputs, self._whole
        return (
            known.desired is desired
            and (known.record is record or known.record == record)
            and kept.clocks[0] <= self._now < kept.valid_until
            and known.incidents == context.of_domain.get(desired.node, _NONE)
            and known.rotates_password == (desired.node in context.passwords_to_rotate)
            and (not known.depends_on_others or known == NodeInputs.of(desired, kept.seen, record, context))
        )

    def _plan_parts(
        self, kept: KeptPlan | None, desired: Desired, seen: Observed, record: NodeRecord
    ) -> tuple[NodePlan, NodePlan | None]:
        inputs = NodeInputs.of(desired, seen, record, self._whole)
        clocks = (self._now, seen.hot.at, seen.host.at, seen.member.at)
        if kept is not None and kept.serves(inputs, seen, clocks):
            # The readings of now are held, and those of before are free to go.
            kept.seen, kept.inputs = seen, inputs
            if kept.plan.observed_at != seen.hot.at:
                kept.plan = replace(kept.plan, observed_at=seen.hot.at)
            self._kept.served += 1
            return kept.plan, None
        self._kept.made += 1
        whole, rest = self._made(inputs, seen)
        if whole.actions or rest is not None or is_crashed(whole) or self._horizon.until <= max(clocks):
            self._plans.pop(desired.node, None)
            self._kept.unkept.add(desired.node)
        else:
            self._kept.unkept.discard(desired.node)
            self._plans[desired.node] = KeptPlan(seen, inputs, clocks, self._horizon.until, whole)
        return whole, rest

    def _made(self, inputs: NodeInputs, seen: Observed) -> tuple[NodePlan, NodePlan | None]:
        """Plan a node from its inputs, and note in the horizon until when the plan holds."""
        horizon = self._horizon
        planned = inputs.observed(seen, horizon)
        self._planner.context = inputs.context(self._whole, Moment(self._now, horizon), planned)
        horizon.until = FOREVER
        whole, rest = self._planner.plan_parts(inputs.desired, planned, inputs.record)
        return self._plainly(whole, seen), None if rest is None else self._plainly(rest, seen)

    def _plainly(self, plan: NodePlan, seen: Observed) -> NodePlan:
        """Return the plan with instants in the place of moments. One that tells of a moment holds for that one only."""
        blocked = plan.blocked
        if blocked is not None and isinstance(blocked.until, Moment):
            self._horizon.until = AT_ONCE
            blocked = replace(blocked, until=blocked.until.instant)
        return replace(plan, observed_at=seen.hot.at, blocked=blocked)
