"""`ledger prune --journal`: it counts, asks, prunes, and the audit goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import reconciler

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def filled(path: Path) -> SqlLedger:
    ledger = SqlLedger(path)
    for number in range(1_100):
        items = [("a", "bios.X", "drifted", 1, 2)] if number % 2 else []
        ledger.record_drift("r", items, ["a"], LONG_AGO + timedelta(hours=number))
    fence = ledger.acquire("demo", "runner", 60, LONG_AGO).token
    left = ledger.begin("r", "a", "set_bios", "", "bios.X", {}, fence, LONG_AGO)
    assert left
    with ledger.batch():
        for number in range(1_000):
            ledger.note("b", "restore", f"number {number}", LONG_AGO)
    return ledger


def test_the_journal_is_pruned_by_hand(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    filled(place).close()
    prune = ("ledger", "prune", "--ledger", place, "--older")
    assert reconciler(*prune, "29d", "--journal", "--yes").code == 64
    assert reconciler(*prune, "400d", "--dry-run").code == 64, "results are not counted"
    assert reconciler(*prune, "400d", "--journal").code == 64, "nobody was asked"
    counted = reconciler(*prune, "400d", "--journal", "--dry-run")
    assert (counted.code, counted.out) == (0, "would prune 1,098 rows of the journal (1,098 drift)\n")
    assert reconciler("audit", "verify", "--ledger", place, "-o", "json").json["pruned"] == 0
    done = reconciler(*prune, "400d", "--journal", "--yes")
    assert done.out.endswith("pruned 1,098 rows of the journal (1,098 drift)\n"), done.out
    audit = reconciler("audit", "verify", "--ledger", place)
    assert audit.code == 0
    assert "1,098 rows of until 2020-02-15 were pruned, which 1 anchor stand" in " ".join(audit.out.split()), audit.out
    again = SqlLedger(place)
    assert [node for _, node, *_ in again.unfinished()] == ["a"]
    assert len(again.open_drift("a")) == 1
    again.close()
    assert reconciler("audit", "list", "--ledger", place, "--last", "9", "-o", "json").json[-1]["detail"] == (
        f"exit 0: 0 tests from before {datetime.now(UTC) - timedelta(days=400):%Y-%m-%d %H:%M} UTC were dropped, "
        "and 1098 rows of the journal were pruned"
    )


def test_a_damaged_journal_is_not_pruned_past_the_damage(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    ledger = filled(place)
    with ledger._database.write([]) as connection:
        connection.exec_driver_sql("UPDATE journal SET detail = 'none' WHERE id = 5")
    ledger.close()
    done = reconciler("ledger", "prune", "--ledger", place, "--older", "400d", "--journal", "--yes")
    assert done.code != 0
    assert "row 5 does not follow row 4" in " ".join(done.err.split())
    assert reconciler("audit", "verify", "--ledger", place, "-o", "json").json["row"] == 5
    assert reconciler("run", tmp_path, "--retention", "1d").code == 64
