"""What is known of an installation from the calls that its installer made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciler.model.install import InstallPhase


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """How far an installer is, as it reported it. Nobody else vouches for it: the booted system proves the image.

    `listening_since`: the server could be reached from then until now, without a gap. Silence counts from the later of
    it and `at`.
    """

    listening_since: datetime
    fetched: bool = False  # the installer has its document
    phase: InstallPhase | None = None  # None: it has reported nothing
    detail: str = ""
    percent: int | None = None
    at: datetime | None = None  # of the installer's last call; None: it made none
    incident: str = ""  # why the attempt was ended: a second host key, ...

    @property
    def ended(self) -> bool:
        """Return whether the installer said its last words, or an incident ended the attempt."""
        return bool(self.incident) or self.phase in (InstallPhase.INSTALLED, InstallPhase.FAILED)
