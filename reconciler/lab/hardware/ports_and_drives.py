"""Ports and drives that a fault strikes, and that are mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.state import MachineState, NicState


def rdma_ports(state: MachineState) -> list[NicState]:
    return [nic for nic in state.nics if nic.rdma]


def strike(kind: str, state: MachineState, parameters: Mapping[str, Any]) -> None:
    """`kind`: port or drive, with the parameters of that fault."""
    if kind == "port":
        nic, gbps = rdma_ports(state)[int(parameters["port"])], float(parameters["gbps"])
        nic.up, nic.slow_gbps, nic.struck = gbps > 0, gbps, True
        return
    drive = state.drives[int(parameters["drive"])]
    drive.critical_warning = int(parameters["critical_warning"])
    drive.percentage_used, drive.available_spare = int(parameters["percentage_used"]), int(parameters["spare"])
    drive.smart, drive.struck = bool(parameters["readable"]), True


def mend_ports(state: MachineState) -> None:
    for nic in state.nics:
        if nic.struck:
            nic.up, nic.slow_gbps, nic.struck = True, 0.0, False


def mend_drives(state: MachineState) -> None:
    for drive in state.drives:
        if drive.struck:
            drive.critical_warning, drive.available_spare, drive.percentage_used = 0, 100, 3
            drive.smart, drive.struck = True, False
