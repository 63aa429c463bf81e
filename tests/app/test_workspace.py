"""What a workspace keeps of a pass, whichever command looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.app.ports import FleetRequest
from reconciler.app.runtime import new_id
from reconciler.app.workspace import Workspace
from reconciler.model.documents import load
from reconciler.model.observed import Observation, Observed
from tests import builders as b
from tests.cli.shell import SPEC


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(FleetRequest(SPEC, ledger=str(tmp_path / "ledger.sqlite")))


def nodes_with_status(workspace: Workspace, seen: Observation, *, now: bool = True) -> set[str]:
    """Record a pass, and return the nodes of which the ledger knows the status."""
    with workspace.ledger() as ledger:
        run = new_id("report", b.NOW)
        ledger.start_run(run, "report", "", "", b.NOW)
        plan = workspace.make_plan(seen, ledger, run)
        workspace.remember(plan, ledger, run, seen, now=now)
        return {
            interval.node for interval in ledger.past(b.NOW.replace(year=2000), workspace.clock.now()).status_intervals
        }


def drift(workspace: Workspace) -> list[object]:
    with workspace.ledger() as ledger:
        return [row for name in workspace.fleet.nodes for row in ledger.open_drift(name)]


def test_a_pass_that_saw_the_nodes_records_their_status(workspace: Workspace, demo: Path) -> None:
    seen = load(Observation, demo.read_bytes())
    assert nodes_with_status(workspace, seen, now=False) == set()
    assert nodes_with_status(workspace, seen) == set(workspace.fleet.nodes)


def test_a_pass_that_saw_nothing_records_nothing(workspace: Workspace, demo: Path) -> None:
    seen = load(Observation, demo.read_bytes())
    nodes_with_status(workspace, seen, now=False)
    before = drift(workspace)
    assert before
    dark = b.silent("timeout", "https://10.20.0.11")
    blind = Observation(
        "1.0", workspace.fleet.settings.fleet, "", b.NOW, b.NOW,
        {name: Observed(name, dark, dark, dark, dark) for name in workspace.fleet.nodes},
    )  # fmt: skip
    assert nodes_with_status(workspace, blind) == set()
    assert nodes_with_status(workspace, blind, now=False) == set()
    assert drift(workspace) == before
