"""Who is vouched for, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.app.init import first_look, start
from reconciler.app.session import Session
from reconciler.app.waive import save, waive
from reconciler.cli.options import Common
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
def session(tmp_path: Path) -> Session:
    return Session(Common(SPEC, None, "human", NODES, (), str(tmp_path / "ledger.sqlite"), None))


@pytest.fixture
def book(session: Session) -> Iterator[SqlLedger]:
    with session.ledger() as found:
        yield found


@pytest.fixture
def certificates(session: Session, book: SqlLedger, clean: Path) -> tuple[Certificate, ...]:
    seen = load(Observation, clean.read_bytes())
    made = waive(session.fleet, seen, book.nodes(list(session.fleet.nodes)), session.clock.now())
    return tuple(one for one in made.certificates if one.node in NODES)


def test_who_was_treated_or_tested_while_somebody_thought_is_not_vouched_for(
    session: Session, book: SqlLedger, certificates: tuple[Certificate, ...]
) -> None:
    """A question may stand on a terminal for hours, and holds no lease."""
    assert [one.node for one in certificates] == list(NODES)
    with session.ledger() as other:
        now, fleet = session.clock.now(), session.fleet.settings.fleet
        lease = other.acquire(fleet, "another run", 60, now)
        other.start_run("run-1", "apply", "", "", now)
        other.begin("run-1", NODES[0], "reboot", "", "drift", {}, lease.token, now)
        other.drop(lease)
    late = save(session, book, "vouch", certificates, "it served")
    assert late == {NODES[0]: "reboot was done to it, and its gate has not been passed"}
    found = book.nodes(NODES)
    assert (found[NODES[0]].certificate, found[NODES[1]].certificate) == (None, certificates[1])
    assert save(session, book, "vouch", certificates[1:], "it served").keys() == {NODES[1]}
    assert save(session, book, "init", certificates[1:], "its spec was written again", anew=True) == {}


def test_who_gets_no_certificate_is_told_why(session: Session, book: SqlLedger, clean: Path) -> None:
    seen, fleet = load(Observation, clean.read_bytes()), session.fleet
    nodes = dict(fleet.nodes)
    bare = replace(nodes["gpu-a002"].profile, acceptance=None)
    nodes |= {
        "gpu-a001": replace(nodes["gpu-a001"], state=NodeState.QUARANTINED),
        "gpu-a002": replace(nodes["gpu-a002"], profile=bare),
    }
    made = waive(replace(fleet, nodes=nodes), seen, book.nodes(list(nodes)), session.clock.now())
    assert made.left == {
        "gpu-a001": "its state is quarantined, and nobody lets it serve",
        "gpu-a002": "its persona names no acceptance profile",
    }
    assert {one.node for one in made.certificates} == nodes.keys() - made.left.keys()


def test_a_machine_that_lacks_a_part_is_no_measure_of_itself(tmp_path: Path) -> None:
    """Left alone, and not vouched for: with a profile of its own, it would pass for whole ever after."""
    names = [f"gpu-00{at}" for at in range(1, 4)]
    table = {name: Row(name, f"https://10.0.0.{name[-1]}", f"10.0.1.{name[-1]}", "", {}) for name in names}
    access = Access("root", bmc=True, ssh=True, bmc_ca=None, host_ca=None, cluster="main", context=None)
    nodes = {name: b.observed(name, member=b.member(name), host=b.facts(name)) for name in names}
    nodes[names[0]] = b.observed(names[0], member=b.member(names[0]), host=b.facts(names[0], gpus=(b.gpu(0),)))
    session = Session(Common(tmp_path, None, "human", (), (), str(tmp_path / "ledger.sqlite"), None))
    session.fleet = first_look("test", table, access, Asked(), "spec")
    with session.ledger() as book:
        seen = Observation("1.0", "test", "", b.NOW, b.NOW, nodes)
        made = start(session, book, table, access, Asked(), seen)
    assert made.draft.parked == {names[0]: "2 others of its model have gpus 2 (here 1)"}
    assert {node.profile.inventory.gpus for node in made.fleet.nodes.values()} == {2}
    assert [one.node for one in made.certificates] == names[1:]
