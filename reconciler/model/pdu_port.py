"""The port of rack PDUs, which give nodes power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Pdu(Protocol):
    """The Redfish service of rack PDUs (DSP0268: PowerDistribution, Outlet)."""

    async def outlets(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Return whether each of these outlets gives power. Raise DriverError.

        REJECTED: there is no such outlet. UNSUPPORTED: it can't be switched, or does not tell.
        """

    async def switch(self, names: Sequence[str], *, on: bool) -> None:
        """Let these outlets give power, or not. Idempotent: read them back. Raise DriverError as a Bmc does."""

    async def close(self) -> None:
        """Delete the session. Never raises."""
