"""What the tests of a machine do with it: converge as a pipeline does, wait for its console, and look into it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.machine.fleet import Command, Fleet
from tests.machine.machine import ADDRESS, NAME, Machine
from tests.machine.timeline import INSTALL, parts_of, shown

Figure = Callable[[str], None]
WRITES_S = 1200.0
_POLL_S = 0.5
_LEASE_S = 60.0  # until another run may act in place of one that was killed


def converge(fleet: Fleet, *words: str) -> Command:
    """Plan and apply, as a pipeline does: off a terminal, what is applied is a plan that was reviewed."""
    plan = fleet.run("plan", "--create-ledger", "--out", "plan.json")
    assert plan.code == 0, plan.text
    return fleet.run("apply", "--plan", "plan.json", "--yes", "--wait", "10m", *words)


def timed(figure: Figure, step: str, machine: Machine, fleet: Fleet) -> Command:
    """Converge, and tell where the time went."""
    began = time.monotonic()
    applied = converge(fleet)
    figure(shown(step, parts_of(began, [*machine.console.lines, *applied.lines], INSTALL)))
    assert applied.code == 0, f"{applied.text}\n{machine.console.tail()}"
    return applied


@contextlib.contextmanager
def applying(fleet: Fleet) -> Iterator[subprocess.Popen[str]]:
    """Plan, start to apply, and kill it at the end, as a machine does that loses its power."""
    plan = fleet.run("plan", "--create-ledger", "--out", "plan.json")
    assert plan.code == 0, plan.text
    with fleet.start("apply", "--plan", "plan.json", "--yes", "--wait", "0", quiet=True) as apply:
        try:
            yield apply
        finally:
            apply.kill()
    time.sleep(_LEASE_S)


def wait_until(
    apply: subprocess.Popen[str], what: str, holds: Callable[[], object], within_s: float = WRITES_S
) -> None:
    """Wait until something holds, while an apply is at work."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert apply.poll() is None, f"apply ended before: {what}"
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(_POLL_S)


def on_the_host(fleet: Fleet, *command: str) -> str:
    """Run a command on the machine, whose host key the fleet's CA has signed."""
    known = fleet.home / "known_hosts"
    known.write_text(f"@cert-authority * {fleet.pki.host_ca.with_suffix('.pub').read_text()}")
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    options += ["-o", f"HostKeyAlias={NAME}"]  # the certificate is for the node's name, not for its address
    ssh = ["ssh", "-i", str(fleet.pki.reconciler_ssh), *options, f"root@{ADDRESS}", *command]
    done = subprocess.run(ssh, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def version_of(fleet: Fleet) -> str:
    """Return the version of the image that the machine says it runs."""
    return str(json.loads(on_the_host(fleet, "cat", "/etc/reconciler/image.json"))["version"])


# A file on the partition `data`, and the identities of both partitions that installs leave as they are.
_LEAVE = "mkdir -p /run/kept; mount PARTLABEL=data /run/kept; {}; umount /run/kept"
_IDENTITIES = "for name in state data; do blkid -s UUID -o value -t PARTLABEL=$name; done"


def leave_a_canary(fleet: Fleet) -> str:
    """Leave a file on the data partition, and return what must be the same after the next install."""
    on_the_host(fleet, _LEAVE.format("date +%s%N > /run/kept/canary; sync"))
    return canary(fleet)


def canary(fleet: Fleet) -> str:
    return on_the_host(fleet, _LEAVE.format("cat /run/kept/canary") + "; " + _IDENTITIES)


def medium_of(folder: Path = Path("/var/lib/libvirt/images")) -> Path | None:
    """Return the boot medium as the BMC's emulator has it, once it holds an attempt's data."""
    return next((file for file in folder.glob("*") if b'"url"' in file.read_bytes()), None)
