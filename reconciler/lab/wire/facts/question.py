"""What a fact is asked of: a machine whose system runs, an instant, and the command that asks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciler.lab.hardware.state import DiskImage, DriveState, MachineState, OsState


@dataclass(frozen=True, slots=True)
class Question:
    """`now`: the machine's clock, `date`: the same instant by the calendar. `command`: POSIX sh text."""

    state: MachineState
    now: float
    date: datetime
    command: str = ""

    @property
    def system(self) -> OsState:
        assert self.state.os is not None, "only a running system is asked"
        return self.state.os

    @property
    def image(self) -> DiskImage:
        """What the system booted from."""
        assert self.state.booted_disk is not None, "only a running system is asked"
        return self.state.disks[self.state.booted_disk]

    @property
    def drives(self) -> list[tuple[str, DriveState]]:
        """By kernel name: the kernel numbers drives in the order in which it finds them."""
        return [(f"nvme{at}n1", drive) for at, drive in enumerate(self.state.drives)]

    @property
    def root_drive(self) -> tuple[str, DriveState]:
        return next((name, drive) for name, drive in self.drives if drive.serial == self.state.booted_disk)
