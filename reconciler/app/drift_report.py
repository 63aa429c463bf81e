"""The drift that a plan was made of, as a report."""

from __future__ import annotations

from collections import Counter

from reconciler import __version__
from reconciler.model.drift import TOLD
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.report import DRIFT_FORMAT, DriftReport


def drift_report(plan: Plan, observation: Observation) -> DriftReport:
    """Return the drift that a plan was made of."""
    items = tuple(item for node in plan.nodes.values() for item in node.drift)
    return DriftReport(
        format_version=DRIFT_FORMAT,
        tool_version=__version__,
        fleet=plan.fleet,
        source=plan.source,
        generated_at=plan.created_at,
        started_at=observation.started_at,
        finished_at=observation.finished_at,
        scope=plan.scope,
        incomplete=plan.incomplete,
        tolerated=plan.tolerated,
        changes=any(item.kind in TOLD for item in items),
        items=items,
        counts=dict(sorted(Counter(item.kind.value for item in items).items())),
        insecure=plan.insecure,
        time_scale=plan.time_scale,
        stopped=plan.stopped,
        braked=plan.braked,
        incidents=plan.incidents,
    )
