"""The use cases `gate show`, `gate history` and `gate output`: what gates measured, from the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from reconciler.app.node_selection import select_nodes
from reconciler.app.workspace import Workspace
from reconciler.drivers.parquet import library as check_parquet
from reconciler.drivers.parquet import write_parquet
from reconciler.gate.certificate import by_test
from reconciler.gate.results import recorded
from reconciler.model.desired import Acceptance
from reconciler.model.errors import SpecError, UsageError
from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate import Certificate
from reconciler.model.results import ResultRow, TestRun, Wanted
from reconciler.render.gate import ShownMetric, shown_metrics

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

__all__ = ["check_parquet", "gate_history", "gate_output", "last_gate", "saved_search", "write_parquet"]


@dataclass(frozen=True, slots=True)
class LastGate:
    """The last gate of a node. `note`: what is to be known of it besides its rows; "" = nothing."""

    rows: tuple[ShownMetric, ...]
    note: str = ""


def last_gate(workspace: Workspace, node: str) -> LastGate:
    """Return the figures of a node's last gate, beside the bars of today."""
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        certificate, runs = ledger.node(node).certificate, ledger.last_gate(node)
        searched = ledger.last_searched(node)
    if certificate is None and not runs and not searched:
        _check_names(workspace, (node,))
        return LastGate((), f"{node}: no gate has run yet")
    found = _last_gate(workspace, node, certificate, runs)
    return LastGate((*found.rows, *_searched(workspace, node, searched)), found.note)


def _last_gate(workspace: Workspace, node: str, certificate: Certificate | None, runs: Sequence[TestRun]) -> LastGate:
    acceptance = _acceptance_of(workspace, node)
    by_hand = bool(runs) and runs[0].profile
    if by_hand and (certificate is None or runs[-1].ended_at > certificate.issued_at):
        own = _acceptance_called(workspace, node, runs[0].profile)
        note = f"by hand, with the profile {runs[0].profile}, which certifies nothing here"
        return LastGate(tuple(shown_metrics(node, runs, own, None)), note)
    if certificate is None:
        return LastGate(tuple(shown_metrics(node, runs, acceptance, None)), "it has no certificate")
    return _of_certificate(workspace, certificate, acceptance)


def _acceptance_of(workspace: Workspace, node: str) -> Acceptance | None:
    desired = workspace.fleet.nodes.get(node)
    return None if desired is None else desired.profile.acceptance


def _searched(workspace: Workspace, node: str, runs: Sequence[TestRun]) -> Iterator[ShownMetric]:
    """Yield what the last search of the fabric measured of a node, beside the bars that its profile has for that."""
    acceptance, names = _acceptance_of(workspace, node), {run.test for run in runs}
    if acceptance is not None:
        phases = [replace(each, tests=tuple(t for t in each.tests if t.name in names)) for each in acceptance.phases]
        acceptance = replace(acceptance, phases=tuple(phases))
    return shown_metrics(node, runs, acceptance, None)


def saved_search(workspace: Workspace, name: str) -> FabricReport | None:
    """Return the report of the search with this id; None for what is, or might be, the name of a node.

    Raise UsageError for an id that the ledger does not have.
    """
    if name in workspace.fleet.nodes or not name.startswith("run-"):
        return None
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        if (report := ledger.search(name)) is None:
            last = ", ".join(ledger.last_searches(3)) or "none"
            raise UsageError(f"{name} is no node of the spec, and no search of the fabric; the last ones: {last}")
    return report


def _of_certificate(workspace: Workspace, certificate: Certificate, acceptance: Acceptance | None) -> LastGate:
    if certificate.adopted:
        at = f"{certificate.issued_at:%Y-%m-%d}"
        return LastGate((), f"{certificate.node}: adopted in service on {at}, without a test")
    desired = workspace.fleet.nodes.get(certificate.node) or next(iter(workspace.fleet.nodes.values()))
    runs = recorded(certificate, desired, 0).runs
    note = f"certificate of {certificate.issued_at:%Y-%m-%d %H:%M} UTC"
    return LastGate(tuple(shown_metrics(certificate.node, runs, acceptance, by_test(certificate.results))), note)


def _acceptance_called(workspace: Workspace, node: str, name: str) -> Acceptance | None:
    """Return the tests of a profile, None where the spec has it no more."""
    try:
        fleet = workspace.fleet_at(workspace.request.rev, acceptance=name)
    except (UsageError, SpecError):
        return None
    return None if node not in fleet.nodes else fleet.nodes[node].profile.acceptance


@contextmanager
def gate_history(
    workspace: Workspace, nodes: Sequence[str], test: str, metric: str, since: timedelta | datetime | None
) -> Iterator[Iterator[ResultRow]]:
    """Open the results of nodes, by node and time. They are read as they are consumed."""
    begin = workspace.clock.now() - since if isinstance(since, timedelta) else since
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        yield ledger.results(Wanted(_names(workspace, ledger, nodes), test, metric, begin))


def _names(workspace: Workspace, ledger: SqlLedger, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the expressions select. One that the spec has no more counts if it has results."""
    found: list[str] = []
    for name in nodes:
        if name not in workspace.fleet.nodes and (ledger.last_gate(name) or ledger.last_searched(name)):
            found.append(name)
        else:
            found += select_nodes(workspace.fleet, (name,), ())[0]
    return tuple(found)


def _check_names(workspace: Workspace, nodes: tuple[str, ...]) -> None:
    if unknown := [name for name in nodes if name not in workspace.fleet.nodes]:
        select_nodes(workspace.fleet, tuple(unknown), ())  # says what is near


def gate_output(workspace: Workspace, digest: str) -> str:
    """Return what a tool printed. Raise UsageError where the ledger has no such text."""
    with workspace.present_ledger() as ledger:
        text = ledger.output(digest)
    if text is None:
        raise UsageError(f"the ledger has no output {digest!r}; `gate history` and `gate show` have their digests")
    return text
