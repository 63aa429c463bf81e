"""ports.Pdu on the lab's outlets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.lab.hardware.lifecycle import HardwareRejected
from reconciler.lab.hardware.mains import Mains
from reconciler.model.errors import DriverError, Failure
from reconciler.model.ports import Clock

LATENCY_S = 0.5


class MainsPdu:
    """`address`: URL of the PDU as the spec names it."""

    def __init__(self, mains: Mains, address: str, clock: Clock) -> None:
        self._mains, self._address, self._clock = mains, address, clock

    async def outlets(self, names: Sequence[str]) -> Mapping[str, bool]:
        await self._reach()
        try:
            return {name: self._mains.gives_power((self._address, name)) for name in names}
        except HardwareRejected as refused:
            raise DriverError(Failure.REJECTED, refused.detail) from None

    async def switch(self, names: Sequence[str], *, on: bool) -> None:
        await self._reach()
        try:
            self._mains.switch([(self._address, name) for name in names], on=on)
        except HardwareRejected as refused:
            raise DriverError(Failure.REJECTED, refused.detail) from None

    async def _reach(self) -> None:
        await self._clock.sleep(LATENCY_S)
        if self._address in self._mains.silent:
            raise DriverError(Failure.UNREACHABLE, f"no answer from the PDU at {self._address}")

    async def close(self) -> None:
        """Do nothing: no session is open."""
