"""The leases of a ledger in memory."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.model.errors import LeaseHeld
from reconciler.model.records import Lease


class MemoryLeases:
    def __init__(self) -> None:
        super().__init__()
        self._leases: dict[str, Lease] = {}  # by scope
        self._token = 0

    def acquire(self, scope: str, holder: str, ttl_s: float, now: datetime) -> Lease:
        held = self.holder(scope, now)
        if held is not None and held.holder != holder:
            raise LeaseHeld(held.holder, f"{scope} is being written by {held.holder}")
        self._token += 1
        self._leases[scope] = Lease(scope, holder, self._token, now + timedelta(seconds=ttl_s))
        return self._leases[scope]

    def renew(self, lease: Lease, ttl_s: float, now: datetime) -> Lease:
        self._held(lease)
        ends = now + timedelta(seconds=ttl_s)
        renewed = Lease(
            lease.scope, lease.holder, lease.token, ends, lease.since
        )  # so often that `replace` would cost measurable time
        self._leases[lease.scope] = renewed
        return renewed

    def drop(self, lease: Lease) -> None:
        held = self._leases.get(lease.scope)
        if held is not None and held.token == lease.token:
            del self._leases[lease.scope]

    def holder(self, scope: str, now: datetime) -> Lease | None:
        held = self._leases.get(scope)
        return held if held is not None and held.expires_at > now else None

    def prove(self, lease: Lease, now: datetime) -> None:
        if self._held(lease).expires_at <= now:
            raise LeaseHeld("", f"the lease on {lease.scope} ran out")

    def _held(self, lease: Lease) -> Lease:
        held = self._leases.get(lease.scope)
        if held is None or held.token != lease.token:
            raise LeaseHeld("", f"the lease on {lease.scope} is gone")
        return held

    def fence(self, lease: Lease | None) -> None:
        """Do nothing: no other runner can take a lease here."""

    def _check_token(self, token: int, now: datetime) -> None:
        if not any(held.token == token and held.expires_at > now for held in self._leases.values()):
            raise LeaseHeld("", "the lease was lost")
