"""The effect of the faults slow_gpu, throttle, cable, flap and leaf on GPUs and rails, for the tools that measure it.

A cable and a leaf slow what leaves the node. A test of an adapter with itself passes neither of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconciler.lab.hardware.state import GpuState, MachineState

THROTTLES: Final = ("thermal", "power_brake")
CLOCK, POWER, HEAT = 1755.0, 690.0, 61.0  # MHz, W and °C of a GPU under full load
_HOT = 89.0  # °C at which its hardware slows the clock
_GARBLED = 40.0  # symbol errors a second on a bad cable


class Load(NamedTuple):
    """A GPU under full load: share of the usual speed, degrees, watts and MHz; `slowed`: one of THROTTLES, or ""."""

    pace: float
    heat: float
    power: float
    clock: float
    slowed: str = ""


def under_load(state: MachineState, gpu: GpuState) -> Load:
    """Return how a GPU bears a load. A power brake slows all of a node; heat, and a slow GPU, the one."""
    slow, throttle = state.faults.get("slow_gpu"), state.faults.get("throttle")
    pace = float(slow["share"]) if slow is not None and slow["gpu"] == gpu.index else 1.0
    if throttle is None or (throttle["by"] == "thermal" and throttle["gpu"] != gpu.index):
        return Load(pace, HEAT, POWER, CLOCK)
    clock = min(CLOCK, float(throttle["mhz"]))
    left = clock / CLOCK
    heat = _HOT if throttle["by"] == "thermal" else HEAT * (1 + left) / 2
    return Load(pace * left, heat, POWER * left, clock, str(throttle["by"]))


def show_brake(state: MachineState, *, on: bool) -> None:
    """Show a power brake in nvidia-smi -q -x, or take it back. It is on in idle GPUs, too; heat goes with the load."""
    for gpu in state.gpus:
        gpu.cells.pop("power_brake", None)
        if on:
            gpu.cells["power_brake"] = "Active"


class Rail(NamedTuple):
    """The effect of an RDMA port's link on its traffic.

    `pace`: share of the line rate of what leaves the node; `garbled`: symbol errors a second; `every_s`: seconds from
    one loss of the link to the next, 0 = never; `since`: when that began.
    """

    pace: float = 1.0
    garbled: float = 0.0
    every_s: float = 0.0
    since: float = 0.0

    def errors(self, at: float) -> int:
        """Return how many symbol errors the port has counted."""
        return int(self.garbled * (at - self.since))

    def downs(self, at: float) -> int:
        """Return how often the link has gone down."""
        return int((at - self.since) // self.every_s) if self.every_s else 0


def rail(state: MachineState, port: int) -> Rail:
    found = {kind: state.faults[kind] for kind in ("cable", "flap", "leaf") if kind in state.faults}
    mine = {kind: given for kind, given in found.items() if given["port"] == port}
    return Rail(
        min((float(given["pace"]) for given in mine.values() if "pace" in given), default=1.0),
        _GARBLED if "cable" in mine else 0.0,
        float(mine["flap"]["every_s"]) if "flap" in mine else 0.0,
        min((state.fault_since[kind] for kind in mine), default=0.0),
    )


def port_of(device: str) -> int:
    """Return the number of a device, as in mlx5_3; -1 for one of another name."""
    number = device.removeprefix("mlx5_")
    return int(number) if number.isdecimal() and number != device else -1
