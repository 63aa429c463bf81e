"""A pruned ledger decides and tells as before, its chain verifies, and nobody can use pruning to hide a change."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from reconciler.app.retention import JournalPruner
from reconciler.drivers.ledger import SqlLedger, anchors, chain, migrations, pruning, reader, retained
from reconciler.drivers.ledger.rows import instant, to_object
from reconciler.model.errors import LedgerError
from tests.ledger.conftest import Open
from tests.ledger.ledger_life import BEGIN, KINDS, NODES, STEPS, Life, Step, remembered
from tests.ledger.test_audit import tamper

AGE = timedelta(days=40)
_SMALL = 7  # rows of a page
_CHANGES = (
    "UPDATE journal SET detail = 'nothing happened' WHERE id = {row}",
    "UPDATE journal SET at = '2026-01-01T00:00:00.000000+00:00' WHERE id = {row}",
    "UPDATE journal SET data = '{{}}' WHERE id = {row}",
    "UPDATE journal SET digest = '" + "0" * 64 + "' WHERE id = {row}",
    "DELETE FROM journal WHERE id = {row}",
)


@contextmanager
def small_pages() -> Iterator[None]:
    """Make pages and records so small that some steps fill many."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (anchors, pruning):
            patch.setattr(module, "PAGE", _SMALL)
        for module in (reader, retained):
            patch.setattr(module, "ATTEMPTS_KEPT", 3)
        reader._statement.cache_clear()
        yield
    reader._statement.cache_clear()


@pytest.fixture
def small() -> Iterator[None]:
    with small_pages():
        yield


def lived(ledger: SqlLedger, steps: list[Step]) -> datetime:
    """Write the steps, and return when the ledger is pruned: half of them are old then."""
    life = Life(ledger)
    life.live(steps[: len(steps) // 2])
    life.now += timedelta(hours=1)
    cut = life.now
    life.live(steps[len(steps) // 2 :])
    return max(life.now, cut + AGE)


def some_steps(seed: int, count: int = 120) -> list[Step]:
    chance = random.Random(seed)
    return [
        (chance.choice(KINDS), chance.choice(NODES), chance.randrange(4), chance.randrange(1, 48)) for _ in range(count)
    ]


def ids(ledger: SqlLedger) -> list[int]:
    with ledger._database.read() as connection:
        return list(connection.exec_driver_sql("SELECT id FROM journal ORDER BY id").scalars())


def check(place: str, steps: list[Step]) -> None:
    """Prune a ledger and compare it with itself."""
    ledger = SqlLedger(place)
    now = lived(ledger, steps)
    before, rows = remembered(ledger, now - AGE, now), ids(ledger)
    planned = ledger.prune_journal(AGE, "", now, dry=True)
    assert ids(ledger) == rows, "a dry run only counts"
    done = ledger.prune_journal(AGE, "run-p", now)
    assert {**planned.rows, "prune": 0} == {**done.rows, "prune": 0}
    left = ids(ledger)
    assert done.total == len(rows) + done.pages - len(left)
    ledger.close()
    ledger = SqlLedger(place)  # nothing of it is cached
    assert remembered(ledger, now - AGE, now) == before
    found = ledger.audit()
    assert (found.problem, found.detail) == ("", "")
    assert (found.rows, found.pruned, found.anchors) == (len(left), done.total, done.pages)
    assert found.rows + found.pruned == left[-1]
    assert ledger.prune_journal(AGE, "", now).problem == ""
    assert ledger.audit().problem == ""
    ledger.close()


def test_what_a_record_has_and_what_did_not_end_stay_however_old(small: None, ledger: SqlLedger, reopen: Open) -> None:
    life = Life(ledger)
    life.live([("left", "a", 0, 1), *[("worked", "a", 0, 1)] * 8, *[("noted", "b", 2, 1)] * 2 * _SMALL])
    now = life.now + timedelta(days=400)
    before = remembered(ledger, now, now)
    assert ledger.prune_journal(AGE, "", now).rows == {"amendment": 5, "intent": 5, "outcome": 5}
    after = remembered(reopen(), now, now)
    assert after == before
    assert (len(after["records"]["a"].attempts), len(after["unfinished"])) == (3, 1)
    assert ledger.audit().problem == ""


@settings(deadline=None, max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(STEPS)
def test_what_is_kept_says_and_decides_the_same(steps: list[Step]) -> None:
    with small_pages(), tempfile.TemporaryDirectory() as home:
        check(str(Path(home) / "ledger.sqlite"), steps)


@pytest.mark.parametrize("seed", range(3))
def test_both_databases_are_pruned_alike(small: None, where: str, seed: int) -> None:
    check(where, some_steps(seed))


@settings(deadline=None, max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(STEPS, st.integers(0, 10_000), st.sampled_from(_CHANGES))
def test_every_change_of_a_pruned_journal_is_found(steps: list[Step], at: int, change: str) -> None:
    with small_pages(), tempfile.TemporaryDirectory() as home:
        place = str(Path(home) / "ledger.sqlite")
        ledger = SqlLedger(place)
        ledger.prune_journal(AGE, "run-p", lived(ledger, steps))
        assume(ledger.audit().pruned)
        left = ids(ledger)
        row = left[at % len(left)]
        with ledger._database.read() as connection:
            said = connection.exec_driver_sql(f"SELECT detail, data, at FROM journal WHERE id = {row}").one()
        ledger.close()
        assume(not ("data" in change and said.data == "{}") and not said.at.startswith("2026-01-01T00"))
        tamper(place, change.format(row=row))
        ledger = SqlLedger(place)
        found = ledger.audit()
        assert found.problem, (row, change)
        ledger.close()


def test_an_anchor_that_was_changed_is_named(small: None, ledger: SqlLedger, where: str) -> None:
    ledger.prune_journal(AGE, "run-p", lived(ledger, some_steps(4)))
    with ledger._database.read() as connection:
        row = connection.exec_driver_sql("SELECT max(id) FROM journal WHERE event = 'prune'").scalar_one()
    tamper(where, f"UPDATE journal SET data = '{{\"gaps\":[]}}' WHERE id = {row}")
    found = ledger.audit()
    assert (found.row, found.problem) == (row, "anchor"), found


def test_no_forged_anchor_hides_a_young_row(small: None, ledger: SqlLedger, where: str) -> None:
    """Whoever writes the whole database may append an anchor that fits: the rows around what is gone tell its age."""
    now = lived(ledger, some_steps(5))
    with ledger._database.write([]) as connection:
        row = connection.exec_driver_sql("SELECT max(id) - 3 FROM journal").scalar_one()
        gone = connection.exec_driver_sql(f"SELECT digest FROM journal WHERE id = {row}").scalar_one()
        connection.exec_driver_sql(f"DELETE FROM journal WHERE id = {row}")
        old = now - timedelta(days=90)
        data = anchors.data_of([anchors.Gap(row, row, gone)], old, old)
        forged = {"at": instant(now), "run": "", "node": "", "event": "prune", "detail": "", "data": data}
        chain.append(connection, [forged | {"attempt": anchors.page_of(row)}])
    found = ledger.audit()
    assert found.problem == "anchor", found
    assert f"it says that row {row} was of " in found.detail


def test_no_anchor_is_of_a_time_after_it(small: None, ledger: SqlLedger, where: str) -> None:
    """One of the future might say that rows of today were old by then."""
    now = lived(ledger, some_steps(5))
    with ledger._database.write([]) as connection:
        row = connection.exec_driver_sql("SELECT max(id) - 3 FROM journal").scalar_one()
        gone = connection.exec_driver_sql(f"SELECT digest FROM journal WHERE id = {row}").scalar_one()
        connection.exec_driver_sql(f"DELETE FROM journal WHERE id = {row}")
        later = now + timedelta(days=900)
        data = anchors.data_of([anchors.Gap(row, row, gone)], later, later)
        forged = {"at": instant(later + timedelta(days=90)), "run": "", "node": "", "event": "prune", "data": data}
        chain.append(connection, [forged | {"attempt": anchors.page_of(row), "detail": ""}])
    assert ledger.audit(now=now).problem == "anchor", "the clock says so"
    ledger.start_run("run-later", "apply", "", "", now)
    found = ledger.audit()
    assert (found.problem, ", and row " in found.detail) == ("anchor", True), "so does the next row"


def test_pruning_hides_no_change(small: None, ledger: SqlLedger, where: str) -> None:
    """A row that was changed before stays for the audit, and so does what comes after it."""
    now = lived(ledger, some_steps(6))
    tamper(where, "UPDATE journal SET detail = 'nothing happened' WHERE id = 12")
    done = ledger.prune_journal(AGE, "run-p", now)
    assert done.problem.startswith("row 12 does not follow row 11")
    assert {row for row in ids(ledger) if row > _SMALL} >= set(range(8, 30))
    assert (ledger.audit().row, ledger.audit().problem) == (12, "changed")


def test_a_run_that_is_killed_has_pruned_whole_pages_and_the_next_goes_on(
    small: None, ledger: SqlLedger, reopen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = lived(ledger, some_steps(7))
    before, planned = remembered(ledger, now - AGE, now), ledger.prune_journal(AGE, "", now, dry=True)
    append, calls = chain.append, iter(range(100))

    def die(*given: Any) -> int:
        if next(calls) == 3:  # rows are deleted, and their anchor is not written
            raise RuntimeError("killed")
        return append(*given)

    monkeypatch.setattr(chain, "append", die)
    with pytest.raises(RuntimeError, match="killed"):
        ledger.prune_journal(AGE, "run-p", now)
    monkeypatch.setattr(chain, "append", append)
    again = reopen()
    found = again.audit()
    assert (found.problem, found.anchors) == ("", 3)
    assert remembered(again, now - AGE, now) == before
    rest = again.prune_journal(AGE, "run-q", now)
    assert again.audit().pruned == planned.total
    assert rest.pages > 3
    assert again.audit().problem == ""
    assert remembered(again, now - AGE, now) == before


def test_a_leader_prunes_some_pages_a_pass_and_looks_again_the_next_day(small: None, ledger: SqlLedger) -> None:
    now = lived(ledger, some_steps(8))
    planned, done = ledger.prune_journal(AGE, "", now, dry=True), pruning.Pruned()
    for _ in range(40):
        some = ledger.prune_some(AGE, "run-p", now, 2)
        assert some.pages <= 2
        done += some
    assert done.total == planned.total
    with ledger._database.read() as connection:
        told = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'pruning '").scalar_one()
    assert '"first":1' in told
    assert ledger.prune_some(AGE, "run-p", now + timedelta(hours=23), 2).total == 0
    later = now + timedelta(days=60)
    assert sum(ledger.prune_some(AGE, "run-p", later, 2).total for _ in range(40)) > 0
    assert ledger.audit().problem == ""


def test_two_that_prune_at_once_anchor_each_page_once(small: None, reopen: Open) -> None:
    one, other = reopen(), reopen()
    now = lived(one, some_steps(9))
    removable = retained.Removable("", now - AGE)
    pages = [one._judged(first, removable) for first in range(1, 60, _SMALL)]
    done = other.prune_journal(AGE, "run-p", now)
    again = [one._prune_page(page, "run-q", now).total for page in pages]
    assert sum(again) == 0
    assert (one.audit().pruned, one.audit().problem) == (done.total, "")


def test_rows_of_other_fleets_stay(small: None, where: str) -> None:
    ours, theirs = SqlLedger(where, fleet="a"), SqlLedger(where, fleet="b")
    now = lived(theirs, some_steps(10))
    theirs.remember_paths(list(NODES), frozenset({"bios.X"}))
    kept = {node: len(theirs.history(node, 10_000)) for node in NODES}
    ours.prune_journal(AGE, "run-p", now)
    assert {node: len(theirs.history(node, 10_000)) for node in NODES} == kept
    assert theirs.prune_journal(AGE, "run-p", now).total > 0
    assert theirs.audit().problem == ""
    ours.close()
    theirs.close()


def test_nobody_prunes_what_is_young(ledger: SqlLedger) -> None:
    with pytest.raises(LedgerError, match="kept for 30 days at least"):
        ledger.prune_journal(timedelta(days=29), "", BEGIN)


def test_a_head_that_was_noted_before_is_told_apart_from_one_that_is_gone(small: None, ledger: SqlLedger) -> None:
    life = Life(ledger)
    life.live(some_steps(11)[:40])
    noted = ledger.audit().head
    life.live(some_steps(12))
    ledger.prune_journal(AGE, "run-p", life.now)
    found = ledger.audit(ledger.audit().head)
    assert found.problem == ""
    assert found.pruned_until
    old = ledger.audit(noted)
    assert old.problem in ("", "rewritten")
    assert old.problem == "" or "unless it was noted before" in old.detail


def test_the_leader_prunes_with_each_pass_and_tells_of_a_damaged_journal_once(
    small: None, ledger: SqlLedger, where: str
) -> None:
    now = lived(ledger, some_steps(13))
    told: list[Any] = []
    JournalPruner(ledger, None, told.append).pass_ended("run-1", now)
    assert ledger.audit().pruned == 0, "nobody has asked for it"
    pruner = JournalPruner(ledger, AGE, told.append)
    pruner.pass_ended("run-1", now)
    assert ledger.audit().pruned > 0
    assert told == []
    with ledger._database.read() as connection:
        place = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'pruning '").scalar_one()
    row = to_object(place, "place")["first"] + 1
    tamper(where, f"UPDATE journal SET detail = 'nothing happened' WHERE id = {row}")
    pruner.pass_ended("run-1", now)
    pruner.pass_ended("run-1", now)
    assert [one.message for one in told] == [
        f"the journal is not pruned: row {row} does not follow row {row - 1}, and nothing from there on is pruned; "
        "see audit verify"
    ]


def test_a_ledger_of_the_version_before_gets_the_index_of_anchors(ledger: SqlLedger, reopen: Open, where: str) -> None:
    if "://" in where:
        tamper(where, "DROP FUNCTION ledger_changed CASCADE", "DROP TABLE changes")  # of the version after that
    tamper(where, "DROP INDEX journal_anchors", "UPDATE meta SET value = '11' WHERE key = 'schema_version'")
    assert reopen().info().version == migrations.SCHEMA_VERSION
    with reopen()._database.read() as connection:
        assert "journal_anchors" in {index["name"] for index in sa.inspect(connection).get_indexes("journal")}
