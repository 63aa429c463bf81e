"""Which nodes get a certificate without a test, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.app.init import draft_spec, first_look
from reconciler.app.ports import FleetRequest
from reconciler.app.waive import save, waive
from reconciler.app.workspace import Workspace
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.documents import load
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observation
from reconciler.model.vocab import NodeState
from reconciler.render.draft.kinds import Row
from reconciler.render.draft.survey import Asked
from reconciler.render.draft.text import Access
from tests import builders as b
from tests.cli.shell import SPEC

NODES = ("gpu-a001", "gpu-a002")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(FleetRequest(SPEC, limit=NODES, ledger=str(tmp_path / "ledger.sqlite")))


@pytest.fixture
def ledger(workspace: Workspace) -> Iterator[SqlLedger]:
    with workspace.ledger() as found:
        yield found


@pytest.fixture
def certificates(workspace: Workspace, ledger: SqlLedger, clean: Path) -> tuple[Certificate, ...]:
    seen = load(Observation, clean.read_bytes())
    made = waive(workspace.fleet, seen, ledger.nodes(list(workspace.fleet.nodes)), workspace.clock.now())
    return tuple(one for one in made.certificates if one.node in NODES)


def test_a_node_that_was_treated_or_tested_while_the_question_was_open_gets_no_certificate(
    workspace: Workspace, ledger: SqlLedger, certificates: tuple[Certificate, ...]
) -> None:
    """A question on a terminal may be open for hours, and holds no lease."""
    assert [one.node for one in certificates] == list(NODES)
    with workspace.ledger() as other:
        now, fleet = workspace.clock.now(), workspace.fleet.settings.fleet
        lease = other.acquire(fleet, "another run", 60, now)
        other.start_run("run-1", "apply", "", "", now)
        other.begin("run-1", NODES[0], "reboot", "", "drift", {}, lease.token, now)
        other.drop(lease)
    late = save(workspace, ledger, "waive", certificates, "it served")
    assert late == {NODES[0]: "reboot was done to it, and its gate has not been passed"}
    found = ledger.nodes(NODES)
    assert (found[NODES[0]].certificate, found[NODES[1]].certificate) == (None, certificates[1])
    assert save(workspace, ledger, "waive", certificates[1:], "it served").keys() == {NODES[1]}
    assert save(workspace, ledger, "init", certificates[1:], "its spec was written again", anew=True) == {}


def test_a_node_without_a_certificate_is_listed_with_the_reason(
    workspace: Workspace, ledger: SqlLedger, clean: Path
) -> None:
    seen, fleet = load(Observation, clean.read_bytes()), workspace.fleet
    nodes = dict(fleet.nodes)
    bare = replace(nodes["gpu-a002"].profile, acceptance=None)
    nodes |= {
        "gpu-a001": replace(nodes["gpu-a001"], state=NodeState.QUARANTINED),
        "gpu-a002": replace(nodes["gpu-a002"], profile=bare),
    }
    made = waive(replace(fleet, nodes=nodes), seen, ledger.nodes(list(nodes)), workspace.clock.now())
    assert made.left == {
        "gpu-a001": "its state is quarantined, and nobody lets it serve",
        "gpu-a002": "its persona names no acceptance profile",
    }
    assert {one.node for one in made.certificates} == nodes.keys() - made.left.keys()


def test_a_node_that_lacks_a_part_gets_no_profile_of_its_own(tmp_path: Path) -> None:
    """It is parked, and gets no certificate: with a profile of its own, it would count as complete for ever."""
    names = [f"gpu-00{at}" for at in range(1, 4)]
    table = {name: Row(name, f"https://10.0.0.{name[-1]}", f"10.0.1.{name[-1]}", "", {}) for name in names}
    access = Access("root", bmc=True, ssh=True, bmc_ca=None, host_ca=None, cluster="main", context=None)
    nodes = {name: b.observed(name, member=b.member(name), host=b.facts(name)) for name in names}
    nodes[names[0]] = b.observed(names[0], member=b.member(names[0]), host=b.facts(names[0], gpus=(b.gpu(0),)))
    workspace = Workspace(FleetRequest(tmp_path, ledger=str(tmp_path / "ledger.sqlite")))
    workspace.fleet = first_look("test", table, access, Asked(), "spec")
    with workspace.ledger() as ledger:
        seen = Observation("1.0", "test", "", b.NOW, b.NOW, nodes)
        made = draft_spec(workspace, ledger, table, access, Asked(), seen)
    assert made.draft.parked == {names[0]: "2 others of its model have gpus 2 (here 1)"}
    assert {node.profile.inventory.gpus for node in made.fleet.nodes.values()} == {2}
    assert [one.node for one in made.certificates] == names[1:]
