"""From an empty disk to an image in service, and on to the next one, as an operator does it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.machine.fleet import Command, Fleet
from tests.machine.machine import ADDRESS, NAME, Machine
from tests.machine.timeline import INSTALL, parts_of, shown

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]

Figure = Callable[[str], None]
_WRITES_S = 1200.0
_SOME_BYTES = 32 << 20


def converge(fleet: Fleet) -> Command:
    """Plan and apply, as a pipeline does: off a terminal, what is applied is a plan that was reviewed."""
    plan = fleet.run("plan", "--create-ledger", "--out", "plan.json")
    assert plan.code == 0, plan.text
    return fleet.run("apply", "--plan", "plan.json", "--yes", "--wait", "0")


def timed(figure: Figure, step: str, machine: Machine, fleet: Fleet) -> Command:
    """Converge, and tell where the time went."""
    began = time.monotonic()
    applied = converge(fleet)
    figure(shown(step, parts_of(began, [*machine.console.lines, *applied.lines], INSTALL)))
    assert applied.code == 0, f"{applied.text}\n{machine.console.tail()}"
    return applied


def on_the_host(fleet: Fleet, *command: str) -> str:
    """Run a command on the machine, whose host key the fleet's CA has signed."""
    known = fleet.home / "known_hosts"
    known.write_text(f"@cert-authority * {fleet.pki.host_ca.with_suffix('.pub').read_text()}")
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    ssh = ["ssh", "-i", str(fleet.pki.reconciler_ssh), *options, f"root@{ADDRESS}", *command]
    done = subprocess.run(ssh, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wrong_signature_writes_nothing(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    """Let the spec give to the digest of B what the release key signed for A."""
    began = time.monotonic()
    fleet.want("A forged image", version="B", forged=True)
    applied = converge(fleet)
    figure(f"wrong signature: refused in {time.monotonic() - began:.0f} s")
    assert "the signature of image machine B does not verify" in applied.text
    assert not machine.is_on()
    assert (machine.written_bytes(), machine.partitions()) == (0, [])


def test_an_empty_disk_becomes_a_node_in_service(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    fleet.want("A new machine", version="A")
    timed(figure, "empty disk -> A", machine, fleet)
    assert json.loads(on_the_host(fleet, "cat", "/etc/reconciler/image.json"))["version"] == "A"
    assert "now in service" in fleet.run("explain", NAME).text
    assert fleet.run("plan", "--detailed-exitcode").code == 0  # nothing to do


def test_the_next_image_and_a_bios_value_at_once(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    fleet.want("B, without turbo", version="B", turbo="Disabled")
    timed(figure, "A -> B and a BIOS value", machine, fleet)
    assert json.loads(on_the_host(fleet, "cat", "/etc/reconciler/image.json"))["version"] == "B"
    assert fleet.run("plan", "--detailed-exitcode").code == 0


def test_back_to_the_first_image_though_the_power_is_cut_in_the_write(
    machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    fleet.revert()
    before = machine.written_bytes()
    assert fleet.run("plan", "--out", "plan.json").code == 0
    with fleet.start("apply", "--plan", "plan.json", "--yes", "--wait", "0") as apply:
        deadline = time.monotonic() + _WRITES_S
        while not machine.console.seen("writing", since=deadline - _WRITES_S) and time.monotonic() < deadline:
            assert apply.poll() is None, "it ended before it wrote"
            time.sleep(0.5)
        while machine.written_bytes() < before + _SOME_BYTES and time.monotonic() < deadline:
            time.sleep(0.5)
        machine.cut_power()
        apply.kill()
    timed(figure, "back to A, by git revert, after a power cut in the write", machine, fleet)
    assert json.loads(on_the_host(fleet, "cat", "/etc/reconciler/image.json"))["version"] == "A"
