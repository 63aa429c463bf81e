"""Plan the passes of one leader: each costs what changed since the one before it.

Plans of nodes that do nothing are kept between passes (planner/node/kept_plans.py), and nodes that had no news are not
asked for any (planner/fleet/quiet_nodes.py). Once an hour every node is asked and planned anew as well, and the two
plans are compared. Where they differ, the new one is carried out, all that was kept is dropped, and people are told: it
is a bug of the reconciler, which a kept plan would go on hiding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from reconciler.converge.events import LoopTold, Progress
from reconciler.converge.observation_pass import ObservationPass
from reconciler.converge.observer import places_of
from reconciler.converge.pass_messages import PassMessages
from reconciler.model.desired import Fleet
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.ports import Clock, Ledger, Metrics
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import DriftMode
from reconciler.planner.fleet.plan_request import PlanRequest, records_needed, take_snapshot
from reconciler.planner.fleet.planner import plan_ahead, plan_with_planner
from reconciler.planner.fleet.quiet_nodes import QuietNodes
from reconciler.planner.node.estimates import Estimates, estimates
from reconciler.planner.node.kept_plans import KeptPlans
from reconciler.planner.node.planner import NodePlanner
from reconciler.planner.node.shard_plans import ShardPlanner

WHOLE_EVERY_S = 3600.0  # of the fleet's time
NAMED = 5  # nodes that the message names

Signatures = Mapping[tuple[str, str], bool | None]  # as for `plan_fleet`
_Durations = Sequence[tuple[str, str, str, float]]


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """A pass whose observation was planned. `known`: nodes with applied values; `planner` plans single nodes anew."""

    look: ObservationPass
    plan: Plan
    planner: NodePlanner
    known: Sequence[str]

    @property
    def barred(self) -> str:
        """Why nothing may begin, whatever is planned."""
        return self.look.outage or self.mode

    @property
    def mode(self) -> str:
        """Why nothing may begin by the spec's drift mode, unless somebody approves it."""
        return _mode(self.look.fleet)

    @property
    def refused(self) -> str:
        """Why nothing that was planned may begin."""
        return f"the plan is refused: {'; '.join(self.plan.refused)}" if self.plan.refused else ""


class PassPlanner:
    """Learns and plans from the observations of one leader, pass after pass."""

    def __init__(self, ledger: Ledger, clock: Clock, metrics: Metrics, progress: Progress) -> None:
        self.messages = PassMessages(progress)
        self.kept = KeptPlans()
        self.quiet = QuietNodes()
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._progress = progress
        self._whole_due: float | None = None  # by the monotonic clock; None: the first pass asks and plans all anyway
        self._estimated: tuple[Fleet, _Durations, Estimates] | None = None

    def plan(self, fleet: Fleet, seen: Observation, idle: Sequence[str], signatures: Signatures) -> PlannedPass:
        """Learn and plan. `idle`: nodes that nobody works on, which were looked at."""
        records = records_of(fleet, self._ledger)
        look = ObservationPass(fleet, seen, idle, self._ledger, self._clock, records, self.kept.signals)
        self.messages.outage(look.outage)
        whole_is_due = not look.outage and self._whole_is_due()
        unlearnt = look.learn_anew(self.quiet, whole=whole_is_due)
        look.copy_holds()
        now = self._clock.now()
        request = PlanRequest(f"pass-{now:%Y%m%d-%H%M%S}", signatures, estimates=self._estimates(fleet))
        snapshot = take_snapshot(self._ledger, fleet, list(fleet.nodes))
        plan, planner = plan_with_planner(fleet, seen, snapshot, now, request, self.kept)
        wrong: dict[str, tuple[str, ...]] = {}
        if whole_is_due:
            whole, fresh = plan_with_planner(fleet, seen, snapshot, now, request)
            wrong = _differing(plan.nodes, whole.nodes)
            plan, planner = whole, fresh
        self._metrics.planned(self.kept.made, self.kept.served, len(wrong.keys() | unlearnt))
        if wrong or unlearnt:
            self.kept.drop()
            self.quiet = QuietNodes()
            self._tell(wrong, unlearnt)
        return PlannedPass(look, plan, planner, snapshot.known)

    async def plan_ahead(
        self, fleet: Fleet, seen: Observation, signatures: Signatures, workers: ShardPlanner | None
    ) -> None:
        """Have workers plan what nobody has planned yet; `plan` plans what is left. Without workers do nothing."""
        if workers is None:
            return
        now = self._clock.now()
        request = PlanRequest(f"ahead-{now:%Y%m%d-%H%M%S}", signatures)
        snapshot = take_snapshot(self._ledger, fleet, list(fleet.nodes))
        await plan_ahead(fleet, seen, snapshot, now, request, self.kept, places_of(fleet), workers)

    def _whole_is_due(self) -> bool:
        now, due = self._clock.monotonic(), self._whole_due
        if due is None or now >= due:
            self._whole_due = now + WHOLE_EVERY_S
        return due is not None and now >= due

    def _estimates(self, fleet: Fleet) -> Estimates:
        """Return how long actions take. It is worked out anew when the ledger tells of others, or the spec is new."""
        durations = self._ledger.durations()
        known = self._estimated
        if known is None or known[0] is not fleet or known[1] is not durations:
            known = self._estimated = fleet, durations, estimates(fleet, durations)
        return known[2]

    def _tell(self, wrong: Mapping[str, tuple[str, ...]], unlearnt: frozenset[str]) -> None:
        differ = [f"{name} ({', '.join(names)})" for name, names in sorted(wrong.items())]
        found = [f"plans that were kept between passes differ from new ones: {_named(differ)}"] if differ else []
        if unlearnt:
            found.append(
                f"what nodes show was learnt late, as they were taken for unchanged: {_named(sorted(unlearnt))}"
            )
        message = (
            f"{'; '.join(found)}. The new ones are carried out, and every node is asked and planned anew. This is a "
            "bug of the reconciler: please report it"
        )
        self._progress(LoopTold("kept_plans", message, problem=True, fields={"nodes": len(wrong.keys() | unlearnt)}))


def _named(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:NAMED]) + (f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else "")


def _differing(kept: Mapping[str, NodePlan], whole: Mapping[str, NodePlan]) -> dict[str, tuple[str, ...]]:
    """Return the nodes whose plans differ, each with the names of the fields."""
    names = [one.name for one in fields(NodePlan)]
    return {
        node: tuple([name for name in names if getattr(plan, name) != getattr(whole[node], name)])
        for node, plan in kept.items()
        if plan != whole[node]
    }


def records_of(fleet: Fleet, ledger: Ledger) -> Mapping[str, NodeRecord]:
    """Return the records of all nodes, and that of the fleet's changes."""
    return ledger.nodes(records_needed(fleet, list(fleet.nodes)))


def _mode(fleet: Fleet) -> str:
    """Return why nothing may begin, whatever is planned or seen, by the spec's drift mode."""
    if (mode := fleet.settings.drift_mode) is not DriftMode.CORRECT:
        done = "proposed for the spec" if mode is DriftMode.PROPOSE else "reported"
        return f"the spec's mode is {mode.value}: drift is {done} and left as it is"
    return ""
