"""The installations of a ledger in memory: attempts, and the host keys that they had certified or revoked."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.model.host_certificate import HostCertificate, read_host_certificate
from reconciler.model.install_progress import InstallAttempt


class MemoryInstalls:
    def __init__(self) -> None:
        super().__init__()
        self._installs: dict[str, InstallAttempt] = {}  # by digest

    def _add_install(self, attempt: InstallAttempt) -> HostCertificate | None:
        """Keep an attempt, and return the newest certificate of its node's host key."""
        self._installs[attempt.digest] = attempt
        newest = self.certified_install(attempt.node)
        return None if newest is None else read_host_certificate(newest.host_key, newest.certificate)

    def install(self, digest: str) -> InstallAttempt | None:
        return self._installs.get(digest)

    def open_install(self, node: str) -> InstallAttempt | None:
        found = [one for one in self._installs.values() if one.node == node and one.closed_at is None]
        return max(found, key=lambda one: one.begun_at, default=None)

    def certified_install(self, node: str) -> InstallAttempt | None:
        found = [one for one in self._installs.values() if one.node == node and one.certificate]
        return max(found, key=lambda one: one.begun_at, default=None)

    def revoked_host_keys(self) -> Sequence[str]:
        return [key for one in self._installs.values() for key in one.revoked]
