"""What a session keeps of a pass, whichever command looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.app.session import Session, new_id
from reconciler.cli.options import Common
from reconciler.model.documents import load
from reconciler.model.observed import Observation, Observed
from tests import builders as b
from tests.cli.shell import SPEC


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Common(SPEC, None, "human", (), (), str(tmp_path / "ledger.sqlite"), None))


def stood(session: Session, seen: Observation, *, now: bool = True) -> set[str]:
    """Nodes of which the ledger knows how they stood."""
    with session.ledger() as ledger:
        run = new_id("report", b.NOW)
        ledger.start_run(run, "report", "", "", b.NOW)
        plan = session.make_plan(seen, ledger, run)
        session.remember(plan, ledger, run, seen, now=now)
        return {spell.node for spell in ledger.past(b.NOW.replace(year=2000), session.clock.now()).status_intervals}


def drift(session: Session) -> list[object]:
    with session.ledger() as ledger:
        return [row for name in session.fleet.nodes for row in ledger.open_drift(name)]


def test_how_nodes_stand_is_kept_of_a_pass_that_saw_them(session: Session, demo: Path) -> None:
    seen = load(Observation, demo.read_bytes())
    assert stood(session, seen, now=False) == set()
    assert stood(session, seen) == set(session.fleet.nodes)


def test_a_machine_that_sees_nothing_says_nothing_of_nodes(session: Session, demo: Path) -> None:
    seen = load(Observation, demo.read_bytes())
    stood(session, seen, now=False)
    before = drift(session)
    assert before
    dark = b.silent("timeout", "https://10.20.0.11")
    blind = Observation(
        "1.0", session.fleet.settings.fleet, "", b.NOW, b.NOW,
        {name: Observed(name, dark, dark, dark, dark) for name in session.fleet.nodes},
    )  # fmt: skip
    assert stood(session, blind) == set()
    assert stood(session, blind, now=False) == set()
    assert drift(session) == before
