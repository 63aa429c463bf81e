"""A soak under a real systemd, followed over a real sshd by a process that is killed, and by the next one.

They wait for a minute of real time and more, so that only `make soak-systemd` runs them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.gate.soak import on_node
from tests.cli.shell import ROOT, until
from tests.converge.soak_machine import NoMachine, SoakMachine

pytestmark = [
    pytest.mark.tool,
    pytest.mark.wire,
    pytest.mark.skipif("SOAK_SYSTEMD" not in os.environ, reason="make soak-systemd runs it"),
]

UNIT = on_node.unit_of("a1")
LOAD = "sleep 0.3; cat /var/lib/reconciler/printed"
LONG, SHORT = 3600, 30  # seconds: no busy machine comes to the end of the one, all to that of the other


@pytest.fixture
def machine() -> Iterator[SoakMachine]:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        try:
            made = SoakMachine(Path(folder))
            made.boot()
        except NoMachine as why:
            pytest.skip(f"there can be no machine with a systemd here: {why}")
        (made.disk / "printed").write_text("speed 100\n")
        try:
            yield made
        finally:
            made.cut_power()


def started(machine: SoakMachine, seconds: int = LONG, *, resumed: bool = False) -> subprocess.Popen[str]:
    given = {"port": machine.port, "key": machine.key, "seconds": seconds, "run": LOAD, "resumed": resumed}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.converge.soak_process", json.dumps(given)], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip


def seconds_left(line: str) -> int:
    found = re.match(r"soak: .* (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? left", line)
    assert found is not None, line
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def in_the_middle(machine: SoakMachine, process: subprocess.Popen[str]) -> int:
    """Wait until the soak has run some loads, and return how many seconds of it the process told to be left."""
    assert process.stdout is not None
    left = seconds_left(process.stdout.readline())
    until(lambda: runs(machine) > 2)
    return left


def killed_in_the_middle(machine: SoakMachine, seconds: int = LONG) -> int:
    """Start a soak, and kill the process that follows it with SIGKILL."""
    with started(machine, seconds) as process:
        left = in_the_middle(machine, process)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return left


def ended(process: subprocess.Popen[str]) -> tuple[list[str], Any]:
    out, _ = process.communicate(timeout=180)
    *lines, last = out.splitlines()
    return lines, json.loads(last)


def runs(machine: SoakMachine) -> int:
    return len((machine.disk / "soak/a1/runs").read_text().splitlines())


def invocation(machine: SoakMachine) -> str:
    return machine.run("systemctl", "show", "-p", "InvocationID,ActiveState", UNIT)


def nothing_is_left(machine: SoakMachine) -> bool:
    state = machine.run("systemctl", "show", "-p", "LoadState,ActiveState", UNIT)
    return state == "LoadState=not-found\nActiveState=inactive\n" and not list((machine.disk / "soak").iterdir())


def test_it_goes_on_without_us_and_the_next_process_ends_it(machine: SoakMachine) -> None:
    left = killed_in_the_middle(machine, SHORT)
    before, unit = runs(machine), invocation(machine)
    assert "ActiveState=active" in unit
    until(lambda: runs(machine) > before + 1)  # nobody follows it, and it runs
    process = started(machine, SHORT, resumed=True)
    assert process.stdout is not None
    assert seconds_left(process.stdout.readline()) < left, "it is not begun anew"
    assert invocation(machine) == unit
    _, result = ended(process)
    assert (result["verdict"], result["why"]) == ("pass", "")
    assert result["metrics"]["hours"] >= SHORT / 3600
    assert nothing_is_left(machine)


def test_a_run_that_was_bad_while_nobody_looked_fails_it(machine: SoakMachine) -> None:
    killed_in_the_middle(machine)
    printed = machine.disk / "printed"
    printed.write_text("speed 40\n")
    before = runs(machine)
    until(lambda: runs(machine) > before + 1)
    printed.write_text("speed 100\n")
    _, result = ended(started(machine, resumed=True))
    assert result["verdict"] == "fail"
    assert "speed 40 < 50" in result["why"]
    assert nothing_is_left(machine)


def test_a_power_cut_in_the_middle_fails_it(machine: SoakMachine) -> None:
    killed_in_the_middle(machine)
    machine.cut_power()
    machine.boot()
    _, result = ended(started(machine, resumed=True))
    assert result["verdict"] == "fail"
    assert "booted in the middle" in result["why"]
    assert nothing_is_left(machine)


def test_a_power_cut_that_a_process_watches_fails_it(machine: SoakMachine) -> None:
    """Its connection breaks, and it waits for the machine to come back."""
    process = started(machine)
    in_the_middle(machine, process)
    machine.cut_power()
    time.sleep(1)
    machine.boot()
    _, result = ended(process)
    assert result["verdict"] == "fail"
    assert "booted in the middle" in result["why"]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (("kill", "--signal=KILL", UNIT), "Result=signal, ExecMainStatus=9"),
        (("stop", UNIT), "ActiveState=inactive"),
    ],
    ids=["kill", "stop"],
)
def test_a_unit_that_somebody_ends_is_an_error_and_no_failure_of_the_node(
    machine: SoakMachine, words: tuple[str, ...], state: str
) -> None:
    killed_in_the_middle(machine)
    machine.run("systemctl", *words)
    until(lambda: "ActiveState=active" not in invocation(machine), seconds=60)
    _, result = ended(started(machine, resumed=True))
    assert result["verdict"] == "error"
    assert "its unit ended before its time" in result["why"]
    assert state in result["why"]
    assert nothing_is_left(machine)
