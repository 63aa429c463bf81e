"""Lab machines on a clock that tests move."""

from __future__ import annotations

from pathlib import Path

from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.lab.scenario import load_scenario
from reconciler.model.desired import Fleet
from reconciler.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
BOOT_S = TYPICAL.post_s + TYPICAL.os_boot_s
HOUR = 3600.0


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


def document(machine: Machine, **changes: object) -> dict[str, object]:
    """Return an install document that this machine accepts."""
    image = {
        "name": "ubuntu-gpu", "version": "2027.01.0", "url": "https://images/x", "sha256": "cd" * 32,
        "contents": {"kernel": "6.11.0-1", "driver": "575.10.01"},
    }  # fmt: skip
    whole: dict[str, object] = {
        "node": machine.name,
        "hostname": "fresh",
        "image": image,
        "root_disk": {"serial": machine.state.drives[0].serial},
        "preserve": [],
        "nonce": "n-1",
    }
    return whole | changes


def boot_installer(machine: Machine, time: Time, medium: str = "http://installer/tok/boot.iso") -> None:
    """Boot the installer until it asks for its document."""
    if machine.state.power != "off":
        machine.power("force_off")
        after(machine, time, TYPICAL.power_off_s)
    machine.insert_media(medium)
    machine.set_boot_override("Cd", "Once")
    machine.power("on")
    after(machine, time, TYPICAL.post_s + TYPICAL.installer_boot_s)
