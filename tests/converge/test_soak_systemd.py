"""A soak under a real systemd, followed over a real sshd by a process that is killed, and by the next one."""

from __future__ import annotations

import json
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

pytestmark = [pytest.mark.tool, pytest.mark.wire]

UNIT = on_node.unit_of("a1")
LOAD = "sleep 0.3; cat /var/lib/reconciler/printed"
SECONDS = 12


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


def started(machine: SoakMachine, *, resumed: bool = False) -> subprocess.Popen[str]:
    given = {"port": machine.port, "key": machine.key, "seconds": SECONDS, "run": LOAD, "resumed": resumed}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.converge.soak_process", json.dumps(given)], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip


def percent(line: str) -> int:
    found = re.match(r"soak: (\d+) %", line)
    assert found is not None, line
    return int(found[1])


def killed_in_the_middle(machine: SoakMachine) -> int:
    """Start a soak, kill the process that follows it with SIGKILL, and return how far it told that the soak was."""
    process = started(machine)
    assert process.stdout is not None
    with process:
        far = 0
        while far < 25:
            far = percent(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return far


def ended(process: subprocess.Popen[str]) -> tuple[list[str], Any]:
    out, _ = process.communicate(timeout=60)
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
    far = killed_in_the_middle(machine)
    before, unit = runs(machine), invocation(machine)
    assert "ActiveState=active" in unit
    time.sleep(1.5)
    assert runs(machine) > before + 1, "nobody follows it, and it runs"
    process = started(machine, resumed=True)
    assert process.stdout is not None
    assert percent(process.stdout.readline()) > far, "it is not begun anew"
    assert invocation(machine) == unit
    _, result = ended(process)
    assert (result["verdict"], result["why"]) == ("pass", "")
    assert result["metrics"]["hours"] >= SECONDS / 3600
    assert nothing_is_left(machine)


def test_a_run_that_was_bad_while_nobody_looked_fails_it(machine: SoakMachine) -> None:
    killed_in_the_middle(machine)
    printed = machine.disk / "printed"
    printed.write_text("speed 40\n")
    time.sleep(1.5)
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
    assert process.stdout is not None
    while percent(process.stdout.readline()) < 25:
        pass
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
    until(lambda: "ActiveState=active" not in invocation(machine), seconds=10)
    _, result = ended(started(machine, resumed=True))
    assert result["verdict"] == "error"
    assert "its unit ended before its time" in result["why"]
    assert state in result["why"]
    assert nothing_is_left(machine)
