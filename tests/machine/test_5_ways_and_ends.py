"""The other way into the installer, an image that does not come up, and a machine that leaves the fleet for good."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

import pytest

from tests.machine.bmc import DRIVE_SERIAL, SECOND_SERIAL
from tests.machine.builds import IMAGE
from tests.machine.fleet import Fleet
from tests.machine.machine import NAME, SECTOR, Machine, holds_data
from tests.machine.operations import (
    ESP,
    Figure,
    converge,
    next_version,
    on_the_host,
    timed,
    unpacked,
    version_of,
)
from tests.machine.pki import Pki

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]

_HISTORY = ("history", NAME, "--output", "json")


def test_firmware_fetches_the_installer_over_http(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    """By UEFI HTTP boot, over TLS, with Secure Boot on: the installer runs from a RAM disk, and is measured as ever."""
    version, began = next_version(machine, fleet), time.monotonic()
    fleet.want(f"{version}, over HTTP", version=version, way="http")
    timed(figure, f"UEFI HTTP boot -> {version}", machine, fleet)
    assert machine.console.seen("/boot.iso", since=began), machine.console.tail()
    assert version_of(fleet) == version
    assert fleet.run("plan", "--detailed-exitcode").code == 0


def break_root(images: Path, version: str, pki: Pki) -> None:
    """Make a build of a version whose root can't be read, though its signature is good."""
    raw, served = images / "broken.raw", images / "broken.raw.zst"
    partitions = unpacked(images, version, raw)
    systems = [part for part in partitions if part["type"].upper() != ESP]
    root = max(systems, key=lambda part: part["size"])  # greater than its hash tree
    with raw.open("r+b") as file:
        file.seek(root["start"] * SECTOR)
        file.write(bytes(1 << 16))
    subprocess.run(["zstd", "-1qf", "--rm", str(raw), "-o", str(served)], check=True)
    with served.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    line, signature = images / "broken.line", images / "broken.minisig"
    line.write_text(f"{IMAGE} {version} {digest}\n")
    words = ["-S", "-s", str(pki.minisign), "-m", str(line), "-x", str(signature)]
    subprocess.run(["minisign", *words, "-t", f"image {IMAGE} version {version}"], check=True, capture_output=True)


def test_an_image_that_does_not_come_up_is_left_again(
    machine: Machine, fleet: Fleet, images: None, figure: Figure, pki: Pki
) -> None:
    """The boot loader counts three tries, and takes the other slot."""
    if not machine.partitions():
        fleet.want("A machine", version="A")
        timed(figure, "empty disk -> A", machine, fleet)
    version = next_version(machine, fleet)
    here = version_of(fleet)
    break_root(fleet.images, version, pki)
    fleet.want(f"{version}, with a broken root", version=version, build="broken")
    began = time.monotonic()
    applied = converge(fleet)
    figure(f"{version} does not come up: back on {here} in {time.monotonic() - began:.0f} s")
    told = f"{IMAGE} {version} did not come up: the boot loader fell back to slot"
    assert told in applied.text, f"{applied.text}\n{machine.console.tail()}"
    assert applied.code != 0
    assert f"IMAGE_VERSION={here}" in on_the_host(fleet, "cat", "/usr/lib/os-release")
    assert "out of service" in fleet.run("explain", NAME).text


def test_a_decommissioned_machine_has_empty_drives_and_evidence_of_each_in_the_ledger(
    machine: Machine, home: Path, fleet: Fleet, images: None, figure: Figure
) -> None:
    """No system answers, so that our installer erases, both drives in one boot. They are NVMe: no SCSI disk of QEMU can
    prove an erase."""
    leaving = Fleet(home / "leaving", fleet.pki, fleet.builds)
    leaving.make()
    if machine.is_on():
        machine.cut_power()
    machine.build(serial="SPARE", nvme=(DRIVE_SERIAL, SECOND_SERIAL))
    for drive in machine.nvme:
        with drive.open("r+b") as disk:
            subprocess.run(["zstd", "-dcq", str(fleet.images / "A.raw.zst")], stdout=disk, check=True)
    leaving.want("It leaves", version="A", leaves=True)
    assert leaving.run("plan", "--create-ledger", "--out", "plan.json").code == 0
    words = ("apply", "--plan", "plan.json", "--yes", "--wait", "10m")
    assert leaving.run(*words).code != 0  # --yes is no consent to this
    assert all(map(holds_data, machine.nvme))
    began = time.monotonic()
    applied = leaving.run(*words, "--confirm", f"decommission {NAME}")
    figure(f"decommissioned in {time.monotonic() - began:.0f} s")
    assert applied.code == 0, f"{applied.text}\n{machine.console.tail()}"
    assert not machine.is_on()
    assert not any(map(holds_data, machine.nvme))
    assert machine.console.count("] power off", since=began) == 1  # of one boot
    history = leaving.run(*_HISTORY).text
    assert all(words in history for words in ("nvme format", '"result": "erased"', DRIVE_SERIAL, SECOND_SERIAL)), (
        history
    )
    assert leaving.run("audit", "verify").code == 0
