"""Spares: nodes kept certified and out of the work, of which one takes the place of each node that fails.

A spare is a node whose admission is withheld: it has all that service asks for, so admitting it is one write. Nothing
is ever taken out of service to become one: the spares are nodes that were out for another reason, and are ready. Nobody
swaps back, either: the node that failed becomes the spare when it is repaired. Who is kept follows from what is
observed (nodes kept + nodes failed <= the number wanted), so it outlives a crash and is the same for every runner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.health.table import Effect, HealthTable, health_table
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Observed
from reconciler.model.plan import Goal, NodePlan, SpareLine
from reconciler.model.records import IN_PLACE_OF
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Concern, NodeState
from reconciler.planner.fleet.isolation import is_retracted, isolating_mark
from reconciler.planner.fleet.live_permit import kept_as_spare
from reconciler.planner.node import conditions as c
from reconciler.planner.node.holds import Holds, retracted
from reconciler.planner.node.planner import NodePlanner
from reconciler.spec.kinds.signals import SignalClass

LONG_S = 600.0  # a repair that is expected to take longer is a failure; a boot alone takes less
_AT_LAST = frozenset({c.IN_SERVICE, c.RESERVED})


@dataclass(slots=True)
class _Persona:
    """The spares of one persona. `kept` and `failed`: nodes, in the order in which they were found to be so.

    `promoted`: node -> the failed one in whose place it goes into service, until it serves.
    """

    wanted: int
    total: int
    kept: dict[str, NodePlan | None] = field(default_factory=dict)  # None: it was not planned, so it stays as it is
    failed: dict[str, None] = field(default_factory=dict)
    promoted: dict[str, str] = field(default_factory=dict)

    @property
    def quota(self) -> int:
        return max(self.wanted - len(self.failed), 0)


class Spares:
    """Decides which nodes are kept as spares. `see` and `fail` keep it current, one node at a time.

    `before`: an earlier one, whose promotions may be under way still.
    """

    def __init__(self, fleet: Fleet, before: Spares | None = None) -> None:
        self._fleet = fleet
        self._table = health_table(fleet.settings.health)
        self._personas: dict[str, _Persona] = {}
        clustered = fleet.settings.cluster is not None
        for one in fleet.settings.reserves if clustered else ():
            total = sum(self._is_of(node, one.persona) for node in fleet.nodes.values())
            self._personas[one.persona] = _Persona(parse_nodes(one.nodes, total), total)
        for name, failed in before.promoted.items() if before is not None else ():
            if (persona := self._of(name)) is not None:
                persona.promoted[name] = failed
        self._failed_before = tuple(before.failed) if before is not None else ()

    @staticmethod
    def _is_of(node: Desired, persona: str) -> bool:
        return node.persona == persona and node.state is NodeState.ACTIVE and node.profile.membership is not None

    def _of(self, name: str) -> _Persona | None:
        node = self._fleet.nodes.get(name)
        found = None if node is None else self._personas.get(node.persona)
        return found if node is not None and found is not None and self._is_of(node, node.persona) else None

    # --- what is told ---

    def take(
        self,
        plans: Mapping[str, NodePlan],
        seen: Mapping[str, Observed],
        *,
        suspected: bool,
        unheeded: Collection[str] = (),
    ) -> None:
        """Take in the plans of a pass. `suspected`: nodes that are about to be isolated have failed already.

        `unheeded`: nodes whose isolation was retracted, which go back into service. A node without a plan counts as its
        mark says.
        """
        if not self._personas:
            return
        candidates = []
        for name in dict.fromkeys((*self._failed_before, *self._fleet.nodes)):  # who failed last is replaced last
            persona, plan = self._of(name), plans.get(name)
            if persona is None:
                continue
            if plan is None:
                self._take_unplanned(name, persona, seen.get(name))
            elif has_failed(plan, spare=kept_as_spare(self._fleet, seen.get(name))) or (suspected and plan.isolation):
                persona.failed[name] = None
            elif _may_be_kept(plan) and name not in unheeded:
                candidates.append((_rank(plan, seen.get(name), self._fleet), name, plan, persona))
            else:
                persona.promoted.pop(name, None)
        for _, name, plan, persona in sorted(candidates, key=lambda found: found[:2]):
            most = persona.wanted if kept_as_spare(self._fleet, seen.get(name)) else persona.quota
            if name not in persona.promoted and len(persona.kept) < most:
                persona.kept[name] = plan
        for persona in self._personas.values():
            self._balance(persona)

    def _take_unplanned(self, name: str, persona: _Persona, observed: Observed | None) -> None:
        if kept_as_spare(self._fleet, observed):
            persona.kept[name] = None
        elif observed is not None and isolating_mark(observed) is not None:
            persona.failed[name] = None

    def see(self, plan: NodePlan) -> None:
        """Take in a newer plan of one node, made without regard to spares or as that of one."""
        name = plan.node
        persona = self._of(name)
        if persona is None:
            return
        if has_failed(plan, spare=name in persona.kept):
            self.fail(name)
            return
        persona.failed.pop(name, None)
        if not _may_be_kept(plan):
            persona.kept.pop(name, None)
            persona.promoted.pop(name, None)
        elif name in persona.kept or (name not in persona.promoted and len(persona.kept) < persona.quota):
            persona.kept[name] = plan
        self._balance(persona)

    def fail(self, name: str) -> None:
        """Take in that a node has failed: it is about to be isolated, or is out of service and ill."""
        if (persona := self._of(name)) is not None:
            persona.kept.pop(name, None)
            persona.promoted.pop(name, None)
            persona.failed.setdefault(name)
            self._balance(persona)

    def _balance(self, persona: _Persona) -> None:
        """Promote spares until those kept and those that failed are no more than are wanted."""
        while len(persona.kept) > persona.quota:
            taken = set(persona.promoted.values())
            failed = next((name for name in reversed(persona.failed) if name not in taken), "")
            sound = {
                name: plan for name, plan in persona.kept.items() if plan is not None and is_sound(plan, self._table)
            }
            if not sound:
                return  # what is marginal stays where it is, until it is certified anew
            name = min(sound, key=lambda one: (not _is_ready(sound[one]), -self._near(one, failed, persona), one))
            del persona.kept[name]
            persona.promoted[name] = failed

    def _near(self, spare: str, failed: str, persona: _Persona) -> int:
        """Return how many failure domains a spare shares with the failed node, but for those that fail as a whole."""
        nodes = self._fleet.nodes
        if failed not in nodes:
            return 0
        ill = [tuple(nodes[name].domains.items()) for name in persona.failed]
        lost = {one for domains in ill for one in domains if sum(one in other for other in ill) > 1}
        return len((nodes[spare].domains.items() & nodes[failed].domains.items()) - lost)

    # --- what is asked ---

    @property
    def kept(self) -> frozenset[str]:
        """The nodes that are kept out of the work, or will be as soon as they are ready."""
        return frozenset(name for persona in self._personas.values() for name in persona.kept)

    @property
    def promoted(self) -> Mapping[str, str]:
        """The nodes that go into service in place of failed ones (whose names may be ""), until they serve."""
        return {name: failed for persona in self._personas.values() for name, failed in persona.promoted.items()}

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(name for persona in self._personas.values() for name in persona.failed)

    def lines(self) -> tuple[SpareLine, ...]:
        found = []
        for name, one in sorted(self._personas.items()):
            ready = tuple(sorted(n for n, plan in one.kept.items() if plan is None or _is_ready(plan)))
            marginal = tuple(
                sorted(n for n, plan in one.kept.items() if plan is not None and not is_sound(plan, self._table))
            )
            found.append(
                SpareLine(
                    name, one.wanted, one.total, ready, tuple(sorted(one.kept.keys() - set(ready))), marginal,
                    tuple(sorted(one.failed)), tuple(sorted(one.promoted.items())),
                )
            )  # fmt: skip
        return tuple(found)


def has_failed(plan: NodePlan, *, spare: bool) -> bool:
    """Return whether a node is out of service with evidence of illness, for a person, or for a long repair.

    `spare`: nobody misses it, so it may be repaired as long as it takes. A gate that is all that is left is no repair:
    it comes after planned changes too, and so does a node that is not Ready yet.
    """
    if plan.in_service is not False or plan.goal in (Goal.NOTHING, Goal.CONVERGED_CORDONED, Goal.DECOMMISSIONED):
        return False
    if plan.illness or plan.goal is Goal.ISOLATED or plan.waits_for_person:
        return True
    if any(
        why.startswith("health.") for action in plan.actions for why in action.because
    ):  # host_down, which no part shows
        return True
    drifted = any(
        item.kind is DriftClass.DRIFTED and item.concern not in (Concern.GATE, Concern.CLUSTER) for item in plan.drift
    )
    return drifted and not spare and sum(action.estimate_s for action in plan.actions) > LONG_S


def _may_be_kept(plan: NodePlan) -> bool:
    """Return whether only admission is wanting in the end: then the node may be kept out of service."""
    if plan.in_service is not False:
        return False
    admitted = plan.goal is Goal.IN_SERVICE and bool(plan.actions) and c.IN_SERVICE in plan.actions[-1].achieves
    return plan.goal is Goal.SPARE or admitted


def _is_ready(plan: NodePlan) -> bool:
    return all(not _AT_LAST.isdisjoint(action.achieves) for action in plan.actions)


def is_sound(plan: NodePlan, table: HealthTable) -> bool:
    """Return whether nothing speaks against a spare: no certificate that ends soon, and no sign of wear of its own.

    What is reported of a work load, a room or a moment is none. `table`: that of the fleet.
    """
    return not any(
        item.concern is Concern.GATE or (item.concern is Concern.HEALTH and _is_doubt(item, table))
        for item in plan.drift
        if item.kind is not DriftClass.IGNORED
    )


def _is_doubt(item: DriftItem, table: HealthTable) -> bool:
    rule = table.rule_at(item.path)
    if item.kind is not DriftClass.REPORTED or rule is None:
        return True
    return rule.effect is Effect.REPORTS and rule.row.cause in (SignalClass.PERSISTENT, SignalClass.TERMINAL)


def _rank(plan: NodePlan, observed: Observed | None, fleet: Fleet) -> tuple[bool, float]:
    """Rank who is kept first: who is a spare already, and then who is ready soonest."""
    return not kept_as_spare(fleet, observed), sum(action.estimate_s for action in plan.actions)


def as_spare(planner: NodePlanner, name: str) -> NodePlanner:
    """Return the planner by which that node is kept as a spare once it is ready."""
    return replace(planner, context=replace(planner.context, spares=frozenset({name})))


def promotion(plan: NodePlan, failed: str) -> NodePlan:
    """Return the plan of a spare that goes into service, whose admission names the node that failed."""
    because = (IN_PLACE_OF + failed,) if failed else (IN_PLACE_OF + "another",)
    return replace(
        plan,
        actions=tuple(replace(one, because=because) if c.IN_SERVICE in one.achieves else one for one in plan.actions),
    )


def unheeded(plans: Mapping[str, NodePlan], holds: Holds, now: datetime) -> frozenset[str]:
    """Return the isolated nodes whose evidence was retracted: they go back into service as they are."""
    signals = retracted(holds, now) if holds else frozenset[str]()
    return frozenset(name for name, plan in plans.items() if plan.isolated and is_retracted(plan, signals))
