"""A BMC or the reconciler is away over a weekend, and memory fails meanwhile: what nobody has read yet is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.model.observed import BmcEvent, Observed
from reconciler.model.plan import Goal
from reconciler.model.records import COUNTED, LOG_READ, NodeRecord
from reconciler.model.vocab import Health
from reconciler.planner.fleet.signal_history import kept_signals
from reconciler.planner.node.late_events import log_updates
from tests import builders as b

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NODE = b.node()


def seen(hours_ago: float, *, settled: bool = False, after: timedelta = timedelta(), old: bool = False) -> Observed:
    """The node with a memory error in its BMC's log, so long before NOW. `old`: the log was read in a pass before."""
    age_s = hours_ago * 3600.0 + after.total_seconds()
    event = BmcEvent("1", "x", Health.CRITICAL, "Uncorrectable ECC", kind="memory_ue", age_s=age_s, settled=settled)
    found = b.observed(inventory=b.inventory(events=(event,)))
    at = b.NOW + after
    read = at - 2 * HOUR if old else at
    return replace(
        found, hot=replace(found.hot, at=at), host=replace(found.host, at=at),
        inventory=replace(found.inventory, at=read),
    )  # fmt: skip


def read_before(away: timedelta) -> NodeRecord:
    return replace(b.record(NODE), silent_since={LOG_READ: b.NOW - away})


def goal(record: NodeRecord, look: Observed) -> Goal:
    return b.planner(now=look.hot.at).plan(NODE, look, record).goal


def noted(record: NodeRecord, look: Observed) -> NodeRecord:
    kept = dict(record.silent_since)
    for key, new in kept_signals(NODE, look, record)[1]:
        if key.startswith(COUNTED):
            continue
        if new:
            kept[key] = look.hot.at
        else:
            del kept[key]
    return replace(record, silent_since=kept)


@pytest.mark.parametrize(
    ("hours_ago", "away", "isolated"),
    [
        (60, timedelta(hours=62), True),  # from Friday night to Monday
        (60, timedelta(hours=59, minutes=30), True),  # clocks of BMCs, and the time that a pass takes
        (70, timedelta(hours=62), False),  # it was there when the log was last read, and known then
        (60, timedelta(hours=5), False),
        (40, timedelta(hours=5), True),  # the row's window
        (300, timedelta(days=13), True),
        (300, timedelta(days=15), False),  # as a machine that is adopted
        (1e4, timedelta(days=13), False),
    ],
)
def test_what_came_while_nobody_read_the_log_counts_however_old_it_is(
    hours_ago: float, away: timedelta, isolated: bool
) -> None:
    assert (goal(read_before(away), seen(hours_ago)) is Goal.ISOLATED) is isolated


def test_a_log_that_was_never_read_is_judged_by_the_window_of_the_row() -> None:
    """An adopted machine has a log that nobody ever cleared."""
    assert goal(b.record(NODE), seen(60)) is Goal.IN_SERVICE
    assert goal(b.record(NODE), seen(40)) is Goal.ISOLATED


def test_a_late_event_is_kept_when_the_log_counts_as_read() -> None:
    record = noted(read_before(62 * HOUR), seen(60))
    assert record.silent_since[LOG_READ] == b.NOW
    later = seen(60, after=DAY)
    assert goal(record, later) is Goal.ISOLATED
    assert len(noted(record, later).silent_since) == 2
    assert goal(record, seen(60, settled=True, after=DAY)) is Goal.IN_SERVICE, "its BMC takes it back"
    released = replace(record, released_at=b.NOW + HOUR, after_release=0)
    assert goal(released, later) is Goal.IN_SERVICE


def test_a_person_who_released_the_node_meanwhile_has_looked() -> None:
    assert goal(replace(read_before(62 * HOUR), released_at=b.NOW - HOUR), seen(60)) is Goal.IN_SERVICE


def test_when_a_log_was_read_is_noted_seldom_and_only_where_it_was() -> None:
    never = b.record(NODE)
    assert noted(never, seen(1e4)).silent_since == {LOG_READ: b.NOW}
    assert noted(never, seen(1e4, old=True)).silent_since == {}, "an inventory of an earlier pass"
    for inventory in (b.inventory(events=None), b.inventory(unknown={"events": "it did not answer"})):
        assert LOG_READ not in noted(never, b.observed(inventory=inventory)).silent_since
    known = read_before(HOUR)
    assert noted(known, seen(1e4)) == known
    ahead = read_before(-DAY)
    assert noted(ahead, seen(1e4)).silent_since == {LOG_READ: b.NOW}, "the clock was set back"


def test_a_log_is_noted_once_in_six_hours_though_the_note_is_younger_than_the_reading() -> None:
    """Each note changes the record, and with it what is kept of the node's plan."""
    seen = b.observed(inventory=b.inventory(events=()))
    record = b.record(b.node(), seen)
    assert list(log_updates(seen, record)) == [(LOG_READ, True)]
    for minutes, due in ((1, False), (59, False), (-359, False), (-361, True), (70, True)):
        noted = replace(record, silent_since={LOG_READ: b.NOW + timedelta(minutes=minutes)})
        assert bool(list(log_updates(seen, noted))) is due, minutes
