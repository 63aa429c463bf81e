"""Leases while a run writes: that on its fleet, and one on each BMC that an action is writing to.

They are taken, kept alive together, and dropped. Before each write to a BMC, a cluster or a host, and in each
transaction on the ledger, the ledger is asked whether they are held still (pitfalls I3, M7): whoever slept through a
lease, or was robbed of it, does nothing any more, and stops.
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
BEATS = 4  # per TTL
_PORTS = {"https": 443, "http": 80}


class Occupied(Exception):
    """Somebody else writes to this BMC. Nothing was written."""


def bmc_scope(address: str) -> str:
    """The same for every way in which specs may write an address."""
    parts = urlsplit(address if "//" in address else f"//{address}", scheme="https")
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{BMC_SCOPE}{parts.hostname or address}{port}"


@dataclass(slots=True)
class HeldLease:
    """`lease`: on the fleet; `bmcs`: by scope; none outlives the former. `ttl_s`: of the fleet's time.

    `ends`: by our monotonic clock, counted from before the ledger was asked, and so never later than the ledger's end.
    """

    lease: Lease
    ledger: LeaseStore
    clock: Clock
    ttl_s: float
    ends: float
    bmcs: dict[str, Lease] = field(default_factory=dict)

    def renew(self) -> None:
        """All of them. One that ran out is lost, even if nobody took it: what was known under it is as old as that."""
        now, asked_at = self.clock.now(), self.clock.monotonic()
        self.ledger.prove(self.lease, now)
        with self.ledger.batch():
            renewed = self.ledger.renew(self.lease, self.ttl_s, now)
            bmcs = {scope: self._renewed(lease, now) for scope, lease in self.bmcs.items()}
        self.lease, self.bmcs, self.ends = renewed, bmcs, asked_at + self.ttl_s

    def _renewed(self, lease: Lease, now: datetime) -> Lease:
        """One that was taken away stays as it is, for the action that writes under it to find out."""
        try:
            return self.ledger.renew(lease, self.ttl_s, now)
        except LeaseHeld:
            return lease

    def prove(self) -> None:
        """LeaseHeld unless the fleet is ours to write to, this very moment and for a while."""
        if self.ends - self.clock.monotonic() < self.ttl_s / 2:
            self.renew()
        self.ledger.prove(self.lease, self.clock.now())

    def token(self) -> int:
        """The fencing token, proved."""
        self.prove()
        return self.lease.token

    # --- of BMCs ---

    def writer(self, scope: str) -> str:
        """Who else writes there; "" = nobody."""
        held = self.ledger.holder(scope, self.clock.now())
        return "" if held is None or held.holder == self.lease.holder else _told(held)

    def take(self, scope: str) -> None:
        """Occupied when somebody writes there, were it another action of this run."""
        self.prove()
        if scope in self.bmcs:
            raise Occupied(f"{scope} is being written by another action of this run")
        now = self.clock.now()
        left = self.ends - self.clock.monotonic()  # with the fleet's: a successor finds both free
        try:
            self.bmcs[scope] = self.ledger.acquire(scope, self.lease.holder, left, now)
        except LeaseHeld as error:
            raise Occupied(str(error)) from error

    def prove_bmc(self, scope: str) -> None:
        """LeaseHeld or Occupied unless BMC and fleet are ours to write to."""
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
        """All that are held still."""
        with self.ledger.batch():
            for lease in (*self.bmcs.values(), self.lease):
                self.ledger.drop(lease)


def _told(held: Lease) -> str:
    return f"{held.scope} is being written by {held.holder}, until {held.expires_at:%Y-%m-%d %H:%M:%SZ} at the latest"


@asynccontextmanager
async def held_lease(ledger: LeaseStore, scope: str, holder: str, clock: Clock) -> AsyncIterator[HeldLease]:
    """LeaseHeld when somebody else has it, and inside the block as soon as it is lost."""
    ttl_s = TTL_REAL_S / max(clock.real_seconds(1.0), 1e-6)
    ends = clock.monotonic() + ttl_s
    held = HeldLease(ledger.acquire(scope, holder, ttl_s, clock.now()), ledger, clock, ttl_s, ends)
    ledger.fence(held.lease)
    body = asyncio.current_task()
    assert body is not None
    lost: list[LeaseHeld | LedgerError] = []

    async def beat() -> None:
        away: LedgerError | None = None  # the ledger: until the lease runs out it may come back
        while not lost:
            await clock.sleep(ttl_s / BEATS)
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

    heart = asyncio.create_task(beat())
    try:
        yield held
    except asyncio.CancelledError:
        if not lost:
            raise
        body.uncancel()
        raise lost[0] from None
    finally:
        heart.cancel()
        try:
            await asyncio.wait([heart])
        finally:  # a second Ctrl-C must not leave the fleet locked
            ledger.fence(None)
            with suppress(LedgerError):  # then it runs out by itself; what went wrong before is what counts
                held.drop()
