"""The HTML page of `report --html`, made of a pass over the nodes, the ledger and git."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler import __version__
from reconciler.app.documents import write_file
from reconciler.app.drift_report import drift_report
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.converge.status import node_status
from reconciler.drivers.git import origins
from reconciler.model.errors import Position, ReconcilerError
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.records import FLEET, JournalEntry
from reconciler.render.history import NodeHistory
from reconciler.render.html import Material, page

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

ENTRIES: Final = 60_000  # journal entries on the page, a size that browsers still load quickly
_FEWEST, _MOST = 4, 40  # entries of one node


@dataclass(frozen=True, slots=True)
class LatestPass:
    """A pass over the nodes and the plan made of it."""

    seen: Observation
    plan: Plan


def observe_for_report(workspace: Workspace, ledger: SqlLedger, file: Path | None) -> LatestPass:
    """Observe and plan as `drift` does, from the nodes or the observation in `file`, and record it in the ledger."""
    seen = workspace.observation(file)
    plan = workspace.look_into(seen, ledger, "report", now=file is None)
    ledger.end_run(plan.id, 0, f"{len(plan.nodes)} nodes looked at", workspace.clock.now())
    return LatestPass(seen, plan)


def write_page(
    workspace: Workspace, ledger: SqlLedger, found: LatestPass, report: PeriodReport | None, directory: Path
) -> Path:
    """Write index.html into `directory`, and return its path. Raise ReconcilerError when it can't be written."""
    plan = found.plan
    acting = under_way(ledger, workspace.clock.now())
    material = Material(
        workspace.fleet, found.seen, plan, drift_report(plan, found.seen), ledger.nodes(list(plan.nodes)),
        {name: node_status(node, acting=name in acting) for name, node in plan.nodes.items()},
        workspace.clock.now(), __version__, holds=tuple(ledger.holds()),
        origins=origins(workspace.fleet.source, _places(workspace, plan)),
        histories=_histories(workspace, ledger, plan), report=report,
        under_way={node: far for node, far in acting.items() if far and node in plan.nodes},
    )  # fmt: skip
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReconcilerError(f"{directory} can't be made: {error.strerror}") from error
    file = directory / "index.html"
    write_file(file, page(material))
    return file


def _places(workspace: Workspace, plan: Plan) -> set[Position]:
    """Return every line of the spec that sets a value of these nodes."""
    nodes = [workspace.fleet.nodes[name] for name in plan.nodes]
    profiles = {id(node.profile): node.profile.provenance for node in nodes}.values()
    return {place for values in (*profiles, *(node.provenance for node in nodes)) for place in values.values()}


def _histories(workspace: Workspace, ledger: SqlLedger, plan: Plan) -> Mapping[str, NodeHistory]:
    """Return the history of each node, with the holds and stops that concerned it."""
    most = min(max(ENTRIES // len(plan.nodes), _FEWEST), _MOST)
    pools = {f"pool/{node.pool}" for node in plan.nodes.values()}
    entries = ledger.histories([*plan.nodes, *pools, FLEET], most)
    runs = ledger.runs({entry.run for rows in entries.values() for entry in rows if entry.run})
    records, now = ledger.nodes(list(plan.nodes)), workspace.clock.now()

    def concerning(name: str) -> Iterator[JournalEntry]:
        for subject in (name, f"pool/{plan.nodes[name].pool}", FLEET):
            yield from entries.get(subject, ())

    histories = {}
    for name in plan.nodes:
        own = sorted(concerning(name), key=lambda entry: entry.at)
        if own:
            histories[name] = NodeHistory(name, records[name], (), own[-most:], runs, now, limited=len(own) >= most)
    return histories
