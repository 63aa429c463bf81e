"""Foretell from stored metrics which nodes fail the tests that the spec has changed, before one of them is drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.gate.asked import Shortfall, shortfalls
from reconciler.model.desired import Desired, Fleet
from reconciler.model.plan import NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.node.conditions import Context

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GateForecast:
    """The nodes in service that will fail a changed test, or of which that is not known."""

    below: Mapping[str, Shortfall]  # node -> the metric that misses its limit by most
    places: Mapping[str, str]  # node -> where the spec sets that limit
    judged: int  # nodes in service
    unmeasured: Mapping[str, tuple[str, ...]]  # where the spec sets a test or limit -> nodes without a metric of it

    @property
    def worst(self) -> str:
        """Return the end of a sentence about the node that misses its limit by most; "" if none does."""
        if not self.below:
            return ""
        node = max(self.below, key=lambda name: self.below[name].share)
        found = self.below[node]
        return (
            f"; by what was last measured, the worst is {node}: {found.test}: {found.metric} {found.value:g} misses "
            f"{found.limit:g} by {found.share:.1%} ({self.places[node]})"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each changed test of which some nodes have no metrics."""
        return tuple(
            f"no metrics of the changed test at {place} are stored for {len(names)} of {self.judged} nodes in service "
            f"({_named(names)}): whether they pass it is not known"
            for place, names in self.unmeasured.items()
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def gate_forecast(
    fleet: Fleet, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord], context: Context
) -> GateForecast:
    """Judge the stored metrics of the planned nodes by the tests that the spec has changed."""
    below: dict[str, Shortfall] = {}
    unmeasured: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    judged = 0
    for name, plan in plans.items():
        desired, record = fleet.nodes[name], records.get(name)
        acceptance = desired.profile.acceptance
        if record is None or acceptance is None or plan.in_service is False or desired.state is not NodeState.ACTIVE:
            continue
        judged += 1
        shared = context.of_profile(desired.profile)
        found = list(shortfalls(acceptance, shared.asked, shared.tests, record))
        missed = [one for one in found if one.value is not None]
        if missed:
            below[name] = worst = max(missed, key=lambda one: one.share)
            places[name] = _place(desired, worst)
        else:
            for place in dict.fromkeys(_place(desired, one) for one in found):
                unmeasured.setdefault(place, []).append(name)
    return GateForecast(below, places, judged, {place: tuple(names) for place, names in unmeasured.items()})


def _place(desired: Desired, found: Shortfall) -> str:
    """Return file, line and column of what a node lacks; the test's name where the spec's lines are not known."""
    at = desired.profile.provenance.get(found.place)
    return found.test if at is None else str(at)
