"""Who is vouched for, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.options import Common
from reconciler.cli.session import Session
from reconciler.cli.vouching import save, vouched_for
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.documents import load
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observation
from reconciler.model.vocab import NodeState
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
    made = vouched_for(session.fleet, seen, book.nodes(list(session.fleet.nodes)), session.clock.now())
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
    made = vouched_for(replace(fleet, nodes=nodes), seen, book.nodes(list(nodes)), session.clock.now())
    assert made.left == {
        "gpu-a001": "its state is quarantined, and nobody lets it serve",
        "gpu-a002": "its persona names no acceptance profile",
    }
    assert {one.node for one in made.certificates} == nodes.keys() - made.left.keys()
