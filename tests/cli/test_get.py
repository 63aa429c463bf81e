"""get and logs as people type them; nothing is contacted."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.period_report import ServiceStatus
from reconciler.model.status import NodeStatus
from tests.cli.shell import SPEC, reconciler, started

NOW = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path, demo: Path) -> Path:
    """A ledger that a pass over a fleet that differs has written to."""
    ledger = tmp_path / "ledger.sqlite"
    assert reconciler("drift", SPEC, "--observation", demo, "--ledger", ledger, "--create-ledger").code in (0, 2, 4)
    return ledger


# --- get -------------------------------------------------------------------------------------------------------------


def test_names_are_one_a_line_and_go_where_a_limit_goes(place: Path) -> None:
    at = ("--spec", SPEC, "--ledger", place)
    names = reconciler("get", "nodes", "pool=infer", *at, "-o", "name").out.split("\n")
    assert names == ["gpu-b001", "gpu-b002", "gpu-b003", "gpu-b004", ""]
    assert reconciler("get", "pools", *at, "-o", "name").out == "infer\ntrain\n"
    assert reconciler("get", "node", "gpu-b001", *at, "-o", "name").out == "gpu-b001\n", "as kubectl takes it"
    limited = reconciler("get", "nodes", ",".join(names[:2]), *at, "-o", "json").json
    assert [row["name"] for row in limited] == names[:2]


def test_every_format_tells_of_the_same_nodes(place: Path) -> None:
    with_ledger = SqlLedger(place)
    with_ledger.hold("gpu-a002", "ticket 12", "ann", None, NOW)
    with_ledger.close()
    at = ("--spec", SPEC, "--ledger", place)
    rows = reconciler("get", "nodes", *at, "-o", "json").json
    assert YAML(typ="safe").load(reconciler("get", "nodes", *at, "-o", "yaml").out) == rows
    held = next(row for row in rows if row["name"] == "gpu-a002")
    assert (held["held"], held["pool"], held["bmc"]) == ("ann: ticket 12", "train", "https://10.20.0.12")
    human, wide = (reconciler("get", "nodes", *at, "-o", form).out for form in ("human", "wide"))
    assert "held by ann: ticket 12" in human
    assert "https://10.20.0.12" in wide
    assert "https://10.20.0.12" not in human
    assert reconciler("get", "nodes", *at, "-o", "markdown").out.startswith("| name | pool |")


def test_nodes_are_selected_by_what_the_last_pass_found(place: Path) -> None:
    ledger = SqlLedger(place, fleet="demo")
    told = {
        "gpu-a001": ServiceStatus("train", NodeStatus.CONVERGED, out=False),
        "gpu-a002": ServiceStatus("train", NodeStatus.BLOCKED, out=True, code="gate", why="its gate failed"),
    }
    ledger.record_service_status(told, NOW, within=timedelta(hours=1), whole=False)
    ledger.close()
    at = ("--spec", SPEC, "--ledger", place)
    rows = reconciler("get", "nodes", *at, "-o", "json").json
    found = {row["status"] for row in rows}
    assert found == {"converged", "blocked", "unknown"}
    out = next(row for row in rows if row["name"] == "gpu-a002")
    assert (out["in_service"], out["why"], out["seen"]) == (False, "its gate failed", NOW.isoformat())
    assert "its gate failed" in reconciler("get", "nodes", *at).out
    for status in found:
        some = reconciler("get", "nodes", "--status", status, *at, "-o", "name").out.split()
        assert some == [row["name"] for row in rows if row["status"] == status]
    pools = reconciler("get", "pools", *at, "-o", "json").json
    assert sum(pool["nodes"] for pool in pools) == len(rows)
    assert {status for pool in pools for status in pool["statuses"]} == found
    assert all(pool["in_service"] + pool["out"] + pool["unknown"] == pool["nodes"] for pool in pools)


def test_without_a_ledger_the_spec_is_told_and_no_ledger_is_made(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    done = reconciler("get", "nodes", "gpu-a001", "--spec", SPEC, "-o", "json", env=env)
    assert (done.code, done.json[0]["status"], done.json[0]["in_service"]) == (0, "unknown", None)
    assert "there is no ledger" in done.err
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_name_that_is_none_is_told(place: Path) -> None:
    done = reconciler("get", "nodes", "gpu-a01", "--spec", SPEC, "--ledger", place)
    assert (done.code, done.out) == (64, "")
    assert "'gpu-a01' matches no node" in done.err


# --- logs ------------------------------------------------------------------------------------------------------------


def test_the_journal_is_told_a_line_each_of_all_nodes_or_of_some(place: Path) -> None:
    ledger = SqlLedger(place)
    ledger.note("gpu-a001", "note", "first", NOW)
    ledger.note("gpu-a002", "note", "\x1b[31msecond", NOW)
    ledger.close()
    at = ("--spec", SPEC, "--ledger", place)
    said = reconciler("logs", "--last", "2", *at).out
    assert said == "2026-11-27 08:00:00  gpu-a001  note  first\n2026-11-27 08:00:00  gpu-a002  note  \\x1b[31msecond\n"
    only = reconciler("logs", "gpu-a001", *at, "-o", "json").out.splitlines()
    assert {json.loads(row)["node"] for row in only} == {"gpu-a001"}
    assert json.loads(only[-1])["detail"] == "first"
    done = reconciler("logs", "gpu-a01", *at)
    assert (done.code, done.out) == (64, "")
    assert "gpu-a01" in done.err


def test_values_that_healed_at_once_share_a_line(place: Path, clean: Path) -> None:
    assert reconciler("drift", SPEC, "--observation", clean, "--ledger", place).code == 0
    said = reconciler("logs", "--last", "1000", "--spec", SPEC, "--ledger", place).out.splitlines()
    assert any(line.endswith(" values as desired again") for line in said)
    rows = reconciler("logs", "--last", "1000", "--spec", SPEC, "--ledger", place, "-o", "json").out.splitlines()
    assert len(said) < len(rows)


@pytest.mark.wire
def test_a_journal_is_followed_as_it_is_written(place: Path) -> None:
    process = started("logs", "gpu-a001", "--follow", "--last", "1", "--spec", SPEC, "--ledger", place)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        ledger = SqlLedger(place)
        ledger.note("gpu-a002", "note", "of another node", NOW)
        ledger.note("gpu-a001", "note", "just now", datetime.now(UTC))
        ledger.close()
        assert process.stdout.readline().endswith("gpu-a001  note  just now\n")
        process.send_signal(2)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.wire
def test_it_ends_when_nobody_reads_it_any_more(place: Path) -> None:
    """`reconciler logs -f | head -1`"""
    process = started("logs", "--follow", "--last", "1", "--spec", SPEC, "--ledger", place)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        ledger = SqlLedger(place)
        ledger.note("gpu-a001", "note", "to nobody", datetime.now(UTC))
        ledger.close()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_what_is_not_there_is_not_followed(tmp_path: Path) -> None:
    began = time.monotonic()
    done = reconciler("logs", "--follow", "--spec", SPEC, env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.code, done.out) == (64, "")
    assert "to follow yet; apply and run make it" in done.err
    assert time.monotonic() - began < 30
