"""`reconciler status`: from an observation, from a lab at work, and on a terminal that follows it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.soak_progress import JOURNALED, SoakProgress
from tests.cli.shell import SPEC, LabDirectory, command, ended, reconciler, running_lab, started, until

HOUR = 3600


def test_each_node_is_counted_once_in_its_pool_and_in_the_fleet(demo: Path, clean: Path) -> None:
    found = reconciler("status", SPEC, "--observation", demo, "-o", "json").json
    assert found["counts"]["nodes"] == 12
    for counts in (found["counts"], *found["pools"].values()):
        assert sum(counts["statuses"].values()) == counts["nodes"]
    for key in ("nodes", "in_service", "out"):
        assert sum(pool[key] for pool in found["pools"].values()) == found["counts"][key]
    assert found["incomplete"] == ["gpu-a008"]
    assert found["silent"] == {"redfish unreachable": 1, "ssh explained": 1}
    doctor = "Next: `reconciler doctor` says what to do about what does not answer."
    assert doctor in reconciler("status", SPEC, "--observation", demo).out
    assert doctor not in reconciler("status", SPEC, "--observation", clean).out


def test_what_plan_finds_is_what_status_counts(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "config" / "reconciler" / "secrets.yaml").write_text('{"secrets": {}}')  # no key: no image is trusted
    given = (SPEC, "--observation", demo, "-o", "json")
    found, plan = reconciler("status", *given).json, reconciler("plan", *given).json
    blocked = {name for name, node in plan["nodes"].items() if node["blocked"] and node["blocked"]["code"] == "no_path"}
    assert blocked
    assert {one["node"] for one in found["trouble"]} == blocked
    assert found["counts"]["out"] == plan["totals"]["nodes_out_before"]


def test_codes_for_a_monitor(demo: Path, clean: Path, tmp_path: Path) -> None:
    assert reconciler("status", SPEC, "--observation", demo, "--detailed-exitcode").code == 4
    given = (SPEC, "--observation", clean, "--detailed-exitcode", "--ledger", tmp_path / "ledger.sqlite")
    assert reconciler("status", *given, "--create-ledger").code == 2, "no certificate"
    assert reconciler("stop", SPEC, "--reason", "power cut", "--ledger", given[-1]).code == 0
    stopped = reconciler("status", *given)
    assert (stopped.code, "STOPPED by ops" in stopped.out, "power cut" in stopped.out) == (8, True, True)


def test_a_status_that_was_kept_is_shown_and_is_no_change_to_comment_on(demo: Path, tmp_path: Path) -> None:
    kept = tmp_path / "status.json"
    kept.write_text(reconciler("status", SPEC, "--observation", demo, "-o", "json").out)
    shown = reconciler("show", kept)
    assert shown.code == 0
    assert shown.out.startswith("Status of fleet demo: ")
    refused = reconciler("comment", kept)
    assert (refused.code, "a status is of one instant" in refused.err) == (64, True)


def test_a_soak_under_way_is_told_with_its_end(demo: Path, tmp_path: Path) -> None:
    now, place = datetime.now(UTC), tmp_path / "ledger.sqlite"
    book = SqlLedger(place)
    lease = book.acquire("demo", "a runner", 86400.0, now)
    number = book.begin("run-1", "gpu-a001", "run_gate", "", "gate.certificate", {}, lease.token, now)
    progress = SoakProgress(72 * HOUR, 31 * HOUR, now - timedelta(minutes=2))
    book.amend(number, {"soak": "gpu-a001-1", JOURNALED: progress.journaled()}, now)
    book.close()
    before = place.read_bytes()
    text = reconciler("status", SPEC, "--ledger", place, "--observation", demo).out
    assert re.search(r"gpu-a001 +run_gate +\d+s +soak: 1d07h of 3d00h and no bad sign.*ends about", text)
    assert "a runner acts on demo since" in text
    assert place.read_bytes() == before, "who looks writes nothing"


def test_watching_a_file_is_refused(demo: Path) -> None:
    done = reconciler("status", SPEC, "--observation", demo, "--watch")
    assert (done.code, "use one of them" in done.err) == (64, True)


@pytest.mark.wire
def test_a_lab_at_work_is_followed_on_a_terminal_until_ctrl_c(tmp_path: Path) -> None:
    with running_lab(tmp_path / "lab") as lab, started(*lab.words("apply", "--plan", lab.plan(), "--yes")) as apply:
        until(lambda: re.search(r"Runs now \([1-3]\)\n  .* acts on lab since", lab.run("status").out), 120)
        screen = _watched(lab)
        assert re.search(r"Status of fleet lab: \d of 3 nodes as specified", screen)
        assert "The nodes are read again in" in screen
        assert ended(apply, 240).code == 0
        after = lab.run("status", "--detailed-exitcode")
        assert "3 of 3 nodes as specified, 3 in service, 0 out" in after.out
        assert after.code == 0


def _watched(lab: LabDirectory) -> str:
    """Return what a terminal of 100 columns shows of --watch. Ctrl-C ends it, with the code of an interruption."""
    ours, theirs = pty.openpty()
    words = command(*lab.words("status", "--watch", "--interval", "5s"))
    env = {**os.environ, "COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
    none = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=none, stdout=theirs, stderr=none, env=env) as process:
        os.close(theirs)
        text, give_up = "", time.monotonic() + 60
        while "Ctrl-C ends it" not in text:
            assert time.monotonic() < give_up, text
            if select.select([ours], [], [], 1)[0]:
                text += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    os.close(ours)
    return text
