"""stop, resume, lease, ledger and audit as people type them; nothing is contacted."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION
from reconciler.model.records import STORM
from tests.cli.shell import SPEC, reconciler


@pytest.fixture
def place(tmp_path: Path, clean: Path) -> Path:
    """A ledger that a run has used."""
    ledger = tmp_path / "ledger.sqlite"
    assert reconciler("drift", SPEC, "--observation", clean, "--ledger", ledger, "--create-ledger").code == 0
    return ledger


@contextlib.contextmanager
def opened(place: Path) -> Iterator[SqlLedger]:
    ledger = SqlLedger(place)
    try:
        yield ledger
    finally:
        ledger.close()


def break_spec(spec: Path) -> None:
    path = spec / "personas.yaml"
    path.write_text(path.read_text() + "\nspec: [unbalanced\n")
    assert reconciler("validate", spec).code == 3


# --- stop and resume -------------------------------------------------------------------------------------------------


def test_every_command_says_first_that_the_fleet_is_stopped(place: Path, demo: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    at = (SPEC, "--observation", demo, "--ledger", place)
    assert reconciler("plan", *at, "--out", plan).code in (0, 4)
    done = reconciler("stop", "--ledger", place, "--reason", "smoke in hall 2")
    assert (done.code, done.out) == (0, f"stopped: nothing begins any more. Ledger {place}\n")
    for command, code in (("plan", 8), ("drift", 4)):
        done = reconciler(command, *at)
        assert done.code == code
        assert done.out.splitlines()[1].startswith("  STOPPED by ops: smoke in hall 2 (since 20")
        assert "> - STOPPED by ops: smoke in hall 2" in reconciler(command, *at, "-o", "markdown").out
        assert reconciler(command, *at, "-o", "json").json["stopped"].startswith("stopped by ops: smoke in hall 2")
    planned = reconciler("plan", *at, "-o", "json").json
    assert {node["blocked"]["code"] for node in planned["nodes"].values()} == {"stopped"}
    done = reconciler("apply", SPEC, "--plan", plan, "--yes", "--ledger", place)
    assert (done.code, done.out) == (8, "")
    assert "nothing is done: stopped by ops: smoke in hall 2" in done.err
    done = reconciler("resume", "--ledger", place)
    assert done.code == 0
    assert done.out.startswith("resumed; it was stopped by ops at 20")
    assert reconciler("plan", *at, "-o", "json").json["stopped"] == ""


def test_a_broken_spec_stops_nobody_from_stopping(spec: Path) -> None:
    break_spec(spec)
    done = reconciler("stop", spec, "--reason", "all wrong")
    assert done.code == 0
    assert done.out.strip().endswith("/reconciler/demo.sqlite")
    assert reconciler("resume", spec).code == 0


def test_a_spec_that_does_not_name_its_fleet_is_helped_by_the_name(spec: Path) -> None:
    assert reconciler("stop", spec, "--reason", "x").code == 0
    (spec / "fleet.yaml").write_text("kind: [")
    done = reconciler("stop", spec, "--reason", "x")
    assert (done.code, done.out) == (64, "")
    assert "does not say which fleet it is; name it with --fleet, or the --ledger" in done.err
    done = reconciler("stop", "--fleet", "demo", "--reason", "again")
    assert done.code == 0
    assert "it was stopped before, by ops at 20" in done.out


@pytest.mark.parametrize("words", [("--fleet", "dmeo"), ("--ledger", "dmeo.sqlite"), ("no-such-directory",)])
def test_a_typo_does_not_look_like_protection(words: tuple[str, ...], tmp_path: Path) -> None:
    done = reconciler("stop", *words, "--reason", "x")
    assert (done.code, done.out) == (64, "")
    assert "there is no" in done.err
    assert not list(tmp_path.rglob("dmeo*"))
    assert not Path("dmeo.sqlite").exists()


def test_a_stop_lists_running_leases_and_needs_a_reason(place: Path) -> None:
    with opened(place) as ledger:
        ledger.acquire("demo", "ci-7, run-1", 3600, datetime.now(UTC))
    assert reconciler("stop", "--ledger", place).code == 64
    assert reconciler("stop", "--ledger", place, "--reason", " ").code == 64
    done = reconciler("stop", "--ledger", place, "--reason", "x")
    assert "running: ci-7, run-1; it finishes its actions and then ends" in done.out


def test_what_is_not_stopped_is_not_resumed(place: Path) -> None:
    done = reconciler("resume", "--ledger", place)
    assert (done.code, done.out) == (64, "")
    assert f"nothing is stopped in the ledger {place}" in done.err


def test_holds_remain_beside_a_stop(place: Path) -> None:
    at = ("--spec", SPEC, "--ledger", place)
    assert reconciler("hold", "gpu-a001", *at, "--reason", "a cable is out").code == 0
    assert reconciler("stop", "--ledger", place, "--reason", "smoke").code == 0
    listed = reconciler("hold", *at).out
    assert "the whole fleet" in listed
    assert "gpu-a001" in listed
    assert reconciler("resume", "--ledger", place).code == 0
    listed = reconciler("hold", *at).out
    assert "the whole fleet" not in listed
    assert "gpu-a001" in listed


# --- the storm brake -------------------------------------------------------------------------------------------------


def braked(place: Path) -> None:
    with opened(place) as ledger:
        ledger.hold(STORM, "6 of 10 nodes of the fleet went bad", "storm brake", None, datetime.now(UTC))


def test_every_command_shows_the_storm_brake_until_an_operator_resumes(place: Path, demo: Path) -> None:
    at = (SPEC, "--observation", demo, "--ledger", place)
    braked(place)
    said = "STORM BRAKE: 6 of 10 nodes of the fleet went bad (since 20"
    for command, code in (("plan", 8), ("drift", 4)):
        done = reconciler(command, *at)
        assert done.code == code
        assert done.out.splitlines()[1].startswith(f"  {said}")
        assert "STORM BRAKE" in reconciler(command, *at, "-o", "markdown").out
    planned = reconciler("plan", *at, "-o", "json").json
    assert planned["braked"].startswith("storm brake: 6 of 10 nodes")
    held = [name for name, node in planned["nodes"].items() if (node["blocked"] or {}).get("code") == "storm"]
    assert held
    told = reconciler("explain", held[0], *at).out
    assert "the storm brake is set" in told
    assert "when the storm brake was set" in told
    assert "somebody resumes: reconciler resume" in told
    assert "what disrupts" in reconciler("hold", "--spec", SPEC, "--ledger", place).out
    assert "fleet: storm brake: 6 of 10 nodes" in reconciler("doctor", SPEC, "--offline", "--ledger", place).out
    done = reconciler("stop", "--ledger", place, "--reason", "smoke")
    assert "the storm brake is set too, since 20" in done.out
    done = reconciler("resume", "--ledger", place)
    assert done.code == 0
    assert "resumed; it was braked by storm brake at 20" in done.out
    assert "resumed; it was stopped by ops at 20" in done.out
    assert reconciler("plan", *at, "-o", "json").json["braked"] == ""
    assert reconciler("resume", "--ledger", place).code == 64


# --- leases ----------------------------------------------------------------------------------------------------------


def test_leases_are_listed_and_taken_away(place: Path) -> None:
    at = ("--ledger", place)
    assert reconciler("lease", "list", *at).out == "nobody holds a lease\n"
    assert reconciler("lease", "list", *at, "-o", "json").json == []
    with opened(place) as ledger:
        ledger.acquire("gone", "ci-6", 1, datetime(2026, 1, 1, tzinfo=UTC))
        token = ledger.acquire("demo", "ci-7, run-1", 3600, datetime.now(UTC)).token
    listed = reconciler("lease", "list", *at).out.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [[str(token), "demo"], [str(token - 1), "gone"]]
    assert listed[1].endswith("held")
    assert listed[2].endswith("ran out")
    found = reconciler("lease", "list", *at, "-o", "json").json
    assert [(one["id"], one["holder"], one["state"]) for one in found] == [
        (token, "ci-7, run-1", "held"), (token - 1, "ci-6", "ran out"),
    ]  # fmt: skip
    assert "| ci-7, run-1 |" in reconciler("lease", "list", *at, "-o", "markdown").out
    wrong = reconciler("lease", "release", *at, "--id", str(token + 1))
    assert (wrong.code, wrong.out) == (64, "")
    assert f"no lease has the id {token + 1} now; held is" in wrong.err
    assert f"{token} (demo, ci-7, run-1)" in wrong.err
    done = reconciler("lease", "release", *at, "--id", str(token))
    assert done.code == 0
    assert f"lease {token} on demo is released; it was held by ci-7, run-1 (since 20" in done.out
    assert reconciler("lease", "release", *at, "--id", str(token)).code == 64
    assert f"ops took lease {token} on demo away" in reconciler("audit", "list", *at).out


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_an_audit_names_the_row_that_was_changed(place: Path) -> None:
    at = ("--ledger", place)
    done = reconciler("audit", "verify", *at)
    assert done.code == 0
    assert "as they were written" in done.out
    head = reconciler("audit", "verify", *at, "-o", "json").json["head"]
    assert f"head {head}" in done.out
    assert reconciler("audit", "verify", *at, "--head", head).code == 0
    connection = sqlite3.connect(place)
    with connection:
        connection.execute("UPDATE journal SET detail = 'nothing happened' WHERE id = 2")
    connection.close()
    done = reconciler("audit", "verify", *at)
    assert done.code == 1
    assert "NOT as it was written: row 2 changed: drift of gpu-" in done.out
    found = reconciler("audit", "verify", *at, "-o", "json")
    assert (found.code, found.json["row"], found.json["problem"]) == (1, 2, "changed")
    assert "🔴" in reconciler("audit", "verify", *at, "-o", "markdown").out


def test_the_journal_is_listed(place: Path) -> None:
    at = ("--ledger", place)
    rows = reconciler("audit", "list", *at, "--last", "3", "-o", "json").json
    assert len(rows) == 3
    assert [row["row"] for row in rows] == sorted(row["row"] for row in rows)
    assert rows[-1]["what"] == "run"
    own = reconciler("audit", "list", *at, "--node", "gpu-a001", "-o", "json").json
    assert {row["node"] for row in own} == {"gpu-a001"}
    assert "gpu-a001" in reconciler("audit", "list", *at, "--node", "gpu-a001").out


def test_ledger_info_shows_what_a_ledger_is(place: Path) -> None:
    found = reconciler("ledger", "info", "--ledger", place, "-o", "json").json
    with opened(place) as ledger:
        assert found["id"] == ledger.id
    assert (found["database"], found["version"]) == ("sqlite", SCHEMA_VERSION)
    assert found["rows"]["journal"] > 0
    assert found["id"] in reconciler("ledger", "info", "--ledger", place).out


def test_adopting_off_a_terminal_needs_a_yes_and_a_node_of_the_fleet(place: Path) -> None:
    at = ("--spec", SPEC, "--ledger", place)
    done = reconciler("ledger", "adopt", "gpu-a001", *at)
    assert (done.code, done.out) == (64, "")
    assert "needs --yes" in done.err
    done = reconciler("ledger", "adopt", "gpu-a01", "--yes", *at)
    assert done.code == 64
    assert "has no 'gpu-a01'; did you mean" in done.err


def test_a_release_of_a_machine_that_left_releases_both_of_its_tombstones(spec: Path, tmp_path: Path) -> None:
    """One by its serial number, one by its UUID: one consent is enough, and no other machine's."""
    now = datetime.now(UTC)
    with opened(tmp_path / "ledger.sqlite") as ledger:
        for subject, why in (("sn-1", "gpu-x, SN-1"), ("uuid/0a", "gpu-x, SN-1"), ("sn-2", "gpu-y, SN-2")):
            ledger.hold(f"decommissioned/{subject}", why, "ops", None, now)
        done = reconciler("release", "decommissioned/sn-1", "--spec", spec, "--ledger", tmp_path / "ledger.sqlite")
        assert done.code == 0, done.err
        assert [hold.subject for hold in ledger.holds()] == ["decommissioned/sn-2"]
