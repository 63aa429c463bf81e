"""Simulated failures of actions in a rehearsal, on a random share of the nodes and at every attempt.

An action fails by a fault of the lab, injected when it begins and lifted when it has ended. Only a hang in POST stays:
if it were lifted, the machine would boot after all and activate everything staged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from reconciler.lab.hardware.machine import Machine
from reconciler.planner.node.actions import spec_of

EVERY = "*"
_NO_BOOT = "post_hang"


class FailureRates:
    """Decides which actions fail. `rates`: action -> share of nodes, EVERY for the others."""

    def __init__(self, rates: Mapping[str, float], seed: int) -> None:
        self._rates = rates
        self._seed = seed

    def fails(self, node: str, action: str) -> bool:
        """Tell whether `action` fails on this node. The answer depends only on the seed."""
        rate = self._rates.get(action, self._rates.get(EVERY, 0.0))
        if rate <= 0.0:
            return False
        drawn = hashlib.sha256(f"{self._seed} {node} {action}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") / 2**64 < rate

    def inject(self, machine: Machine, action: str) -> None:
        fault = spec_of(action).fault
        if fault is not None and fault not in machine.state.faults and self.fails(machine.name, action):
            machine.inject(fault, times=0)

    def lift(self, machine: Machine, action: str) -> None:
        fault = spec_of(action).fault
        if fault is not None and fault != _NO_BOOT and self.fails(machine.name, action):
            machine.clear(fault)
