"""The lease on a fleet while a run writes: taken, kept alive, dropped; whoever loses it stops at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.ports import Clock, Ledger
from reconciler.model.records import Lease

TTL_REAL_S = 60.0  # wall clock: a runner that died blocks the next one for so long
BEATS = 4  # per TTL


@dataclass(slots=True)
class HeldLease:
    """`ttl_s`: of the fleet's time."""

    lease: Lease
    ledger: Ledger
    clock: Clock
    ttl_s: float

    def renew(self) -> None:
        self.lease = self.ledger.renew(self.lease, self.ttl_s, self.clock.now())

    def token(self) -> int:
        """The fencing token of a lease that is alive: after a long stall it is renewed first, or found to be lost."""
        if self.lease.expires_at - self.clock.now() < timedelta(seconds=self.ttl_s / 2):
            self.renew()
        return self.lease.token


@asynccontextmanager
async def held_lease(ledger: Ledger, scope: str, holder: str, clock: Clock) -> AsyncIterator[HeldLease]:
    """LeaseHeld when somebody else has it, and inside the block as soon as it is lost."""
    ttl_s = TTL_REAL_S / max(clock.real_seconds(1.0), 1e-6)
    held = HeldLease(ledger.acquire(scope, holder, ttl_s, clock.now()), ledger, clock, ttl_s)
    body = asyncio.current_task()
    assert body is not None
    lost: list[LeaseHeld | LedgerError] = []

    async def beat() -> None:
        while not lost:
            await clock.sleep(ttl_s / BEATS)
            try:
                held.renew()
            except LeaseHeld as error:
                lost.append(error)
            except LedgerError as error:
                if clock.now() >= held.lease.expires_at:  # until then the ledger may come back
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
            if not lost:
                ledger.drop(held.lease)
