"""Who may go, kept current while a run goes on: what changes is told, and nothing is counted anew.

What comes out is what `fleet_permit` and `fleet_rollouts` make of the same observation, plans and records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.diff.facts import Managed, managed
from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.plan import Blocked, NodePlan
from reconciler.model.records import NodeRecord, Rollout
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.budget import TimesTakenOut
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.planner import fleet_permit, serving
from reconciler.planner.fleet.rollout_member import RolloutMember, standing
from reconciler.planner.fleet.rollouts import Progress, Rollouts, rollouts
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.holds import Holds, end_of


class LivePermit:
    """Reserved nodes count as out, whatever is seen of them."""

    def __init__(
        self,
        fleet: Fleet,
        observation: Observation,
        *,
        now: datetime,
        taken: TimesTakenOut,
        plans: Collection[NodePlan] = (),
    ) -> None:
        self._fleet = fleet
        self._budget = fleet_permit(fleet, observation, now=now, taken=taken, plans=plans).budget
        self._reserved: set[str] = set()
        self._others: Mapping[str, bool] = dict(observation.control_plane)
        self._elected: dict[str, bool] = {}  # nodes of ours that are in the control plane
        for name, seen in observation.nodes.items():
            self._see_election(name, seen)

    def see(self, observed: Observed, plan: NodePlan | None = None) -> None:
        """`plan`: made of it; it tells whether the node is isolated only, and whether it waits for a person."""
        name = observed.node
        serves = serving(self._fleet, observed)
        self._budget.see(name, serves and name not in self._reserved)
        if plan is not None:
            if plan.isolated and name not in self._reserved:
                self._budget.isolate(name)
            self._budget.see_stuck(name, plan.waits_for_person)
        if self._see_election(name, observed):
            self._count_members()

    def see_control_plane(self, members: Mapping[str, bool]) -> None:
        self._others = dict(members)
        self._count_members()

    def _see_election(self, name: str, seen: Observed) -> bool:
        member = seen.member.value if isinstance(seen.member, Answered) else None
        if member is None or not member.control_plane or name not in self._fleet.nodes:
            return False
        self._elected[name] = bool(member.ready)
        return True

    def _count_members(self) -> None:
        self._budget.see_control_plane({**self._others, **self._elected})

    def reserve(self, node: str) -> None:
        """It is about to be taken out of service."""
        self._reserved.add(node)
        self._budget.charge(node)

    def isolate(self, node: str) -> None:
        """It is about to be isolated: it counts as out for all others from now on."""
        self._budget.see(node, False)
        self._budget.isolate(node)

    def release(self, observed: Observed, plan: NodePlan | None = None) -> None:
        self._reserved.discard(observed.node)
        self.see(observed, plan)

    def now(self, now: datetime, waves: Rollouts, brake: Blocked | None = None) -> Permit:
        settings = self._fleet.settings
        self._budget.move_to(now)
        return Permit(self._budget, Windows(settings.windows, settings.break_glass, now), now, waves, brake)


@dataclass(slots=True)
class _Pool:
    """`missing`: by wave, the members that it still waits for. `until`: when time alone may change something."""

    standings: dict[str, RolloutMember] = field(default_factory=dict)
    progress: Progress | None = None
    missing: dict[int, set[str]] = field(default_factory=dict)
    until: datetime | None = None
    stale: bool = True


class LiveRollouts:
    """A pool is gone through again when what was told of it may matter to somebody who waits."""

    def __init__(
        self,
        fleet: Fleet,
        observation: Observation,
        plans: Mapping[str, NodePlan],
        records: Mapping[str, NodeRecord],
        now: datetime,
    ) -> None:
        self._fleet = fleet
        self._tables: dict[str, tuple[Managed, ...]] = {}
        self._pools: dict[str, _Pool] = {}
        self._holds: Holds = {}
        for name, node in fleet.nodes.items():
            if node.state is NodeState.ACTIVE:
                record = records.get(name) or NodeRecord(name)
                found = self._standing(name, observation.nodes.get(name), plans.get(name), record, now)
                self._pools.setdefault(node.pool, _Pool()).standings[name] = found

    def _standing(
        self, name: str, observed: Observed | None, plan: NodePlan | None, record: NodeRecord, now: datetime
    ) -> RolloutMember:
        node = self._fleet.nodes[name]
        if node.profile.digest not in self._tables:
            self._tables[node.profile.digest] = managed(node.profile)
        return standing(node, self._tables[node.profile.digest], plan, record, serving(self._fleet, observed), now)

    def see(self, observed: Observed, plan: NodePlan | None, record: NodeRecord, now: datetime) -> None:
        """A node was worked on, or looked at."""
        name = observed.node
        pool = self._pools.get(self._fleet.nodes[name].pool)
        if pool is None or name not in pool.standings:
            return
        found = pool.standings[name] = self._standing(name, observed, plan, record, now)
        pool.stale = pool.stale or self._matters(pool, found)

    def begun(self, pool: str) -> None:
        """It is on record."""
        self._pools[pool].stale = True

    @staticmethod
    def _matters(pool: _Pool, found: RolloutMember) -> bool:
        """Not while others of its wave are missing still: the wave does not end, and none begins."""
        progress = pool.progress
        if progress is None:
            return bool(found.pending)
        wave = progress.wave_of.get(found.node)
        if wave is None or not found.settled or found.failed_since(progress.rollout.started_at):
            return True
        missing = pool.missing.get(wave, set())
        missing.discard(found.node)
        return not missing

    def now(self, kept: Mapping[str, Rollout], holds: Holds, now: datetime) -> Rollouts:
        anew = holds != self._holds
        self._holds = holds
        for name, pool in self._pools.items():
            if anew or pool.stale or (pool.until is not None and pool.until <= now):
                pool.progress = rollouts(self._fleet, pool.standings, kept, holds, now).by_pool.get(name)
                pool.missing = _missing(pool.progress)
                pool.until = _until(pool.progress, holds, now)
                pool.stale = False
        return Rollouts({name: pool.progress for name, pool in self._pools.items() if pool.progress is not None})


def _missing(progress: Progress | None) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name in progress.missing if progress is not None else ():
        wave = progress.wave_of.get(name) if progress is not None else None
        if wave is not None:
            found.setdefault(wave, set()).add(name)
    return found


def _until(progress: Progress | None, holds: Holds, now: datetime) -> datetime | None:
    """The next moment at which a bake or a hold ends."""
    ends: Collection[datetime | None] = [end_of(hold) for found in holds.values() for hold in found]
    waits: Iterable[datetime | None] = (one.until for one in (progress.waits.values() if progress is not None else ()))
    return min((end for end in (*ends, *waits) if end is not None and end > now), default=None)
