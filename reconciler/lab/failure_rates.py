"""Actions that fail in a rehearsal: on a share of the nodes, drawn by a seed, and each time that they are tried.

Machines fail with the faults of the lab, which strike when the action begins and are lifted when it has failed. But one
that hangs in its boot goes on hanging: were that lifted, it would come up after all, and with what was staged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from reconciler.lab.hardware.machine import Machine
from reconciler.planner.node.actions import spec_of

EVERY = "*"
_NO_BOOT = "post_hang"


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
        fault = spec_of(action).fault
        if fault is not None and fault not in machine.state.faults and self.strikes(machine.name, action):
            machine.inject(fault, times=0)

    def ended(self, machine: Machine, action: str) -> None:
        fault = spec_of(action).fault
        if fault is not None and fault != _NO_BOOT and self.strikes(machine.name, action):
            machine.clear(fault)
