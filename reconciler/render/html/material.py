"""The documents and records that the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.model.desired import Fleet, LineOrigin
from reconciler.model.errors import Position
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.privacy import AllPublic, NodeName, PublicText
from reconciler.model.records import Hold, NodeRecord
from reconciler.model.report import DriftReport
from reconciler.model.status import NodeStatus
from reconciler.render.explanation import Explanation
from reconciler.render.history import NodeHistory


@dataclass(frozen=True, slots=True)
class Material:
    """The input of the page: planned nodes, their observation and their past.

    `histories`: the newest entries, for nodes that have any. `report`: the period behind; None: nothing is recorded.
    """

    fleet: Fleet
    observation: Observation
    plan: Plan
    drift: DriftReport
    records: Mapping[NodeName, NodeRecord]
    statuses: Mapping[NodeName, NodeStatus]
    now: datetime
    tool_version: PublicText
    holds: tuple[Hold, ...] = ()
    origins: AllPublic[Mapping[Position, LineOrigin]] = field(default_factory=dict)
    histories: Mapping[NodeName, NodeHistory] = field(default_factory=dict)
    report: PeriodReport | None = None
    under_way: Mapping[NodeName, PublicText] = field(default_factory=dict)  # how far, of nodes at work

    def explained(self, node: str) -> Explanation:
        """Return what `explain` shows of a node, so that the page says the same in the same words."""
        return Explanation(
            self.fleet,
            node,
            "",
            self.now,
            observation=self.observation,
            plan=self.plan,
            record=self.records.get(node),
            holds=self.holds,
            origins=self.origins,
            time_scale=self.plan.time_scale,
            under_way=self.under_way.get(node, ""),
        )
