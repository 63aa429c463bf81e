"""What the tests of a machine do with it: converge as a pipeline does, wait for its console, and look into it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.machine.bmc import virsh
from tests.machine.builds import VERSIONS
from tests.machine.fleet import Command, Fleet
from tests.machine.machine import ADDRESS, NAME, SECTOR, Machine
from tests.machine.timeline import INSTALL, parts_of, shown
from tests.machine.traced import calls_in

Figure = Callable[[str], None]
WRITES_S = 1200.0
_POLL_S = 0.5
ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
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
    lines = [*machine.console.lines, *applied.lines]
    figure(shown(step, parts_of(began, lines, INSTALL, calls_in(fleet.calls))))
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
    apply: subprocess.Popen[str], fleet: Fleet, what: str, holds: Callable[[], object], within_s: float = WRITES_S
) -> None:
    """Wait until something holds, while an apply is at work."""
    deadline = time.monotonic() + within_s
    while not holds():
        ended, late = apply.poll() is not None, time.monotonic() > deadline
        if (ended or late) and not holds():  # it may have held just before the end
            said = fleet.log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{'apply ended before' if ended else f'not within {within_s:.0f} s'}: {what}\n{said}")
        time.sleep(_POLL_S)


def on_the_host(fleet: Fleet, *command: str) -> str:
    """Run a command on the machine, whose host key the fleet's CA has signed."""
    known = fleet.home / "known_hosts"
    known.write_text(f"@cert-authority * {fleet.pki.host_ca.with_suffix('.pub').read_text()}")
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    options += ["-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=60"]  # a machine that boots may accept and stall
    options += ["-o", f"HostKeyAlias={NAME}"]  # the certificate is for the node's name, not for its address
    ssh = ["ssh", "-i", str(fleet.pki.reconciler_ssh), *options, f"root@{ADDRESS}", *command]
    done = subprocess.run(ssh, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def version_of(fleet: Fleet) -> str:
    """Return the version of the image that the machine says it runs."""
    return str(json.loads(on_the_host(fleet, "cat", "/etc/reconciler/image.json"))["version"])


def next_version(machine: Machine, fleet: Fleet) -> str:
    """Return the version that is not installed."""
    running = ""
    if machine.partitions():
        if not machine.is_on():
            virsh("start", NAME)
        wait_for_host(machine, fleet)
        running = version_of(fleet)
    return next(version for version in VERSIONS if version != running)


# A file on the partition `data`, and the identities of both partitions that installs leave as they are.
_LEAVE = "mkdir -p /run/kept; mount PARTLABEL=data /run/kept; {}; umount /run/kept"
_IDENTITIES = "for name in state data; do blkid -s UUID -o value -t PARTLABEL=$name; done"


def leave_a_canary(fleet: Fleet) -> str:
    """Leave a file on the data partition, and return what must be the same after the next install."""
    on_the_host(fleet, _LEAVE.format("date +%s%N > /run/kept/canary; sync"))
    return canary(fleet)


def canary(fleet: Fleet) -> str:
    return on_the_host(fleet, _LEAVE.format("cat /run/kept/canary") + "; " + _IDENTITIES)


@contextlib.contextmanager
def nothing_installed(machine: Machine, since: float) -> Iterator[None]:
    """Assert that meanwhile no installer began to write, and that what only installs write stays as it is.

    Blocks of the disk's file tell nothing: what boots meanwhile writes its logs, and the boot loader counts its tries.
    """
    before = machine.slots()
    yield
    assert machine.console.seen("] writing:", since=since) is None, machine.console.tail()
    assert machine.slots() == before


def wait_for_host(machine: Machine, fleet: Fleet, within_s: float = WRITES_S) -> None:
    """Wait until the machine answers over SSH, with a host key that the fleet's CA has signed."""
    deadline = time.monotonic() + within_s
    while not _answers(fleet):
        assert time.monotonic() < deadline, machine.console.tail()
        time.sleep(5)


def _answers(fleet: Fleet) -> bool:
    try:
        on_the_host(fleet, "true")
    except AssertionError:
        return False
    return True


def unpacked(images: Path, version: str, raw: Path) -> list[dict[str, Any]]:
    """Unpack the image of a version, and return its partitions."""
    subprocess.run(["zstd", "-dqf", str(images / f"{version}.raw.zst"), "-o", str(raw)], check=True)
    told = subprocess.run(["sfdisk", "--json", str(raw)], check=True, capture_output=True, text=True).stdout
    found: list[dict[str, Any]] = json.loads(told)["partitiontable"]["partitions"]
    return found


def written_of(images: Path, version: str) -> int:
    """Return how many bytes of a version an install writes: root and hash tree. Of the ESP it takes files."""
    raw = images / "measured.raw"
    sizes = [part["size"] * SECTOR for part in unpacked(images, version, raw) if part["type"].upper() != ESP]
    raw.unlink()
    return sum(sizes)


def medium_of(since: float, folder: Path = Path("/var/lib/libvirt/images")) -> Path | None:
    """Return the boot medium that the BMC's emulator has got since then (time.time()), once it holds an attempt's data.

    The emulator keeps those of earlier attempts, too.
    """
    new = (file for file in folder.glob("*") if file.stat().st_mtime >= since)
    return next((file for file in new if b'"url"' in file.read_bytes()), None)
