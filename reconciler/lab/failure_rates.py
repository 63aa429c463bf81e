"""Actions that fail in a rehearsal: on a share of the nodes, drawn by a seed, and each time that they are tried.

Machines fail with the faults of the lab, which strike when the action begins and are lifted when it has failed. But one
that hangs in its boot goes on hanging: were that lifted, it would come up after all, and with what was staged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.machine import Machine

EVERY = "*"

Fault = tuple[str, Mapping[str, FaultValue]]

_NO_HOST: Fault = ("ssh_refused", {})
_NO_BMC: Fault = ("bmc_503", {"times": 0})
_NO_BOOT: Fault = ("post_hang", {"times": 0})
_NO_PATCH: Fault = ("node_conflicts", {})

# Action -> how it fails. The gate and the check of trust fail by their verdict.
FAULTS: Mapping[str, Fault | None] = {
    "mark": _NO_PATCH,
    "drain": ("pdb_never_yields", {}),
    "set_bios": ("bios_write_ignored", {}),
    "set_boot": _NO_BMC,
    "update_firmware": ("firmware_fails", {}),
    "reset_bmc": _NO_BMC,
    "soft_restart": _NO_BOOT,
    "power_cycle": _NO_BOOT,
    "power_on": _NO_BOOT,
    "reimage": ("installer_fails", {"times": 0}),
    "configure_host": _NO_HOST,
    "join": _NO_HOST,
    "check_trust": None,
    "run_gate": None,
    "set_gpu_mode": _NO_HOST,
    "set_labels": _NO_PATCH,
    "admit": _NO_PATCH,
}


class Misfortune:
    """`rates`: action -> share of nodes, EVERY for those not named."""

    def __init__(self, rates: Mapping[str, float], seed: int) -> None:
        self._rates = rates
        self._seed = seed

    def strikes(self, node: str, action: str) -> bool:
        """Whether `action` fails on this node: the same whenever it is asked."""
        rate = self._rates.get(action, self._rates.get(EVERY, 0.0))
        if rate <= 0.0:
            return False
        drawn = hashlib.sha256(f"{self._seed} {node} {action}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") / 2**64 < rate

    def begins(self, machine: Machine, action: str) -> None:
        fault = FAULTS.get(action)
        if fault is not None and fault[0] not in machine.state.faults and self.strikes(machine.name, action):
            machine.inject(fault[0], **fault[1])

    def ended(self, machine: Machine, action: str) -> None:
        fault = FAULTS.get(action)
        if fault is not None and fault is not _NO_BOOT and self.strikes(machine.name, action):
            machine.clear(fault[0])
