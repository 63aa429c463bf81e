"""Workspaces of offline plans: a published observation takes the place of nodes, secrets and ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from reconciler.app.change_workspace import ChangeWorkspace, Revisions
from reconciler.app.clocks import RealClock, ScaledClock
from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.workspace import Workspace
from reconciler.converge.gate import AcceptanceGate
from reconciler.model.desired import Fleet
from reconciler.model.errors import SpecError, UsageError
from reconciler.model.observed import Observation
from reconciler.model.plan import Offline, Plan
from reconciler.model.ports import Recollection
from reconciler.model.published import Published
from reconciler.model.records import Hold, LedgerPlace, NodeRecord, Rollout
from reconciler.render.restore import Restored, restore


@dataclass(frozen=True, slots=True)
class PublishedLedger:
    """The published part of a ledger."""

    published: Published
    restored: Restored

    @property
    def id(self) -> str:
        return self.published.ledger

    @property
    def place(self) -> LedgerPlace:
        return LedgerPlace("published")

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        return {name: self.restored.records.get(name) or NodeRecord(name) for name in names}

    def known(self) -> Sequence[str]:
        return self.published.known

    def holds(self) -> Sequence[Hold]:
        return self.restored.holds

    def rollouts(self) -> Mapping[str, Rollout]:
        return self.restored.rollouts

    def durations(self, limit: int = 20_000) -> Sequence[tuple[str, str, str, float]]:
        return self.published.durations[:limit]


class OfflineWorkspace(Workspace):
    """The published state of a fleet, compared with the spec."""

    def __init__(self, request: FleetRequest, published: Published, frontend: Frontend) -> None:
        super().__init__(request, frontend)
        self.published = published

    @property
    def revisions(self) -> Sequence[Fleet]:
        """The revisions of the spec that published digests are compared with."""
        return (self.fleet,)

    @cached_property
    def restored(self) -> Restored:
        """The observation and the records, with values for digests. Raise UsageError when they are of another fleet."""
        ours = self.revisions[0].settings.fleet
        if self.published.fleet != ours:
            raise UsageError(f"the published observation is of fleet {self.published.fleet}, the spec is of {ours}")
        return restore(self.published, self._published_spec(), self.revisions)

    def _published_spec(self) -> Fleet | None:
        """Return the spec at the time of the observation, whose values the digests are of.

        None: it is not in this repository, or not valid.
        """
        if not self.published.spec_commit:
            return None
        try:
            return self.fleet_at(self.published.spec_commit)
        except (UsageError, SpecError):
            return None

    @cached_property
    def clock(self) -> RealClock | ScaledClock:
        scale, epoch = self.published.time_scale, self.published.epoch
        return RealClock() if scale == 1.0 or epoch is None else ScaledClock(scale, epoch)

    @property
    def time_scale(self) -> float:
        return self.published.time_scale

    @cached_property
    def gate(self) -> AcceptanceGate:
        return AcceptanceGate(self.published.keys.get)

    @contextmanager
    def memory(self) -> Iterator[Recollection]:
        yield PublishedLedger(self.published, self.restored)

    def observation_from(self, path: Path) -> Observation:  # noqa: ARG002 - it has been read already
        return self.restored.observation

    def make_plan(self, observation: Observation, ledger: Recollection, plan_id: str) -> Plan:
        made = super().make_plan(observation, ledger, plan_id)
        names = made.nodes.keys()
        unjudged = {
            path: affected
            for path, nodes in self.restored.unjudged.items()
            if (affected := tuple(n for n in nodes if n in names))
        }
        return replace(made, offline=Offline(self.published.finished_at, unjudged))


class OfflineChangeWorkspace(OfflineWorkspace, ChangeWorkspace):
    """The published state of a fleet, for the plan of a change between two revisions of its spec."""

    def __init__(self, request: FleetRequest, published: Published, change: Revisions, frontend: Frontend) -> None:
        ChangeWorkspace.__init__(self, request, change, frontend)
        self.published = published

    @property
    def revisions(self) -> Sequence[Fleet]:
        return self.base, self.head
