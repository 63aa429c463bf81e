"""The outlets of rack PDUs, and the machines that they give power. A machine is cut off when all of its outlets are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from reconciler.lab.hardware.lifecycle import HardwareRejected, Rejection
from reconciler.lab.hardware.machine import Machine
from reconciler.model.desired import Desired

Socket = tuple[str, str]  # URL of the PDU as the spec names it, and outlet


class Mains:
    """The cables are as the spec says, but for machines with the fault `outlets_elsewhere`.

    `sockets` of a PDU has all of its outlets. Switching is counted, so that tests can prove that it happens once.
    """

    def __init__(self, nodes: Mapping[str, Desired], machines: Mapping[str, Machine]) -> None:
        self._machines = machines
        self._spec: dict[str, tuple[Socket, ...]] = {
            name: tuple((outlet.pdu or "", outlet.name) for outlet in desired.outlets)
            for name, desired in nodes.items()
            if desired.outlets and name in machines
        }
        self.on: dict[Socket, bool] = {socket: True for sockets in self._spec.values() for socket in sockets}
        self.silent: set[str] = set()  # PDUs that don't answer
        self.switched = 0

    def pdus(self) -> Mapping[str, Sequence[str]]:
        """Return the outlets of each PDU."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for pdu, outlet in sorted(self.on):
            found[pdu].append(outlet)
        return found

    def gives_power(self, socket: Socket) -> bool:
        if socket not in self.on:
            raise HardwareRejected(Rejection.ABSENT, f"no outlet {socket[1]}")
        return self.on[socket]

    def switch(self, sockets: Collection[Socket], *, on: bool) -> None:
        for socket in sockets:
            if self.gives_power(socket) is not on:
                self.on[socket] = on
                self.switched += 1
        for name, machine in self._machines.items():
            feeds = self._feeds(name)
            machine.set_mains(on=not feeds or any(self.on[socket] for socket in feeds))

    def _feeds(self, name: str) -> tuple[Socket, ...]:
        """Return the outlets that a machine truly hangs on; () where the spec does not know all of them."""
        fault = self._machines[name].fault("outlets_elsewhere")
        if fault is not None:
            return self._spec.get(str(fault["node"]), ())
        swapped = (other for other in self._spec if self._elsewhere(other) == name)
        return self._spec.get(next(swapped, name), ())

    def _elsewhere(self, name: str) -> str:
        fault = self._machines[name].fault("outlets_elsewhere")
        return "" if fault is None else str(fault["node"])
