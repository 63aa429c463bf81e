"""Leases go by a clock that all runners of a ledger share: no runner's own clock takes or blocks a lease."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock, ScaledClock
from reconciler.drivers.ledger import SqlLedger, lease_time
from reconciler.model.errors import LeaseHeld

SHORT_S = 0.3
DAY = timedelta(days=1)
STEPS = [timedelta(seconds=61), timedelta(seconds=-61), DAY, -DAY]


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def runners(where: str) -> Iterator[tuple[SqlLedger, SqlLedger]]:
    found = SqlLedger(where, clock=RealClock()), SqlLedger(where, clock=RealClock())
    yield found
    for one in found:
        one.close()


@pytest.mark.parametrize("ahead", STEPS, ids=str)
def test_a_runner_whose_clock_is_wrong_takes_no_living_lease(
    runners: tuple[SqlLedger, SqlLedger], ahead: timedelta
) -> None:
    one, two = runners
    lease = one.acquire("demo", "one", 60, now())
    with pytest.raises(LeaseHeld, match="demo is being written by one"):
        two.acquire("demo", "two", 60, now() + ahead)
    assert two.holder("demo", now() + ahead) is not None
    two.prove(lease, now() + ahead)
    assert two.begin("r", "a", "mark", "", "", {}, lease.token, now() + ahead)


@pytest.mark.parametrize("ahead", STEPS, ids=str)
def test_a_runner_whose_clock_is_wrong_blocks_nobody_once_it_has_died(
    runners: tuple[SqlLedger, SqlLedger], ahead: timedelta
) -> None:
    one, two = runners
    one.acquire("demo", "one", SHORT_S, now() + ahead)
    time.sleep(SHORT_S + 0.1)
    assert two.holder("demo", now()) is None
    assert two.acquire("demo", "two", 60, now()).holder == "two"


@pytest.mark.parametrize("ahead", STEPS, ids=str)
def test_a_lease_is_renewed_and_runs_out_by_the_shared_clock(
    runners: tuple[SqlLedger, SqlLedger], ahead: timedelta
) -> None:
    one, two = runners
    lease = one.renew(one.acquire("demo", "one", SHORT_S, now()), 60, now() + ahead)
    assert timedelta(seconds=50) < lease.expires_at - two.lease_time(now()) <= timedelta(seconds=60)
    short = one.renew(lease, SHORT_S, now() + ahead)
    time.sleep(SHORT_S + 0.1)
    with pytest.raises(LeaseHeld, match="ran out"):
        one.prove(short, now() - 2 * DAY)
    with pytest.raises(LeaseHeld, match="ran out"):
        one.begin("r", "a", "mark", "", "", {}, short.token, now() - 2 * DAY)


def test_leases_on_bmcs_go_by_it_too(runners: tuple[SqlLedger, SqlLedger]) -> None:
    one, two = runners
    one.acquire("bmc/10.0.0.1", "one", 60, now())
    with pytest.raises(LeaseHeld):
        two.acquire("bmc/10.0.0.1", "two", 60, now() + DAY)


def test_a_clock_that_is_set_while_a_lease_lives_neither_ends_nor_prolongs_it(where: str) -> None:
    """The holder renews, its machine's clock is set forward, and another process of the machine comes."""
    holder = SqlLedger(where, clock=RealClock())
    lease = holder.acquire("demo", "one", 60, now())
    later = SqlLedger(where, clock=RealClock())
    for step in STEPS:
        lease = holder.renew(lease, 60, now() + step)
        with pytest.raises(LeaseHeld, match="being written by one"):
            later.acquire("demo", "two", 60, now() + step)
    assert abs(lease.expires_at - now()) < timedelta(seconds=61)
    holder.close()
    later.close()


def test_a_lab_in_which_time_runs_faster_has_leases_that_end_sooner(where: str) -> None:
    clock = ScaledClock(60.0, now())
    one = SqlLedger(where, clock=clock)
    one.acquire("demo", "one", 60 * SHORT_S, clock.now())
    with pytest.raises(LeaseHeld):
        one.acquire("demo", "two", 60, clock.now())
    time.sleep(SHORT_S + 0.1)
    assert one.acquire("demo", "two", 60, clock.now()).holder == "two"
    one.close()


def test_without_a_boot_id_a_file_goes_by_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_time, "boot_id", lambda: "")
    book = SqlLedger(tmp_path / "l.sqlite", clock=RealClock())
    book.acquire("demo", "one", 60, now())
    assert book.acquire("demo", "two", 60, now() + timedelta(seconds=61)).holder == "two"
    book.close()


def test_after_a_reboot_the_leases_of_before_run_out_by_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = SqlLedger(tmp_path / "l.sqlite", clock=RealClock())
    book.acquire("demo", "one", 60, now())
    book.close()
    monkeypatch.setattr(lease_time, "boot_id", lambda: "another")
    book = SqlLedger(tmp_path / "l.sqlite", clock=RealClock())
    with pytest.raises(LeaseHeld):
        book.acquire("demo", "two", 60, now())
    book.close()
    book = SqlLedger(tmp_path / "l.sqlite", clock=RealClock())
    assert book.acquire("demo", "two", 60, now() + timedelta(seconds=61)).holder == "two"
    with pytest.raises(LeaseHeld):
        book.acquire("demo", "three", 60, now() + DAY)
    book.close()
