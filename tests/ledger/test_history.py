"""`history NODE`: a night's history, as the person on call reads it, on SQLite and PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.drivers.ledger import SqlLedger, schema
from reconciler.model.records import FLEET, Rollout
from tests.cli.shell import SPEC, Done, reconciler
from tests.ledger.test_damage import damage
from tests.ledger.test_ledger import certificate

NODE, POOL = "gpu-a002", "train"  # of the example
COMMIT = "3f2a9c1b2d4e5f60718293a4b5c6d7e8f9012345"
SECRET = "-----BEGIN OPENSSH PRIVATE KEY----- hunter2"
NIGHT = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5)


def minute(number: float) -> datetime:
    return NIGHT + timedelta(minutes=number)


@pytest.fixture
def night(where: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    """A rollout that comes to the node: firmware fails once, the image goes on, the gate passes; then people."""
    monkeypatch.setattr(f"{__name__}.NIGHT", datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5))
    book = SqlLedger(where)
    token = book.acquire("demo", "ops", 360_000, minute(0)).token
    book.start_run("run-1", "apply", COMMIT, "plan-1", minute(0))
    drift = [
        (NODE, "image.version", "pending", "2026.11.1", "2026.10.1"),
        (NODE, "bios.Numa", "drifted", "NPS1", "NPS0"),
    ]
    dark = [(NODE, f"host.sysctls.x{number}", "unknown", "1", None) for number in range(9)]
    book.record_drift("run-1", [*drift, *dark], [NODE], minute(1))
    members = ("gpu-a001", NODE, "gpu-a003")
    values = {"image.version": ("2026.11.1",)}
    book.start_rollout(Rollout(POOL, "d", values, {}, members, False, minute(2), COMMIT), "run-1")

    def act(
        action: str, target: str, cause: str, begin: float, end: float | None, told: str = "", run: str = "run-1",
        **learnt: Any,
    ) -> None:  # fmt: skip
        attempt = book.begin(run, NODE, action, target, cause, {"boot_id": "b-1"}, token, minute(begin))
        if learnt:
            book.amend(attempt, learnt, minute(begin))
        if end is not None:
            word, _, detail = told.partition(": ")
            book.finish(attempt, word, detail, minute(end))

    act("mark", "", "required by drain", 3, 3.1, "done: out of service")
    act("update_firmware", "bmc", "firmware.bmc", 9, 15, "transient: the BMC did not come back", task="/Tasks/12")
    act("reimage", "", "image.version", 16, 29, "done: ubuntu-gpu 2026.11.1 on S6CK", document={"host_key": SECRET})
    book.save_certificate(certificate(NODE, minute(33)))
    book.record_drift("run-1", drift[1:], [NODE], minute(34))
    book.end_run("run-1", 7, "3 actions", minute(35))
    book.hold(f"pool/{POOL}", "rack r1 has no cooling", "noc", None, minute(40))
    book.release(f"pool/{POOL}", "noc", minute(50))
    book.hold(FLEET, "power is going", "noc", None, minute(51))
    book.release(FLEET, "noc", minute(52))
    book.hold("pool/infer", "nobody's business here", "noc", None, minute(53))
    book.hold(NODE, "ticket 4711 \x1b[31m", "kim", None, minute(60))
    book.start_run("run-2", "apply", "", "run-2", minute(100))
    act("soft_restart", "", "bios.Numa", 101, None, run="run-2")
    yield book
    book.close()


def history(where: str, *words: str) -> Done:
    done = reconciler("history", NODE, "--spec", SPEC, "--ledger", where, *words)
    assert done.code == 0, done.err
    return done


def lines(out: str) -> list[str]:
    return [
        re.sub(r"\s+", " ", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "T", line)).strip()
        for line in out.splitlines()
    ]


@pytest.mark.usefixtures("night")
def test_it_begins_with_the_node_s_state(where: str) -> None:
    said = lines(history(where).out)[:8]
    assert said[0] == f"{NODE}, as the ledger knows it at T"
    assert "held by kim since T (4h00m ago): ticket 4711 \\x1b[31m" in said
    assert "in flight soft_restart, begun T (3h19m ago), for bios.Numa" in said
    assert "drift 1 path, the first since T (4h59m ago): bios.Numa drifted: NPS0 instead of NPS1" in said
    assert "certificate dcgm pass, T (4h27m ago)" in said


def test_what_a_teardown_and_the_brake_note_is_no_silence(where: str, night: SqlLedger) -> None:
    noted = ("no cluster", "bad", "redfish")
    night.note_silences([(NODE, key, True) for key in noted], minute(200))
    cluster, silent = [line for line in lines(history(where).out) if line.startswith(("silent", "cluster"))]
    assert silent.startswith("silent redfish since")
    assert "bad" not in silent
    assert cluster.startswith("cluster none since a teardown took K3s from it")


@pytest.mark.usefixtures("night")
def test_an_action_has_its_end_and_a_run_its_commit_and_plan(where: str) -> None:
    said = lines(history(where).out)
    assert said[said.index("when what how it went detail") + 1 :] == [
        "T apply exit 7 after 35m run-1 of commit 3f2a9c1b2d4e, plan plan-1",
        "T drift, drifted appeared bios.Numa: NPS0 instead of NPS1",
        "T drift, pending appeared image.version: 2026.10.1 instead of 2026.11.1",
        "T drift, unknown appeared 9: " + ", ".join(f"host.sysctls.x{number}" for number in range(9)),
        f'T rollout rollout of image.version "2026.11.1"; this node is 2 of 3 in pool {POOL}',
        "T mark done, 6s out of service; required by drain",
        "T update_firmware:bmc transient, 6m the BMC did not come back; for firmware.bmc; task /Tasks/12",
        "T reimage done, 13m ubuntu-gpu 2026.11.1 on S6CK; for image.version",
        "T certificate dcgm pass",
        "T dcgm pass gpus 8; all 8 ran",
        "T drift gone, 33m as desired again: image.version, " + ", ".join(f"host.sysctls.x{n}" for n in range(9)),
        f"T hold of pool/{POOL} noc: rack r1 has no cooling",
        f"T release of pool/{POOL} noc",
        "T hold of the fleet noc: power is going",
        "T release of the fleet noc",
        "T hold kim: ticket 4711 \\x1b[31m",
        "T apply not ended run-2 of a spec that is not in git",
        "T soft_restart not ended for bios.Numa",
    ]


@pytest.mark.usefixtures("night")
def test_since_and_limit_cut_the_beginning_off(where: str) -> None:
    whole = history(where, "--output", "json").json
    late = history(where, "--since", "4h01m", "--output", "json").json
    assert late == whole[-len(late) :]
    assert [entry["event"] for entry in late] == ["hold", "intent"]
    assert history(where, "--since", minute(60).isoformat(), "--output", "json").json == late
    assert history(where, "--limit", "3", "--output", "json").json == whole[-3:]
    assert "There is more before" in history(where, "--last", "3").out
    assert "There is more before" not in history(where).out
    assert "nothing is recorded since then" in history(where, "--since", "1m").err
    assert reconciler("history", NODE, "--spec", SPEC, "--ledger", where, "--since", "yesterday").code == 64


@pytest.mark.usefixtures("night")
def test_json_has_the_evidence_and_no_output_has_a_secret(where: str) -> None:
    told = {(entry["event"], entry["action"]): entry for entry in history(where, "--output", "json").json}
    assert told["intent", "update_firmware:bmc"]["evidence"] == {"boot_id": "b-1", "task": "/Tasks/12"}
    assert told["outcome", "reimage"]["seconds"] == 13 * 60
    assert told["outcome", "reimage"]["attempt"] == told["intent", "reimage"]["attempt"]
    assert told["certificate", ""]["evidence"]["results"][0]["metrics"] == {"gpus": 8.0}
    assert told["rollout", ""]["evidence"]["values"] == {"image.version": ["2026.11.1"]}
    assert (told["intent", "reimage"]["commit"], told["intent", "reimage"]["plan"]) == (COMMIT, "plan-1")
    for output in ("human", "json", "markdown"):
        out = history(where, "--output", output).out
        assert "hunter2" not in out
        assert "\x1b" not in out


@pytest.mark.usefixtures("night")
def test_markdown_is_one_table(where: str) -> None:
    out = history(where, "--output", "markdown").out
    assert out.startswith(f"## History of {NODE}\n\n- **held**: by kim since ")
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert {row.count(" | ") for row in rows[:1] + rows[2:]} == {3}
    assert any("| reimage | done, 13m | ubuntu-gpu 2026.11.1 on S6CK; for image.version |" in row for row in rows)


@pytest.mark.usefixtures("night")
def test_damaged_rows_hide_no_other(where: str) -> None:
    before = len(history(where, "--output", "json").json)
    damage(where, schema.journal, data="{", at="yesterday")
    damage(where, schema.certificates, document="[")
    damage(where, schema.rollouts, document="[")
    damage(where, schema.runs, started_at="some day", ended_at="later")
    damage(where, schema.drift, observed="{")
    done = history(where)
    assert "damaged" in done.out
    assert len(history(where, "--output", "json").json) == before - 1, "all but the rollout, of which nothing is left"
