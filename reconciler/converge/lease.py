"""Leases that a run holds while it writes: one on its fleet, and one on each BMC that an action is writing to.

They are acquired, renewed together, and dropped. Before each write to a BMC, a cluster or a host, and in each
transaction on the ledger, the ledger is asked whether they are still held (pitfalls I3, M7). A run whose lease ran out
or was taken writes nothing more, and stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.ledger_ports import LeaseStore
from reconciler.model.ports import Clock
from reconciler.model.records import BMC_SCOPE, Lease

TTL_REAL_S = 60.0  # wall clock: a runner that died blocks the next one for so long
RENEWALS = 4  # per TTL
_PORTS = {"https": 443, "http": 80}


class Occupied(Exception):
    """Somebody else is writing to this BMC. Nothing was written."""


def bmc_scope(address: str) -> str:
    """Return the lease scope of a BMC, which is the same however specs write its address."""
    parts = urlsplit(address if "//" in address else f"//{address}", scheme="https")
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{BMC_SCOPE}{parts.hostname or address}{port}"


@dataclass(slots=True)
class HeldLease:
    """The lease on a fleet, and those on BMCs, by scope, none of which outlives it. `ttl_s` is in fleet time.

    `ends`: when the lease ends by our monotonic clock. It counts from before the ledger was asked, so it is never later
    than the end that the ledger knows.
    """

    lease: Lease
    ledger: LeaseStore
    clock: Clock
    ttl_s: float
    ends: float
    bmcs: dict[str, Lease] = field(default_factory=dict)

    def renew(self) -> None:
        """Renew all leases. A lease that ran out is lost even if nobody took it: what was read under it is outdated."""
        now, asked_at = self.clock.now(), self.clock.monotonic()
        with self.ledger.batch():
            self.ledger.prove(self.lease, now)
            renewed = self.ledger.renew(self.lease, self.ttl_s, now)
            bmcs = {scope: self._renewed(lease, now) for scope, lease in self.bmcs.items()}
        self.lease, self.bmcs, self.ends = renewed, bmcs, asked_at + self.ttl_s

    def _renewed(self, lease: Lease, now: datetime) -> Lease:
        """Renew the lease on a BMC. If somebody took it, return it as it is: the action's next write finds out."""
        try:
            return self.ledger.renew(lease, self.ttl_s, now)
        except LeaseHeld:
            return lease

    def prove(self) -> None:
        """Raise LeaseHeld unless this run holds the lease on the fleet now and for at least half of its TTL."""
        if self.ends - self.clock.monotonic() < self.ttl_s / 2:
            self.renew()
        self.ledger.prove(self.lease, self.clock.now())

    def token(self) -> int:
        """Prove the lease, and return its fencing token."""
        self.prove()
        return self.lease.token

    # --- of BMCs ---

    def writer(self, scope: str) -> str:
        """Return who else is writing to this BMC, in a sentence; "" = nobody."""
        held = self.ledger.holder(scope, self.clock.now())
        return "" if held is None or held.holder == self.lease.holder else _writer_of(held)

    def take(self, scope: str) -> None:
        """Acquire the lease on a BMC. Raise Occupied while anybody writes to it, even another action of this run."""
        self.prove()
        if scope in self.bmcs:
            raise Occupied(f"{scope} is being written by another action of this run")
        now = self.clock.now()
        left = self.ends - self.clock.monotonic()  # ends with the fleet's lease: a successor finds both free
        try:
            self.bmcs[scope] = self.ledger.acquire(scope, self.lease.holder, left, now)
        except LeaseHeld as error:
            raise Occupied(str(error)) from error

    def prove_bmc(self, scope: str) -> None:
        """Raise LeaseHeld or Occupied unless this run holds the leases on the fleet and on this BMC."""
        self.prove()
        try:
            self.ledger.prove(self.bmcs[scope], self.clock.now())
        except LeaseHeld as error:
            raise Occupied(str(error)) from error

    def give_back(self, scope: str) -> None:
        lease = self.bmcs.pop(scope, None)
        if lease is not None:
            self.ledger.drop(lease)

    def drop(self) -> None:
        """Drop every lease that is still held."""
        with self.ledger.batch():
            for lease in (*self.bmcs.values(), self.lease):
                self.ledger.drop(lease)


def _writer_of(held: Lease) -> str:
    return f"{held.scope} is being written by {held.holder}, until {held.expires_at:%Y-%m-%d %H:%M:%SZ} at the latest"


@asynccontextmanager
async def held_lease(ledger: LeaseStore, scope: str, holder: str, clock: Clock) -> AsyncIterator[HeldLease]:
    """Hold a lease inside the block. Raise LeaseHeld when somebody else holds it, or as soon as it is lost."""
    ttl_s = TTL_REAL_S / max(clock.real_seconds(1.0), 1e-6)
    ends = clock.monotonic() + ttl_s
    held = HeldLease(ledger.acquire(scope, holder, ttl_s, clock.now()), ledger, clock, ttl_s, ends)
    ledger.fence(held.lease)
    body = asyncio.current_task()
    assert body is not None
    lost: list[LeaseHeld | LedgerError] = []

    async def renew() -> None:
        away: LedgerError | None = None  # the ledger may come back before the lease runs out
        while not lost:
            await clock.sleep(ttl_s / RENEWALS)
            try:
                held.renew()
                away = None
            except LeaseHeld as error:
                lost.append(away or error)
            except LedgerError as error:
                away = error
                if clock.monotonic() >= held.ends:
                    lost.append(error)
        body.cancel()

    renewing = asyncio.create_task(renew())
    try:
        yield held
    except asyncio.CancelledError:
        if not lost:
            raise
        body.uncancel()
        raise lost[0] from None
    finally:
        renewing.cancel()
        try:
            await asyncio.wait([renewing])
        finally:  # a second Ctrl-C must not leave the fleet locked
            ledger.fence(None)
            with suppress(LedgerError):  # then the lease runs out by itself; the first error is the one to report
                held.drop()
