"""The lease on a fleet while a run writes: taken, kept alive, dropped; whoever loses it stops at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.ports import Clock, Ledger
from reconciler.model.records import Lease

TTL_REAL_S = 90.0  # wall clock: a runner that died blocks the next one for so long
BEATS = 4  # per TTL


@dataclass(slots=True)
class HeldLease:
    lease: Lease

    @property
    def token(self) -> int:
        return self.lease.token


@asynccontextmanager
async def held_lease(ledger: Ledger, scope: str, holder: str, clock: Clock) -> AsyncIterator[HeldLease]:
    """LeaseHeld when somebody else has it, and inside the block as soon as it is lost."""
    ttl_s = TTL_REAL_S / max(clock.real_seconds(1.0), 1e-6)
    held = HeldLease(ledger.acquire(scope, holder, ttl_s, clock.now()))
    body = asyncio.current_task()
    assert body is not None
    lost: list[LeaseHeld | LedgerError] = []

    async def beat() -> None:
        try:
            while True:
                await clock.sleep(ttl_s / BEATS)
                held.lease = ledger.renew(held.lease, ttl_s, clock.now())
        except (LeaseHeld, LedgerError) as error:
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
        await asyncio.wait([heart])
        if not lost:
            ledger.drop(held.lease)
