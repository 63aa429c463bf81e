"""The port of Helm releases. The contract is that of model/ports.py."""

from __future__ import annotations

from typing import Protocol

from reconciler.model.observed import Answered, Silent
from reconciler.model.releases import DesiredRelease, ReleaseFacts


class ReleaseStore(Protocol):
    """The Helm releases of the cluster. A run changes one of them at a time."""

    async def look(self, wanted: DesiredRelease) -> Answered[ReleaseFacts] | Silent:
        """Read a release, and what installing it as declared would change of its manifest. Nothing is written."""

    async def install(self, wanted: DesiredRelease) -> None:
        """Install or upgrade a release, and wait until its objects are ready. Raise DriverError.

        A failed upgrade goes back to the revision before it, and a failed install takes away what it had made. BUSY:
        the release is pending. TIMEOUT: its objects were not ready in time. REJECTED: the chart's archive has another
        digest, or the server refuses an object.
        """

    async def recover(self, wanted: DesiredRelease, found: ReleaseFacts) -> None:
        """End what a dead helm left pending: go back to the last revision that was deployed, or take it away."""
