"""A report of a period is that of all its rows, whichever of them the ledger reads for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.rows import from_json, to_instant
from reconciler.drivers.ledger.schema import day_sums, drift, journal, status_intervals
from reconciler.drivers.ledger.status_intervals import coverage_of
from reconciler.model import desired as d
from reconciler.model.period_report import ActionTally, Episode, Past, StatusInterval
from reconciler.model.records import Attempt
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.period_report import period_report
from reconciler.planner.fleet.reliability import Period, reliability
from tests import builders as b
from tests.ledger.ledger_life import BEGIN, NODES, STEPS, Life, Step
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
    """Make all pages of sums, as a leader does within some passes."""
    ledger._due, ledger._looked = (), None
    ledger.sum_up(now, 1000)


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


@settings(deadline=None, max_examples=15, phases=(Phase.explicit, Phase.reuse, Phase.generate))
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


def test_pages_are_made_some_at_a_time_by_any_runner_and_a_damaged_one_is_not_believed(where: str) -> None:
    first, second, other = SqlLedger(where, fleet="demo"), SqlLedger(where, fleet="demo"), SqlLedger(where, fleet="x")
    for day in range(3):
        came_and_went(first, BEGIN + timedelta(days=day, hours=3))
    came_and_went(other, BEGIN + timedelta(hours=4), "foreign")
    other.remember_identities({"foreign": ("S1", None)}, BEGIN)
    now, since = BEGIN + timedelta(days=3, minutes=30), BEGIN - timedelta(days=1)
    assert first.sum_up(now, 3) == 3
    assert [second.sum_up(now, 2), second.sum_up(now, 2)] == [
        1,
        0,
    ]  # of two days: the third has not been over for an hour
    assert [sum(one.came) for one in second.past(since, now).drift_days] == [1, 1]
    with second._database.write() as connection:
        connection.execute(day_sums.update().where(day_sums.c.day == BEGIN.date().isoformat()).values(data=b"x"))
    found = second.past(since, now)
    assert [len(found.drift_days), [one.node for one in found.episodes]] == [1, ["a", "a"]]
    for ledger in (first, second, other):
        ledger.close()
