"""The `observe` and `drift` use cases: read the nodes, and compare them with the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.app.drift_report import drift_report
from reconciler.app.publish import redacted
from reconciler.app.recording import pools_of
from reconciler.app.workspace import Workspace
from reconciler.model.observed import Observation
from reconciler.model.recording import Recording
from reconciler.model.report import DriftReport
from reconciler.model.units import parse_nodes
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.render.observation import unanswered
from reconciler.render.record import of_drift


@dataclass(frozen=True, slots=True)
class DriftResult:
    """A drift report and its pass. `outage`: why this machine saw nothing, or "". `pools`: node -> pool."""

    report: DriftReport
    observation: Observation
    code: int
    outage: str
    pools: Mapping[str, str]

    def recording(self) -> Recording:
        """Return what --record saves of this report."""
        return of_drift(self.report, self.pools)


def observe(workspace: Workspace) -> Observation:
    """Read the selected nodes."""
    workspace.check_selection()
    return workspace.observe()


def is_tolerated(workspace: Workspace, observation: Observation) -> bool:
    """Return whether no more nodes are silent than Fleet.observation.tolerate allows."""
    names, _ = workspace.selection
    silent = unanswered(observation, names)
    return len(silent) <= parse_nodes(workspace.fleet.settings.tolerate, len(names))


def find_drift(
    workspace: Workspace, file: Path | None, exit_code: Callable[[DriftReport], int], *, redact: bool
) -> DriftResult:
    """Compare the nodes, or the observation in `file`, with the spec. A ledger that is there records it.

    `exit_code` is recorded with it.
    """
    seen = workspace.observation(file)
    with workspace.present_ledger(reading=False) as ledger:
        workspace.tell_missing(ledger)
        plan = workspace.look_into(seen, ledger, "drift", now=file is None)
        report = drift_report(plan, seen)
        if redact:
            report = redacted(report, workspace, seen, ledger)
        code = exit_code(report)
        ledger.end_run(plan.id, int(code), f"{len(report.items)} differences", workspace.clock.now())
    outage = observer_outage(workspace.watched, seen) or ""
    return DriftResult(report, seen, code, outage, pools_of(workspace.fleet, plan.nodes))
