"""The HTML page: what a look at the nodes, the ledger and git tell, brought together and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler import __version__
from reconciler.app.session import drift_report
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import write_file
from reconciler.model.errors import Position, ReconcilerError
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.records import FLEET, JournalEntry
from reconciler.render.history import NodeHistory

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.drivers.ledger import SqlLedger

ENTRIES: Final = 60_000  # of all stories together: what a browser still reads at once
_FEWEST, _MOST = 4, 40  # of one


@dataclass(frozen=True, slots=True)
class Look:
    seen: Observation
    plan: Plan


def look(session: Session, ledger: SqlLedger, file: Path | None) -> Look:
    """As `drift` looks: at the nodes, or into the observation of a file. What it finds is kept in the ledger."""
    seen = session.observe() if file is None else session.observation_from(file)
    plan = session.look_into(seen, ledger, "report", now=file is None)
    ledger.end_run(plan.id, int(ExitCode.DONE), f"{len(plan.nodes)} nodes looked at", session.clock.now())
    return Look(seen, plan)


def write_page(
    session: Session, ledger: SqlLedger, found: Look, chronicle: PeriodReport | None, directory: Path
) -> Path:
    """DIRECTORY/index.html. ReconcilerError when it can't be written."""
    from reconciler.converge.status import node_status
    from reconciler.drivers.git import origins
    from reconciler.render.html import Material, page

    plan = found.plan
    acting = {node for _, node, *_ in ledger.unfinished()}
    material = Material(
        session.fleet, found.seen, plan, drift_report(plan, found.seen), ledger.nodes(list(plan.nodes)),
        {name: node_status(node, acting=name in acting) for name, node in plan.nodes.items()},
        session.clock.now(), __version__, holds=tuple(ledger.holds()),
        origins=origins(session.fleet.source, _places(session, plan)),
        histories=_stories(session, ledger, plan), report=chronicle,
    )  # fmt: skip
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReconcilerError(f"{directory} can't be made: {error.strerror}") from error
    file = directory / "index.html"
    write_file(file, page(material))
    return file


def _places(session: Session, plan: Plan) -> set[Position]:
    """Every line of the spec that says something of these nodes."""
    found = [session.fleet.nodes[name] for name in plan.nodes]
    profiles = {id(node.profile): node.profile.provenance for node in found}.values()
    return {place for said in (*profiles, *(node.provenance for node in found)) for place in said.values()}


def _stories(session: Session, ledger: SqlLedger, plan: Plan) -> Mapping[str, NodeHistory]:
    """Holds and stops that kept a node from being acted on are part of its story."""
    most = min(max(ENTRIES // len(plan.nodes), _FEWEST), _MOST)
    entries = ledger.stories(most)
    runs = ledger.runs({entry.run for told in entries.values() for entry in told if entry.run})
    records, now = ledger.nodes(list(plan.nodes)), session.clock.now()

    def told(name: str) -> Iterator[JournalEntry]:
        for subject in (name, f"pool/{plan.nodes[name].pool}", FLEET):
            yield from entries.get(subject, ())

    stories = {}
    for name in plan.nodes:
        own = sorted(told(name), key=lambda entry: entry.at)
        if own:
            stories[name] = NodeHistory(name, records[name], (), own[-most:], runs, now, limited=len(own) >= most)
    return stories
