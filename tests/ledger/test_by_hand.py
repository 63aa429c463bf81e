"""Commands of people on a ledger, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION
from reconciler.model.errors import LeaseHeld
from reconciler.model.records import Lease
from tests.ledger.conftest import Open
from tests.ledger.test_ledger import certificate

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_leases_are_listed_with_their_holders_and_times(ledger: SqlLedger) -> None:
    assert ledger.leases() == []
    one = ledger.acquire("demo", "host-1 pid 7", 60, T0)
    two = ledger.acquire("other", "host-2 pid 8", 60, T0 + MINUTE)
    renewed = ledger.renew(one, 600, T0 + MINUTE)
    assert sorted(ledger.leases(), key=lambda lease: lease.token) == [
        Lease("demo", "host-1 pid 7", one.token, T0 + 11 * MINUTE, T0),
        Lease("other", "host-2 pid 8", two.token, T0 + 2 * MINUTE, T0 + MINUTE),
    ]
    assert renewed.since == T0
    ledger.drop(renewed)
    assert [lease.scope for lease in ledger.leases()] == ["other"]


TAKEN = r"is gone: ops took it away at 20..-..-..T..:..:..Z, with `reconciler lease release`"


def test_a_lease_that_was_taken_away_is_free_and_its_runner_writes_nothing_more(reopen: Open) -> None:
    runner, operator = reopen(), reopen()
    lease = runner.acquire("demo", "runner", 60, T0)
    attempt = runner.begin("r", "a", "set_bios", "", "bios.X", {}, lease.token, T0)
    taken = operator.take_away(lease.token, "ops", T0)
    assert taken == lease
    with pytest.raises(LeaseHeld, match=TAKEN):
        runner.begin("r", "b", "set_bios", "", "bios.X", {}, lease.token, T0)
    with pytest.raises(LeaseHeld, match=TAKEN):
        runner.renew(lease, 60, T0)
    runner.finish(attempt, "done", "", T0)  # what it had begun is still written down
    assert operator.leases() == []
    assert operator.acquire("demo", "another", 60, T0).token > lease.token
    entries = [entry.detail for _, entry in operator.journal(None, 50) if entry.event == "lease"]
    assert entries == [f"ops took lease {lease.token} on demo away from runner"]


def test_only_the_lease_of_now_can_be_taken_away(ledger: SqlLedger) -> None:
    old = ledger.acquire("demo", "x", 60, T0)
    new = ledger.acquire("demo", "y", 60, T0 + 2 * MINUTE)
    assert ledger.take_away(old.token, "ops", T0 + 2 * MINUTE) is None
    assert ledger.take_away(99, "ops", T0 + 2 * MINUTE) is None
    assert [lease.token for lease in ledger.leases()] == [new.token]
    told = [entry.detail for _, entry in ledger.journal(None, 50)]
    assert told == [
        f"y took over lease {old.token} on demo, which x had let run out at {T0 + MINUTE:%Y-%m-%d %H:%M:%SZ}"
    ]


def test_who_lost_a_lease_is_told_how_also_when_its_successor_is_through(ledger: SqlLedger) -> None:
    """The lease ran out, and another runner took it, worked and ended."""
    old = ledger.acquire("demo", "x", 60, T0)
    ledger.drop(ledger.acquire("demo", "y", 60, T0 + 2 * MINUTE))
    told = f"was lost to y: it ran out at {T0 + MINUTE:%Y-%m-%d %H:%M:%SZ}, while its runner was stopped"
    late = T0 + 3 * MINUTE
    for ask in (
        lambda: ledger.prove(old, late),
        lambda: ledger.renew(old, 60, late),
        lambda: ledger.begin("r", "a", "mark", "", "", {}, old.token, late),
    ):
        with pytest.raises(LeaseHeld, match=told):
            ask()
    ledger.fence(old)
    with pytest.raises(LeaseHeld, match=told):
        ledger.remember_identities({"a": ("S", None)}, late)


def test_a_lease_that_was_given_back_was_broken_by_nobody(ledger: SqlLedger) -> None:
    lease = ledger.acquire("demo", "x", 60, T0)
    ledger.drop(lease)
    with pytest.raises(LeaseHeld, match=r"is gone: its run gave it back, .* or its row was removed from the database"):
        ledger.prove(lease, T0)


def test_the_leases_on_bmcs_end_with_that_on_their_fleet(ledger: SqlLedger) -> None:
    fleet, bmc = ledger.acquire("demo", "x", 60, T0), ledger.acquire("bmc/a", "x", 60, T0)
    ledger.take_away(fleet.token, "ops", T0)
    with pytest.raises(LeaseHeld, match="the lease on bmc/a is gone: ops took it away"):
        ledger.prove(bmc, T0)


def test_the_journal_is_listed_newest_last(ledger: SqlLedger) -> None:
    ledger.start_run("r1", "apply", "c0ffee", "plan-1", T0)
    for node in ("a", "b", "a"):
        ledger.note(node, "adopt", f"{node} is ours\0", T0)
    assert [(number, entry.node, entry.detail) for number, entry in ledger.journal(None, 3)] == [
        (2, "a", "a is ours"), (3, "b", "b is ours"), (4, "a", "a is ours"),
    ]  # fmt: skip
    assert [number for number, _ in ledger.journal("a", 50)] == [2, 4]
    [(_, run)] = ledger.journal("", 50)
    assert (run.event, run.commit, run.plan) == ("run", "c0ffee", "plan-1")


def test_a_ledger_tells_what_it_is(ledger: SqlLedger, where: str) -> None:
    ledger.save_certificate(certificate("a"))
    found = ledger.info()
    assert (found.id, found.name, found.version) == (ledger.id, ledger.name, SCHEMA_VERSION)
    assert found.database == ("postgresql" if "://" in where else "sqlite")
    assert found.bytes > 10_000
    assert {name: rows for name, rows in found.rows.items() if rows} == {"certificates": 1, "journal": 1}
