"""A report of a period is that of all its rows, whichever of them the ledger reads for it."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.day_sums import DRIFT, OUTCOMES
from reconciler.drivers.ledger.rows import from_json, instant, to_instant
from reconciler.drivers.ledger.schema import day_sums, drift, journal, status_intervals
from reconciler.drivers.ledger.status_intervals import coverage_of
from reconciler.model import desired as d
from reconciler.model.errors import LeaseHeld
from reconciler.model.period_report import ActionTally, Episode, Past, StatusInterval
from reconciler.model.records import IN_PLACE_OF, Attempt
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.period_report import period_report
from reconciler.planner.fleet.reliability import Period, reliability
from tests import builders as b
from tests.ledger.ledger_life import BEGIN, NODES, STEPS, Life, Step
from tests.ledger.test_audit import tamper
from tests.ledger.test_ledger import token
from tests.ledger.test_pruning import small_pages, some_steps
from tests.planner.test_reliability import PROFILE

AGE = timedelta(days=30)
LATE = timedelta(days=9)
SIGNALS = ("health.xid_79", "health.port_slow", "health.dimm_failed")
FLEET = d.Fleet(
    b.SETTINGS,
    d.SpecSource("spec"),
    {name: b.node(name, profile=PROFILE, domains={"rack": "r1"}) for name in NODES},
    "d",
)


class Ill(Life):
    """A life in which nodes show signals that reports know, and are tended for other causes than those."""

    def _drifted(self, node: str, variant: int) -> None:
        """Show signals and a difference at a setting that last until the next time, and one that goes soon."""
        items = [(node, path, "drifted", 0, 1) for path in (*SIGNALS[:variant], "bios.X")]
        self.ledger.record_drift("run-1", [*items, (node, "host.tuned", "drifted", 0, 1)], [node], self.now)
        self.ledger.record_drift("run-1", items, [node], self.now + timedelta(minutes=5 + variant))

    def _noted(self, node: str, variant: int) -> None:
        cause = (SIGNALS[0], "image.version", "bios.X", SIGNALS[2])[variant]
        self.ledger.finish(
            self._begin(node, 0, ("drain", "run_gate", "admit", "mark")[variant], cause), "done", "", self.now
        )


def live(ledger: SqlLedger, steps: Sequence[Step]) -> datetime:
    """Write the steps, the last third of them late: as a runner does whose clock is days behind. Return the end."""
    life = Ill(ledger)
    part = len(steps) // 3
    life.live(steps[: 2 * part])
    end, life.now = life.now, life.now - LATE
    life.live([step for step in steps[2 * part :] if step[0] != "leased"])  # which a clock behind is refused
    return max(end, life.now) + timedelta(hours=1)


def summed(ledger: SqlLedger, now: datetime) -> None:
    """Make all pages of sums, as a leader does within a round, with looks only at days that have rows or a page."""
    cells = (day_sums.c.day, *(source.at for source in (DRIFT, OUTCOMES)))
    with ledger._database.read() as connection:
        found = {cell[:10] for column in cells for cell in connection.execute(sa.select(column)).scalars() if cell}
    days = sorted(day for day in found if day < instant(now - timedelta(hours=1))[:10])
    ledger._last_over = (now - timedelta(hours=1)).date() - timedelta(days=1)
    ledger._ahead = [(source, day) for day in days for source in (DRIFT, OUTCOMES)]
    for _ in ledger._ahead:
        assert not ledger.sum_up(now).problem


def came_and_went(ledger: SqlLedger, at: datetime, node: str = "a") -> None:
    """Record a difference as a runner does whose clock is behind, and an action."""
    path = "host.late"
    ledger.record_drift("run-1", [(node, path, "drifted", 0, 1)], [node], at, under=path)
    ledger.record_drift("run-1", [], [node], at + timedelta(seconds=1), under=path)
    attempt = ledger.begin("run-1", node, "set_bios", "", path, {}, token(ledger, at), at)
    ledger.finish(attempt, "done", "", at + timedelta(seconds=1))


def every_row(ledger: SqlLedger, since: datetime, until: datetime) -> Past:
    """Read all rows of the three tables, and keep by hand what falls in the period."""
    with ledger._database.read() as connection:
        coverage = coverage_of(connection, "")
        rows: dict[str, list[Any]] = {
            table.name: list(connection.execute(sa.select(table).order_by(table.c.id)).all())
            for table in (status_intervals, drift, journal)
        }
    spans = sorted(
        (r.node, to_instant(r.since, ""), r.id, _end(r.until), to_instant(r.seen, ""), r)
        for r in rows[status_intervals.name]
    )
    told = []
    for node, begin, _, end, seen, r in spans:
        if coverage is not None and end is None and seen >= coverage.since:
            seen = max(seen, coverage.seen)
        if begin <= until and (end is None or end >= since):
            out = None if r.out_of_service is None else bool(r.out_of_service)
            told.append(StatusInterval(node, r.pool, NodeStatus(r.status), out, begin, seen, end, r.code, r.why))
    first = {node: min(span[1] for span in some) for node, some in groupby(spans, key=lambda span: span[0])}
    episodes = [Episode(r.node, r.path, r.kind, to_instant(r.first_seen, ""), _end(r.ended_at)) for r in rows["drift"]]
    return Past(
        tuple(told),
        tuple(one for one in episodes if one.since <= until and (one.until is None or one.until >= since)),
        tuple(_tallies(rows["journal"], since, until)),
        first,
        attempts=_attempts(rows["journal"], since, until),
    )


def _end(cell: str | None) -> datetime | None:
    return None if cell is None else to_instant(cell, "")


def _tallies(rows: Sequence[Any], since: datetime, until: datetime) -> Iterator[ActionTally]:
    ended = [r for r in rows if r.event == "outcome" and since <= to_instant(r.at, "") <= until]
    for (action, data), some in groupby(sorted(ended, key=_said), key=_said):
        nodes = [r.node for r in some]
        yield ActionTally(action, from_json(data, ""), len(nodes), len(set(nodes)))


def _said(row: Any) -> tuple[str, str]:
    return row.action, row.data


def _attempts(rows: Sequence[Any], since: datetime, until: datetime) -> dict[str, tuple[Attempt, ...]]:
    """Return all attempts that began in the period, whatever they were at."""
    outcomes = {r.attempt: r for r in rows if r.event == "outcome"}
    found: dict[str, list[Attempt]] = {}
    for r in rows:
        at = to_instant(r.at, "")
        if r.event == "intent" and since <= at <= until:
            end = outcomes.get(r.id)
            said = "started" if end is None else from_json(end.data, "")
            ended = None if end is None else to_instant(end.at, "")
            found.setdefault(r.node, []).append(Attempt(r.action, r.target, r.detail, at, said, ended_at=ended))
    return {node: tuple(some) for node, some in found.items()}


def check(place: str, steps: Sequence[Step], length: timedelta) -> tuple[Past, Past]:
    """Compare reports of a period with those of all its rows: with a page of sums that a late row has made wrong, with
    pages of journal rows that are pruned, and with all pages as they should be.
    """
    ledger = SqlLedger(place)
    until = live(ledger, steps)
    since, late = until - length, until - length / 2
    summed(ledger, until)
    came_and_went(ledger, late)
    with small_pages():
        for turn in range(3):
            read, every = ledger.past(since, until), every_row(ledger, since, until)
            assert period_report(read, "demo", NODES, since, until) == period_report(every, "demo", NODES, since, until)
            assert reliability(Period(FLEET, read, since, until, read)) == reliability(
                Period(FLEET, every, since, until, every)
            )
            summed(ledger, until)
            if turn == 0:
                ledger.prune_journal(AGE, "run-p", until + AGE)
    ledger.close()
    return read, every


@settings(deadline=None, max_examples=10, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(STEPS, st.timedeltas(timedelta(hours=3), timedelta(days=150)))
def test_a_report_is_that_of_all_rows(steps: list[Step], length: timedelta) -> None:
    with tempfile.TemporaryDirectory() as home:
        check(str(Path(home) / "ledger.sqlite"), steps, length)


def test_both_databases_report_alike_and_leave_out_what_tells_nothing(where: str) -> None:
    read, every = check(where, some_steps(1, 150), timedelta(days=90))
    assert sum(sum(one.came) for one in read.drift_days) > 3
    kept, all_of = (sum(map(len, past.attempts.values())) for past in (read, every))
    assert 0 < kept < all_of
    assert any(one.cause == SIGNALS[0] for some in read.attempts.values() for one in some)


def looks(ledger: SqlLedger, now: datetime, number: int) -> list[tuple[str, str, bool]]:
    found = [ledger.sum_up(now) for _ in range(number)]
    return [(one.what, one.day[-2:], one.made) for one in found]


def test_a_leader_looks_at_one_day_with_each_pass_at_days_newly_over_first(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.drivers.ledger.day_sums.DAYS", 2)
    first, second, other = SqlLedger(where, fleet="demo"), SqlLedger(where, fleet="demo"), SqlLedger(where, fleet="x")
    for day in range(3):
        came_and_went(first, BEGIN + timedelta(days=day, hours=3))
    came_and_went(other, BEGIN + timedelta(hours=4), "foreign")
    other.remember_identities({"foreign": ("S1", None)}, BEGIN)
    now, since = BEGIN + timedelta(days=3, minutes=30), BEGIN - timedelta(days=1)  # the third is not over for an hour
    expected = [("drift", "02", True), ("outcomes", "02", True), ("drift", "02", False), ("outcomes", "02", False)]
    assert looks(first, now, 4) == expected
    assert looks(first, now + timedelta(hours=1), 2) == [("drift", "03", True), ("outcomes", "03", True)]
    assert looks(first, now + timedelta(hours=1), 2) == [("drift", "01", True), ("outcomes", "01", True)], "and goes on"
    assert not any(made for *_, made in looks(second, now, 8)), "another runner finds them as they should be"
    assert [sum(one.came) for one in second.past(since, now).drift_days] == [1, 1, 1]
    with second._database.write([]) as connection:
        connection.execute(sa.delete(drift).where(drift.c.ended_at.startswith("2026-01-03")))
    assert ("drift", "03", True) in looks(second, now + timedelta(hours=1), 8)
    with second._database.read() as connection:
        kept = connection.execute(sa.select(day_sums.c.day).where(day_sums.c.what == "drift")).scalars()
        assert sorted(day[-2:] for day in kept) == ["01", "02"], "a page without rows goes"
    ahead = now + timedelta(days=900)  # of a clock that jumps: what is over once it is right again comes first
    assert {day for _, day, _ in looks(first, ahead, 2)} != {"03"}
    assert [day for _, day, _ in looks(first, now + timedelta(hours=1), 2)] == ["03", "03"]
    for ledger in (first, second, other):
        ledger.close()


def test_a_day_of_too_many_rows_has_no_page(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.drivers.ledger.day_sums.MOST_ROWS", 2)
    for hour in range(3):
        came_and_went(ledger, BEGIN + timedelta(hours=3 + hour), f"n{hour}")
    now = BEGIN + timedelta(days=1, hours=1)
    assert looks(ledger, now, 2) == [("drift", "01", False), ("outcomes", "01", False)]
    assert [one.node for one in ledger.past(BEGIN, now).episodes] == ["n0", "n1", "n2"]
    monkeypatch.setattr("reconciler.drivers.ledger.day_sums.MOST_ROWS", 3)
    assert looks(ledger, now, 2) == [("drift", "01", True), ("outcomes", "01", True)]


def test_a_page_is_of_one_fleet_and_of_the_rules_by_which_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another fleet did is no part of it, what a spare serves in place of is, and other rules make other pages."""
    ledgers = [SqlLedger(tmp_path / "ledger.sqlite", fleet=fleet) for fleet in ("ours", "theirs")]
    now = BEGIN + timedelta(days=1, hours=1)
    for at, ledger in enumerate(ledgers):
        ledger.start_run(f"run-{at}", "run", "c0ffee", "", BEGIN)
        held = ledger.acquire(f"fleet {at}", "runner", 1e9, BEGIN).token
        for minute, (node, action, why) in enumerate((("a", "mark", "isolated"), ("b", "admit", f"{IN_PLACE_OF}a"))):
            begun = BEGIN + timedelta(hours=3, minutes=10 * at + minute)
            attempt = ledger.begin(f"run-{at}", node, action, "", why, {}, held, begun)
            ledger.finish(attempt, "done", "", begun)
    from_rows = ledgers[0].past(BEGIN, now)
    assert [(one.action, one.count) for one in from_rows.actions] == [("admit", 1), ("mark", 1)]
    assert [(one.node, one.spare) for one in from_rows.replacements] == [("a", "b")]
    assert ("outcomes", "01", True) in looks(ledgers[0], now, 2)
    assert ledgers[0].past(BEGIN, now) == from_rows
    monkeypatch.setattr("reconciler.drivers.ledger.day_sums.RULES", "others")
    ledgers[0]._ahead = ()
    assert ("outcomes", "01", True) in looks(ledgers[0], now, 2), "a page by other rules is made anew"
    for ledger in ledgers:
        ledger.close()


def test_who_lost_the_lease_makes_no_page_and_hears_of_it(ledger: SqlLedger) -> None:
    came_and_went(ledger, BEGIN + timedelta(hours=3))

    def fence(_: sa.Connection) -> None:
        raise LeaseHeld("other", "other leads")

    ledger._database.fence = fence
    with pytest.raises(LeaseHeld):
        looks(ledger, BEGIN + timedelta(days=1, hours=1), 1)
    ledger._database.fence = None
    assert ("drift", "01", True) in looks(ledger, BEGIN + timedelta(days=1, hours=1), 3)


def _drift_page(**differences: Any) -> dict[str, Any]:
    return {"came": [1, *[0] * 23], "went": [1, *[0] * 23], "us": [1], "where": {"p": ["x"]}, "alone": []} | differences


_NO_PAGES: tuple[tuple[str, Any], ...] = (
    ("drift", b"x"),
    ("drift", []),
    ("drift", {"came": 1}),
    ("drift", _drift_page(came=[1])),
    ("drift", _drift_page(us=["1"])),
    ("drift", _drift_page(where=[1])),
    ("drift", _drift_page(where={"p": [1]})),
    ("drift", _drift_page(alone=[1])),
    ("drift", _drift_page(alone=[[1, "x"]])),
    ("outcomes", None),
    ("outcomes", {"told": []}),
    ("outcomes", {"told": [1], "spares": []}),
    ("outcomes", {"told": [["", "a", '"done"', [1]]], "spares": []}),
    ("outcomes", {"told": [], "spares": [["1", "", "a", "", ""]]}),
)


def test_rows_are_read_where_a_page_is_damaged_or_of_another_shape(tmp_path: Path) -> None:
    with closing(SqlLedger(tmp_path / "ledger.sqlite", fleet="demo")) as ledger:
        came_and_went(ledger, BEGIN + timedelta(hours=3))
        now = BEGIN + timedelta(days=1, hours=1)
        before = ledger.past(BEGIN, now)
        for what, said in _NO_PAGES:
            with ledger._database.write([]) as connection:
                connection.execute(sa.delete(day_sums))
            assert all(made for *_, made in looks(ledger, now, 2))
            data = said if isinstance(said, bytes) else zlib.compress(json.dumps(said).encode())
            with ledger._database.write([]) as connection:
                connection.execute(day_sums.update().where(day_sums.c.what == what).values(data=data))
            found = ledger.past(BEGIN, now)
            assert (found.actions, len(found.drift_days)) == (before.actions, int(what == "outcomes")), said
            assert period_report(found, "demo", ["a"], BEGIN, now) == period_report(before, "demo", ["a"], BEGIN, now)
            ledger._ahead = ()


@pytest.mark.parametrize(
    "cell",
    [
        *(f"journal.{column}" for column in ("at", "run", "node", "action", "target", "detail", "data")),
        *(f"drift.{column}" for column in ("node", "path", "kind", "first_seen", "ended_at")),
    ],
)
def test_a_damaged_cell_ends_no_report(tmp_path: Path, cell: str) -> None:
    """Pitfall M6. The rows beside it are reported, with pages and without."""
    table, column = cell.split(".")
    where, end = str(tmp_path / "ledger.sqlite"), BEGIN + timedelta(days=1, hours=1)
    with closing(SqlLedger(where, fleet="demo")) as ledger:
        came_and_went(ledger, BEGIN + timedelta(hours=3))
        came_and_went(ledger, BEGIN + timedelta(hours=4), "b")
        for damage in ("x'ff01'", "CAST(x'68ff' AS TEXT)"):
            tamper(where, f"UPDATE {table} SET {column} = {damage} WHERE id = (SELECT max(id) FROM {table})")
            for _ in range(2):
                read = ledger.past(BEGIN, end)
                report = period_report(read, "demo", NODES, BEGIN, end)
                if damage.endswith("TEXT)") and cell in {"drift.node", "drift.path", "drift.kind"}:
                    assert read.damaged > 0
                done = [one.count for one in report.actions if (one.action, one.outcome) == ("set_bios", "done")]
                assert (sum(done) > 0, report.introduced > 0) == (True, True)
                looks(ledger, end, 4)
