"""The lease while a run works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.converge.lease import TTL_REAL_S, held_lease
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.inprocess import VirtualClock, run_virtual
from reconciler.model.errors import LeaseHeld, LedgerError


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    found = SqlLedger(tmp_path / "ledger.sqlite", lock_timeout_s=0.1)
    yield found
    found.close()


def test_a_lease_outlives_its_first_term_and_ends_with_the_run(ledger: SqlLedger) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            await clock.sleep(10 * TTL_REAL_S)
            with pytest.raises(LeaseHeld):
                ledger.acquire("fleet", "two", 60, clock.now())
            ledger.begin("r", "n", "mark", "", "", {}, held.token(), clock.now())
        ledger.acquire("fleet", "two", 60, clock.now())

    run_virtual(run(), clock)


def test_after_a_stall_the_lease_is_renewed_before_anything_is_written(ledger: SqlLedger) -> None:
    """The process slept, and its heart had no time to beat yet."""
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            clock.elapsed += 5 * TTL_REAL_S
            ledger.begin("r", "n", "mark", "", "", {}, held.token(), clock.now())

    run_virtual(run(), clock)


def test_after_a_stall_in_which_somebody_took_over_nothing_is_written(ledger: SqlLedger) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            clock.elapsed += 5 * TTL_REAL_S
            ledger.acquire("fleet", "two", 600, clock.now())
            with pytest.raises(LeaseHeld, match="lost to two"):
                held.token()

    run_virtual(run(), clock)


def failing(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    renew, left = ledger.renew, [times]

    def flaky(*args: object) -> object:
        if left[0]:
            left[0] -= 1
            raise LedgerError("locked")
        return renew(*args)  # type: ignore[arg-type]  # what it was called with

    monkeypatch.setattr(ledger, "renew", flaky)


def test_a_ledger_that_is_away_for_a_moment_does_not_end_the_run(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    failing(ledger, monkeypatch, 2)

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock):
            await clock.sleep(3 * TTL_REAL_S)

    run_virtual(run(), clock)


def test_a_ledger_that_stays_away_ends_the_run_when_the_lease_does(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    failing(ledger, monkeypatch, 99)

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock):
            await asyncio.Event().wait()

    with pytest.raises(LedgerError, match="locked"):
        run_virtual(run(), clock)
    assert clock.elapsed == pytest.approx(TTL_REAL_S, abs=1)
