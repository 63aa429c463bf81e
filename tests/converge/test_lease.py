"""The lease while a run works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from reconciler.converge.lease import TTL_REAL_S, Occupied, bmc_scope, held_lease
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


def test_after_a_short_stall_the_lease_is_renewed_before_anything_is_written(ledger: SqlLedger) -> None:
    """The process slept, and its heart had no time to beat yet."""
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            clock.elapsed += 0.9 * TTL_REAL_S
            ledger.begin("r", "n", "mark", "", "", {}, held.token(), clock.now())
            assert held.lease.expires_at == clock.now() + timedelta(seconds=TTL_REAL_S)

    run_virtual(run(), clock)


def test_who_slept_through_its_lease_does_nothing_though_nobody_took_it(ledger: SqlLedger) -> None:
    """A run that slept through its lease has outdated readings; the next run finds the lease free."""
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            held.take("bmc/a")
            clock.elapsed += 1.1 * TTL_REAL_S
            held.prove()

    with pytest.raises(LeaseHeld, match=r"ran out at .*, while its runner was stopped"):
        run_virtual(run(), clock)
    assert ledger.leases() == []


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


# --- on BMCs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "scope"),
    [
        ("https://10.20.0.11", "bmc/10.20.0.11"),
        ("https://10.20.0.11:443/", "bmc/10.20.0.11"),
        ("HTTPS://BMC-1.example.com/redfish/v1", "bmc/bmc-1.example.com"),
        ("10.20.0.11", "bmc/10.20.0.11"),
        ("https://127.0.0.1:41001", "bmc/127.0.0.1:41001"),
        ("http://10.20.0.11", "bmc/10.20.0.11"),
        ("https://[2001:db8::1]:8443", "bmc/2001:db8::1:8443"),
    ],
)
def test_a_bmc_has_one_scope_however_its_address_is_written(address: str, scope: str) -> None:
    assert bmc_scope(address) == scope


def test_two_fleets_never_have_one_bmc_at_once_and_a_lease_on_it_lives_with_that_on_the_fleet(
    ledger: SqlLedger,
) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "east", "one", clock) as east, held_lease(ledger, "west", "two", clock) as west:
            await clock.sleep(0.8 * TTL_REAL_S)
            east.take("bmc/a")
            assert ledger.holder("bmc/a", clock.now()) == east.bmcs["bmc/a"]
            await clock.sleep(5 * TTL_REAL_S)
            east.prove_bmc("bmc/a")
            assert east.bmcs["bmc/a"].expires_at == east.lease.expires_at
            with pytest.raises(Occupied, match="bmc/a is being written by one, until "):
                west.take("bmc/a")
            assert west.writer("bmc/a").startswith("bmc/a is being written by one, until ")
            with pytest.raises(Occupied, match="another action of this run"):
                east.take("bmc/a")
            west.take("bmc/b")
            east.give_back("bmc/a")
            west.take("bmc/a")
            assert west.writer("bmc/a") == ""
            assert east.writer("bmc/b").startswith("bmc/b is being written by two, until ")

    run_virtual(run(), clock)
    assert ledger.leases() == []


def test_a_bmc_that_is_taken_away_is_written_no_more_and_the_run_goes_on(ledger: SqlLedger) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "east", "one", clock) as held:
            held.take("bmc/a")
            held.take("bmc/b")
            ledger.take_away(held.bmcs["bmc/a"].token, "ops", clock.now())
            with pytest.raises(Occupied, match="the lease on bmc/a is gone"):
                held.prove_bmc("bmc/a")
            await clock.sleep(3 * TTL_REAL_S)
            held.prove_bmc("bmc/b")
            with pytest.raises(Occupied, match="the lease on bmc/a is gone"):
                held.prove_bmc("bmc/a")

    run_virtual(run(), clock)


def test_with_a_fleet_that_is_taken_away_go_its_bmcs(ledger: SqlLedger) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with held_lease(ledger, "east", "one", clock) as held:
            held.take("bmc/a")
            ledger.take_away(held.lease.token, "ops", clock.now())
            assert ledger.leases() == []
            with pytest.raises(LeaseHeld, match="the lease on east is gone: ops took it away at "):
                held.prove_bmc("bmc/a")
            with pytest.raises(LeaseHeld, match="the lease on east is gone"):
                ledger.remember_identities({"n0": ("S", None)}, clock.now())  # nor is anything written down any more

    with contextlib.suppress(LeaseHeld):
        run_virtual(run(), clock)
    ledger.remember_identities({"n0": ("S", None)}, clock.now())
