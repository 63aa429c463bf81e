"""The input of a fact: a machine whose system runs, a time, and the command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciler.lab.hardware.state import DiskImage, DriveState, MachineState, OsState
from reconciler.model.k3s import DeprecatedApi


@dataclass(frozen=True, slots=True)
class FactContext:
    """The input of a fact. `now`: the machine's clock, `date`: the same time as a date. `command`: POSIX sh text.

    `deprecated`: what its API server of K3s tells, see K3sFacts.
    """

    state: MachineState
    now: float
    date: datetime
    command: str = ""
    deprecated: tuple[DeprecatedApi, ...] | None = ()

    @property
    def system(self) -> OsState:
        assert self.state.os is not None, "facts need a running system"
        return self.state.os

    @property
    def image(self) -> DiskImage:
        """Return the image that the system booted from."""
        assert self.state.booted_disk is not None, "facts need a running system"
        return self.state.disks[self.state.booted_disk]

    @property
    def drives(self) -> list[tuple[str, DriveState]]:
        """Return (kernel name, drive). The kernel numbers drives in the order in which it finds them."""
        return [(drive.kernel_name(at), drive) for at, drive in enumerate(self.state.drives)]

    @property
    def root_drive(self) -> tuple[str, DriveState]:
        return next((name, drive) for name, drive in self.drives if drive.serial == self.state.booted_disk)
