"""Commands that only read: they make no ledger, set no brake, and every plan says what it knew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.plan import make_plan
from reconciler.app.ports import FleetRequest
from reconciler.app.workspace import Workspace
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.documents import dump, load
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.records import STORM
from tests import builders as b
from tests.cli.shell import SPEC, reconciler

READING: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "SPEC", "--observation", "SEEN"),
    "status": ("status", "SPEC", "--observation", "SEEN"),
    "rehearse": ("rehearse", "SPEC", "--observation", "SEEN", "--runs", "1", "--limit", "gpu-a001"),
    "explain": ("explain", "gpu-a001", "SPEC", "--observation", "SEEN"),
    "history": ("history", "gpu-a001", "--spec", "SPEC"),
    "report": ("report", "SPEC"),
    "hold": ("hold", "--spec", "SPEC"),
    "doctor": ("doctor", "SPEC", "--offline"),
    "ledger info": ("ledger", "info", "SPEC"),
}
RECORDING: dict[str, tuple[str, ...]] = {
    "drift": ("drift", "SPEC", "--observation", "SEEN"),
    "report --html": ("report", "SPEC", "--html", "PAGE", "--observation", "SEEN"),
}


@pytest.fixture
def words(demo: Path, tmp_path: Path) -> Callable[..., list[str | Path]]:
    places = {"SPEC": SPEC, "SEEN": demo, "PAGE": tmp_path / "page"}
    return lambda some: [places.get(word, word) for word in some]


def ledgers(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob("*.sqlite*"))


def rows(ledger: Path) -> list[str]:
    with closing(sqlite3.connect(ledger)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("command", [*READING, *RECORDING])
def test_no_ledger_is_made(command: str, words: Any, tmp_path: Path) -> None:
    done = reconciler(*words({**READING, **RECORDING}[command]))
    assert done.code in (0, 4, 8, 64), done.err
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("command", [*READING, *RECORDING])
def test_a_ledger_that_is_named_and_not_there_is_refused(command: str, words: Any, tmp_path: Path) -> None:
    missing = tmp_path / "fleet.sqlite"
    done = reconciler(*words({**READING, **RECORDING}[command]), "--ledger", missing)
    assert f"there is no ledger {missing}" in done.out + done.err
    assert done.code == 64
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("command", [*READING, *RECORDING])
def test_it_is_made_when_that_is_asked_for(command: str, words: Any, tmp_path: Path) -> None:
    missing = tmp_path / "fleet.sqlite"
    done = reconciler(*words({**READING, **RECORDING}[command]), "--ledger", missing, "--create-ledger")
    assert done.code in (0, 4, 8) or command == "doctor", done.err
    assert missing.exists()


@pytest.mark.parametrize("command", READING)
def test_a_ledger_that_is_there_stays_as_it_was(command: str, words: Any, tmp_path: Path) -> None:
    there = tmp_path / "fleet.sqlite"
    assert reconciler(*words(RECORDING["drift"]), "--ledger", there, "--create-ledger").code == 4
    before = rows(there)
    done = reconciler(*words(READING[command]), "--ledger", there)
    assert done.code in (0, 4, 8) or command == "doctor", done.err
    assert rows(there) == before


def test_drift_records_where_there_is_a_ledger(words: Any, tmp_path: Path) -> None:
    there = tmp_path / "fleet.sqlite"
    SqlLedger(there).close()
    before = rows(there)
    done = reconciler(*words(RECORDING["drift"]), "--ledger", there)
    assert done.code == 4
    assert rows(there) != before
    again = reconciler(*words(RECORDING["drift"])).err
    assert "there is no ledger at" in again
    assert "no ledger" not in done.err


def test_a_ledger_opened_to_be_read_refuses_writes(tmp_path: Path) -> None:
    with closing(SqlLedger(tmp_path / "l.sqlite", reading=True)) as ledger, pytest.raises(Exception, match="be read"):
        ledger.hold("gpu-a001", "x", "me", None, b.NOW)


# --- what a plan says it knew ----------------------------------------------------------------------------------------


def test_a_plan_without_any_ledger_says_so(words: Any, tmp_path: Path) -> None:
    done = reconciler(*words(READING["plan"]))
    place = tmp_path / "state" / "reconciler" / "demo.sqlite"
    assert f"\n  ledger: none yet at {place}, 0 certificates of 12 nodes\n" in done.out
    made = reconciler(*words(READING["plan"]), "-o", "json").json
    assert made["ledger"] == {"kind": "none", "name": str(place), "certificates": 0, "nodes": 12}


def test_a_plan_counts_the_certificates_that_its_ledger_has(words: Any, tmp_path: Path) -> None:
    there = tmp_path / "fleet.sqlite"
    with closing(SqlLedger(there, fleet="demo")) as ledger:
        ledger.save_certificate(b.certificate(b.node(), b.observed()))
    told = f"ledger: sqlite {there}, 1 certificate of 12 nodes"
    assert f"\n  {told}\n" in reconciler(*words(READING["plan"]), "--ledger", there).out
    out = tmp_path / "plan.json"
    assert reconciler(*words(READING["plan"]), "--ledger", there, "--out", out).code == 4
    comment = reconciler("comment", out, "--dry-run").out.replace("\\", "")
    assert told in comment
    one = reconciler(*words(READING["plan"]), "--ledger", there, "--limit", "gpu-a001").out
    assert f"ledger: sqlite {there}, 1 certificate of 1 node\n" in one


def test_a_redacted_plan_does_not_say_where_its_ledger_is(words: Any, tmp_path: Path) -> None:
    there = tmp_path / "fleet.sqlite"
    SqlLedger(there).close()
    done = reconciler(*words(READING["plan"]), "--ledger", there, "--redact")
    assert "ledger: sqlite, 0 certificates of 12 nodes" in done.out
    assert str(there) not in done.out


# --- the storm brake -------------------------------------------------------------------------------------------------


@pytest.fixture
def dark(clean: Path, tmp_path: Path) -> tuple[Path, Observation]:
    """A ledger that knows ten nodes as members, and what a slow observer sees of them: nothing."""
    there = tmp_path / "fleet.sqlite"
    seen = load(Observation, clean.read_bytes())
    names = list(seen.nodes)[:10]
    with closing(SqlLedger(there, fleet="demo")) as ledger:
        for name in names:
            ledger.remember_applied(name, {"cluster.member": True}, "", "", datetime.now(UTC))
    silent = b.silent("timeout", "too slow")
    blind = {name: replace(seen.nodes[name], hot=silent, host=silent) for name in names}
    return there, replace(seen, nodes={**seen.nodes, **blind})


@pytest.mark.parametrize("command", ["plan", "drift", "explain", "observe", "report"])
def test_what_reads_sets_no_storm_brake(
    command: str, dark: tuple[Path, Observation], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there, seen = dark
    monkeypatch.setattr(Workspace, "observe", lambda _self: seen)
    more = {"explain": ("gpu-a001",), "report": ("--html", str(tmp_path / "page"))}.get(command, ())
    first, rest = (more, ()) if command == "explain" else ((), more)
    done = reconciler(command, *first, SPEC, *rest, "--ledger", there)
    assert done.code in (0, 4, 8), done.err
    with closing(SqlLedger(there, fleet="demo")) as ledger:
        assert [hold.subject for hold in ledger.holds()] == []
        assert not any("bad" in record.silent_since for record in ledger.nodes(list(seen.nodes)).values())


def test_a_plan_shows_the_brake_that_the_next_run_sets(
    dark: tuple[Path, Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, seen = dark
    workspace = Workspace(FleetRequest(SPEC, ledger=str(there)))
    monkeypatch.setattr(workspace, "observe", lambda: seen)
    made: Plan = make_plan(workspace, None, redact=False)
    assert made.braked.startswith("storm brake, which the next apply or run sets: 10 of 12 nodes of the fleet went bad")
    assert load(Plan, dump(made)).braked == made.braked
    assert STORM not in {hold.subject for hold in _holds(there)}


def _holds(there: Path) -> Any:
    with closing(SqlLedger(there, fleet="demo")) as ledger:
        return ledger.holds()
