"""Lab machines on a clock that tests move."""

from __future__ import annotations

from pathlib import Path

from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.lab.scenario import load_scenario
from reconciler.model.desired import Fleet
from reconciler.model.install import (
    InstallDocument,
    InstallImage,
    InstallStatus,
    MachineIdentity,
    RootDisk,
    dump_contract,
    load_contract,
)
from reconciler.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
BOOT_S = TYPICAL.post_s + TYPICAL.os_boot_s
HOUR = 3600.0
IMAGE = ("ubuntu-gpu", "2027.01.0")  # that is in no spec
CONTENTS = {"kernel": "6.11.0-1", "driver": "575.10.01"}


class Time:
    """A clock in seconds that only tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def example_fleet() -> Fleet:
    return load_spec(ROOT / "fleet-spec", directory="fleet-spec")


def example_lab(scenario: str, time: Time, seed: int = 1) -> Lab:
    return build_lab(example_fleet(), load_scenario(scenario), time, seed=seed)


def after(machine: Machine, time: Time, seconds: float) -> Machine:
    time.pass_by(seconds)
    machine.catch_up()
    return machine


def document(machine: Machine, /, **changes: object) -> InstallDocument:
    """Return an install document that this machine accepts."""
    whole = InstallDocument(
        node=machine.name,
        hostname="fresh",
        nonce="n-1",
        machine=MachineIdentity(serial=machine.state.serial, uuid=machine.state.uuid),
        image=InstallImage(name=IMAGE[0], version=IMAGE[1], url="https://images/x", sha256="cd" * 32),
        root_disk=RootDisk(serial=machine.state.drives[0].serial),
    )
    return whole.model_copy(update=changes)


def deliver(machine: Machine, given: InstallDocument) -> list[InstallStatus]:
    """Give an installer its document, take all that it posts from then on, and return its reports as they come."""
    reports: list[InstallStatus] = []

    def serve(url: str, body: str | None, _at: float) -> str | None:
        if body is None:
            return dump_contract(given)
        if url.endswith("/status"):
            reports.append(load_contract(InstallStatus, body))
        return ""

    machine.images = {**machine.images, IMAGE: CONTENTS}
    machine.serve = serve
    machine.answer(dump_contract(given))
    return reports


def boot_installer(machine: Machine, time: Time, medium: str = "http://installer/tok/boot.iso") -> None:
    """Boot the installer until it asks for its document."""
    if machine.state.power != "off":
        machine.power("force_off")
        after(machine, time, TYPICAL.power_off_s)
    machine.insert_media(medium)
    machine.set_boot_override("Cd", "Once")
    machine.power("on")
    after(machine, time, TYPICAL.post_s + TYPICAL.installer_boot_s)


def boot_disk(machine: Machine, time: Time) -> None:
    """Boot the disk of a machine that is off, without the medium."""
    machine.eject_media()
    machine.power("on")
    after(machine, time, BOOT_S)
