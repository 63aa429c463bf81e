"""Status intervals, on SQLite and PostgreSQL: written on change only, never two at once, unknown in gaps."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.drivers.ledger import SqlLedger, schema
from reconciler.model.errors import LeaseHeld
from reconciler.model.period_report import Hours, ServiceStatus, StatusInterval
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.period_report import hours, hours_between
from tests.ledger.conftest import Open
from tests.ledger.test_damage import damage

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WITHIN = 10 * MINUTE
WELL = ServiceStatus("train", NodeStatus.CONVERGED, out=False)
AT_WORK = ServiceStatus("train", NodeStatus.ACTING, out=True)
DARK = ServiceStatus("train", NodeStatus.UNKNOWN, out=None)


def record(ledger: SqlLedger, at: datetime, *, whole: bool = True, **statuses: ServiceStatus) -> None:
    ledger.record_service_status(statuses, at, within=WITHIN, whole=whole)


def intervals(ledger: SqlLedger) -> list[tuple[str, str, int, int | None, int]]:
    """Node, status, and since, until and seen as minutes from the start."""

    def minute(at: datetime | None) -> int | None:
        return None if at is None else round((at - T0) / MINUTE)

    found = ledger.past(T0 - HOUR, T0 + 1000 * HOUR).status_intervals
    return [(s.node, s.status.value, minute(s.since) or 0, minute(s.until), minute(s.end) or 0) for s in found]


def rows(where: str) -> list[tuple[object, ...]]:
    url = where.replace("postgresql:", "postgresql+psycopg:") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        found = [
            tuple(row)
            for row in connection.execute(sa.select(schema.status_intervals).order_by(schema.status_intervals.c.id))
        ]
    engine.dispose()
    return found


def test_what_does_not_change_is_not_written_again(ledger: SqlLedger, where: str) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    first = rows(where)
    for number in range(1, 6):
        record(ledger, T0 + number * MINUTE, a=WELL, b=WELL)
    assert rows(where) == first
    assert intervals(ledger) == [("a", "converged", 0, None, 5), ("b", "converged", 0, None, 5)], (
        "and is known to go on"
    )


def test_a_change_ends_one_interval_and_begins_another(ledger: SqlLedger) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    record(ledger, T0 + 5 * MINUTE, a=AT_WORK, b=WELL)
    record(ledger, T0 + 9 * MINUTE, a=WELL, b=WELL)
    assert intervals(ledger) == [
        ("a", "converged", 0, 5, 5), ("a", "acting", 5, 9, 9), ("a", "converged", 9, None, 9),
        ("b", "converged", 0, None, 9),
    ]  # fmt: skip


def test_other_words_for_the_same_begin_nothing(ledger: SqlLedger) -> None:
    for number, why in enumerate(("17 of 18 links", "16 of 18 links")):
        record(ledger, T0 + number * MINUTE, a=ServiceStatus("train", NodeStatus.BLOCKED, True, "attempts", why))
    (interval,) = ledger.past(T0, T0 + HOUR).status_intervals
    assert (interval.since, interval.why, interval.code) == (T0, "17 of 18 links", "attempts")
    record(ledger, T0 + 2 * MINUTE, a=ServiceStatus("train", NodeStatus.BLOCKED, True, "gate", "16 of 18 links"))
    assert [interval.code for interval in ledger.past(T0, T0 + HOUR).status_intervals] == ["attempts", "gate"]


def test_hours_without_a_pass_are_unobserved(ledger: SqlLedger, reopen: Open) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    record(ledger, T0 + 5 * MINUTE, a=WELL, b=WELL)
    later = reopen()  # the runner was down for a day
    record(later, T0 + 24 * HOUR, a=WELL, b=AT_WORK)
    record(later, T0 + 24 * HOUR + 5 * MINUTE, a=WELL, b=AT_WORK)
    assert intervals(later) == [
        ("a", "converged", 0, 5, 5), ("a", "converged", 1440, None, 1445),
        ("b", "converged", 0, 5, 5), ("b", "acting", 1440, None, 1445),
    ]  # fmt: skip
    found = hours(later.past(T0, T0 + 25 * HOUR), T0, T0 + 25 * HOUR, {"a", "b"})
    assert found.in_service == pytest.approx(15 / 60)
    assert found.out == pytest.approx(5 / 60)
    assert found.total == pytest.approx(50)
    assert found.unobserved == pytest.approx(50 - 20 / 60)


def test_the_hour_in_which_a_node_left_or_entered_service_is_unobserved(ledger: SqlLedger) -> None:
    """Passes are an hour apart. A node that is out in both, or that we work on, is known."""

    def hourly(number: int, **statuses: ServiceStatus) -> None:
        ledger.record_service_status(statuses, T0 + number * HOUR, within=2 * HOUR, whole=True)

    broken = ServiceStatus("train", NodeStatus.BLOCKED, True, "gate")
    hourly(0, a=WELL, b=WELL, c=WELL)
    hourly(1, a=WELL, b=broken, c=AT_WORK)
    hourly(2, a=WELL, b=AT_WORK, c=AT_WORK)
    hourly(3, a=WELL, b=broken, c=WELL)
    hourly(4, a=WELL, b=WELL, c=WELL)
    assert intervals(ledger) == [
        ("a", "converged", 0, None, 240),
        ("b", "converged", 0, 0, 0), ("b", "blocked", 60, 120, 120), ("b", "acting", 120, 180, 180),
        ("b", "blocked", 180, 180, 180), ("b", "converged", 240, None, 240),
        ("c", "converged", 0, 60, 60), ("c", "acting", 60, 180, 180), ("c", "converged", 180, None, 240),
    ]  # fmt: skip
    found = hours(ledger.past(T0, T0 + 4 * HOUR), T0, T0 + 4 * HOUR, {"a", "b", "c"})
    assert found == Hours(in_service=4 + 0 + 2, out=2 + 2, unobserved=2)


def test_a_pass_over_some_nodes_says_nothing_about_the_others(ledger: SqlLedger) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    for number in range(1, 5):
        record(ledger, T0 + number * 8 * MINUTE, whole=False, a=WELL)
    assert intervals(ledger) == [("a", "converged", 0, None, 32), ("b", "converged", 0, None, 0)]
    record(ledger, T0 + 40 * MINUTE, a=WELL, b=WELL)
    assert intervals(ledger) == [
        ("a", "converged", 0, None, 40), ("b", "converged", 0, 0, 0), ("b", "converged", 40, None, 40),
    ]  # fmt: skip


def test_who_left_the_spec_is_seen_no_longer(ledger: SqlLedger) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    record(ledger, T0 + 5 * MINUTE, a=WELL)
    record(ledger, T0 + 9 * MINUTE, a=WELL)
    assert intervals(ledger) == [("a", "converged", 0, None, 9), ("b", "converged", 0, 0, 0)]


def test_of_two_who_write_at_once_one_is_heard(reopen: Open) -> None:
    one, two = reopen(), reopen()
    record(one, T0, a=WELL)
    record(two, T0 + MINUTE, a=WELL)
    record(one, T0 + 2 * MINUTE, a=AT_WORK)
    record(two, T0 + 3 * MINUTE, a=AT_WORK)
    assert intervals(one) == intervals(two) == [("a", "converged", 0, 2, 2), ("a", "acting", 2, None, 3)]


def test_in_a_batch_it_is_written_with_the_rest_or_not_at_all(ledger: SqlLedger) -> None:
    record(ledger, T0, a=WELL)
    with suppress(ZeroDivisionError), ledger.batch():
        record(ledger, T0 + MINUTE, a=AT_WORK)
        _ = 1 / 0
    assert intervals(ledger) == [("a", "converged", 0, None, 0)]
    record(ledger, T0 + 2 * MINUTE, a=WELL)
    with ledger.batch():
        record(ledger, T0 + 3 * MINUTE, a=AT_WORK)
    record(ledger, T0 + 4 * MINUTE, a=AT_WORK)
    assert intervals(ledger) == [("a", "converged", 0, 3, 3), ("a", "acting", 3, None, 4)]


def test_who_lost_the_lease_writes_nothing(reopen: Open) -> None:
    runner, operator = reopen(), reopen()
    lease = runner.acquire("demo", "runner", 60, T0)
    runner.fence(lease)
    record(runner, T0, a=WELL)
    operator.take_away(lease.token, "ops", T0)
    with pytest.raises(LeaseHeld):
        record(runner, T0 + MINUTE, a=AT_WORK)
    assert intervals(operator) == [("a", "converged", 0, None, 0)]


def test_fleets_on_one_ledger_are_separate(where: str) -> None:
    red, blue = SqlLedger(where, fleet="red"), SqlLedger(where, fleet="blue")
    record(red, T0, a=WELL)
    record(blue, T0 + 5 * MINUTE, a=AT_WORK, b=WELL)
    record(red, T0 + 6 * MINUTE, a=WELL)
    assert intervals(red) == [("a", "converged", 0, None, 6)]
    assert intervals(blue) == [("a", "acting", 5, None, 5), ("b", "converged", 5, None, 5)]
    red.close()
    blue.close()


def test_a_damaged_row_is_counted_and_hides_no_other(ledger: SqlLedger, where: str) -> None:
    record(ledger, T0, a=WELL, b=WELL)
    damage(where, schema.status_intervals, 1, status="splendid")
    past = ledger.past(T0, T0 + HOUR)
    assert ([interval.node for interval in past.status_intervals], past.damaged) == (["b"], 1)
    damage(where, schema.status_intervals, 1, status="converged", since="soon")
    record(ledger, T0 + MINUTE, a=WELL, b=WELL)
    assert [interval.node for interval in ledger.past(T0, T0 + HOUR).status_intervals] == ["b"], "it goes on as it is"


STATUSES = st.sampled_from(
    [WELL, AT_WORK, DARK, ServiceStatus("train", NodeStatus.SET_ASIDE, True, "quarantined", "by hand")]
)
PASSES = st.lists(
    st.tuples(st.integers(0, 25), st.booleans(), st.dictionaries(st.sampled_from("abc"), STATUSES, max_size=3)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(PASSES, st.integers(-30, 60), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_intervals_never_overlap_and_node_hours_add_up(
    tmp_path_factory: pytest.TempPathFactory,
    passes: list[tuple[int, bool, Mapping[str, ServiceStatus]]],
    begin: int,
    length: int,
) -> None:
    """For any passes at any times by any runners, and any period of the report."""
    where = tmp_path_factory.mktemp("intervals") / "ledger.sqlite"
    runners, now = [SqlLedger(where), SqlLedger(where)], T0
    for pause, whole, statuses in passes:
        now += pause * MINUTE
        runner = random.Random(pause).choice(runners)
        runner.record_service_status(statuses, now, within=WITHIN, whole=whole)
    since = T0 + begin * MINUTE
    until = since + length * MINUTE
    past = runners[0].past(since, until)
    for runner in runners:
        runner.close()
    last: dict[str, StatusInterval] = {}
    for interval in past.status_intervals:
        assert interval.since <= interval.end <= now
        if (before := last.get(interval.node)) is not None:
            assert before.until is not None
            assert before.until <= interval.since
        last[interval.node] = interval
    found = hours(past, since, until, {"a", "b", "c"})
    parts = (found.in_service, found.out, found.aside, found.unobserved)
    assert all(part >= 0 for part in parts)
    expected = sum(max(until - max(since, past.first.get(node, until)), timedelta(0)) / HOUR for node in "abc")
    gone = {interval.node: interval.end for interval in past.status_intervals}
    assert isinstance(found, Hours)
    assert found.total == pytest.approx(expected), gone
    edges = [since, since + (until - since) / 3, since + (until - since) / 2, until]
    parted = hours_between(past, edges, {"a", "b", "c"})
    for name in ("in_service", "out", "aside"):
        assert sum(getattr(one, name) for one in parted) == pytest.approx(getattr(found, name)), name
    assert sum(one.total for one in parted) == pytest.approx(found.total)


def test_a_hundred_thousand_unchanged_nodes_cost_little(tmp_path: Path) -> None:
    ledger = SqlLedger(tmp_path / "large.sqlite")
    fleet = {f"gpu-{number:06d}": WELL for number in range(20_000)}  # a fifth of it: what is measured grows evenly
    ledger.record_service_status(fleet, T0, within=WITHIN, whole=True)
    ledger.record_service_status(fleet, T0 + MINUTE, within=WITHIN, whole=True)
    began = time.process_time()
    ledger.record_service_status({**fleet, "gpu-000007": AT_WORK}, T0 + 2 * MINUTE, within=WITHIN, whole=True)
    spent = time.process_time() - began
    ledger.close()
    assert spent < 0.5
