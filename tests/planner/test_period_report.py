"""The sums of a period, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.model.period_report import ILL, Episode, Hours, Past, PeriodReport, StatusInterval
from reconciler.model.reliability import Times
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.durations import times
from reconciler.planner.fleet.period_report import period_report

T0 = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
C, A, P, B, W, S, U = (
    NodeStatus.CONVERGED, NodeStatus.ACTING, NodeStatus.PLANNED, NodeStatus.BLOCKED, NodeStatus.WAITING,
    NodeStatus.SET_ASIDE, NodeStatus.UNKNOWN,
)  # fmt: skip
Part = tuple[float, float, NodeStatus, bool | None] | tuple[float, float, NodeStatus, bool | None, str]


def at(hour: float) -> datetime:
    return T0 + hour * HOUR


def status_intervals(node: str, *parts: Part, goes_on: bool = True) -> list[StatusInterval]:
    """Each from hour to hour; the last goes on."""
    found = []
    for number, (since, until, status, out, *code) in enumerate(parts):
        still = goes_on and number == len(parts) - 1
        word = code[0] if code else ""
        why = f"{word} of {node}" if word else ""
        ended = None if still else at(until)
        found.append(StatusInterval(node, "train", status, out, at(since), at(until), ended, word, why))
    return found


def told(
    *of_nodes: list[StatusInterval], drift: tuple[Episode, ...] = (), since: float = 0, until: float = 10
) -> PeriodReport:
    all_spells = tuple(spell for some in of_nodes for spell in some)
    first: dict[str, datetime] = {}
    for spell in all_spells:
        first[spell.node] = min(spell.since, first.get(spell.node, spell.since))
    nodes = {spell.node for spell in all_spells if spell.until is None} | {one.node for one in drift}
    return period_report(Past(all_spells, drift, (), first), "lab", nodes, at(since), at(until))


def test_availability_is_of_the_hours_in_which_somebody_could_say() -> None:
    found = told(
        status_intervals("a", (0, 4, C, False), (4, 6, A, True), (6, 10, C, False)),
        status_intervals("b", (0, 2, C, False), (7, 10, C, False)),  # nobody looked for five hours
        status_intervals("c", (0, 5, U, None), (5, 10, S, True, "quarantined")),
    )
    assert found.hours == Hours(in_service=13, out=2, aside=5, unobserved=10)
    assert found.hours.total == 30
    assert found.availability == pytest.approx(13 / 15)
    assert found.unobserved_share == pytest.approx(1 / 3)


def test_a_node_counts_from_its_first_look_and_until_it_left_the_spec() -> None:
    joined = status_intervals("a", (8, 10, C, False))
    left = status_intervals("b", (0, 3, C, False), goes_on=False)
    assert told(joined, left).hours == Hours(in_service=5)


def test_what_nobody_looked_at_for_the_rest_of_the_period_is_not_observed() -> None:
    assert told(status_intervals("a", (0, 4, C, False))).hours == Hours(in_service=4, unobserved=6)


def test_no_hour_counts_twice_whatever_clocks_say() -> None:
    assert told(status_intervals("a", (0, 5, A, True), (4, 10, C, False))).hours == Hours(in_service=6, out=4)


def test_a_fleet_that_nobody_looked_at_has_no_availability() -> None:
    found = told()
    assert (found.availability, found.unobserved_share, found.watched_since) == (None, 1.0, None)


def test_recoveries_begin_when_a_node_goes_out_and_end_when_it_is_seen_to_serve() -> None:
    found = told(
        status_intervals(
            "a", (0, 1, C, False), (1, 2, A, True), (2, 3, B, True, "gate"), (3, 5, A, True), (5, 9, C, False)
        ),
        status_intervals(
            "b", (0, 1, C, False), (1, 2, A, True), (6, 9, C, False)
        ),  # a gap, in which nobody saw it serve
        status_intervals("c", (0, 4, C, False), (4, 9, W, True)),
        status_intervals("d", (0, 4, A, True), (4, 9, S, True, "retired")),  # set aside: nobody waits for it any more
    )
    assert [(one.node, one.seconds / 3600, one.until is None, one.cause) for one in found.recoveries] == [
        ("c", 5, True, "went out by itself, and waited for its turn"),
        ("b", 5, False, "worked on by the reconciler"),
        ("a", 4, False, "gate of a"),
    ]
    assert found.recover == Times(2, 4.5 * 3600, 4.5 * 3600, 5 * 3600)


@pytest.mark.parametrize(
    ("began", "cause"),
    [
        ((A, True, ""), "worked on by the reconciler"),
        ((P, True, ""), "went out by itself, before anything was done to it"),
        ((U, True, ""), "could not be read"),
        ((A, True, ILL), "ill of a"),
        ((P, True, ILL), "ill of a"),
    ],
)
def test_an_outage_is_the_reconcilers_only_if_it_was_at_work_when_the_node_went_out(
    began: tuple[NodeStatus, bool, str], cause: str
) -> None:
    """What it does later, to repair the node, has not caused the outage."""
    found = told(status_intervals("a", (0, 1, C, False), (1, 2, *began), (2, 5, A, True), (5, 9, C, False)))
    assert [(one.seconds / 3600, one.cause) for one in found.recoveries] == [(4, cause)]


def test_quarantines_are_those_of_the_spec_and_of_used_up_ladders() -> None:
    found = told(
        status_intervals(
            "a", (0, 1, C, False), (1, 3, B, True, "attempts"), (6, 8, B, True, "attempts"), (8, 9, C, False)
        ),
        status_intervals("b", (2, 9, S, None, "quarantined")),
        status_intervals("c", (2, 9, S, None, "retired"), (9, 10, B, True, "gate")),
    )
    assert [(one.node, one.why, one.since, one.until) for one in found.quarantined] == [
        ("b", "quarantined of b", at(2), None),
        ("a", "attempts of a", at(1), at(8)),
    ]


def test_a_node_that_is_ill_in_service_is_not_quarantined() -> None:
    found = told(
        status_intervals("a", (0, 9, B, False, "attempts")),
        status_intervals("b", (0, 2, B, False, "attempts"), (2, 4, B, True, "attempts"), (4, 9, B, False, "attempts")),
        status_intervals("c", (0, 9, B, None, "attempts")),  # nobody can say
        status_intervals("d", (0, 2, B, True, "attempts"), (2, 4, B, None, "attempts"), (4, 9, B, True, "attempts")),
    )
    assert [(one.node, one.since, one.until) for one in found.quarantined] == [
        ("b", at(2), at(4)),
        ("d", at(0), None),
    ]


def test_who_left_the_spec_is_neither_still_out_nor_still_quarantined() -> None:
    found = told(
        status_intervals("a", (0, 1, C, False), (1, 3, B, True, "attempts"), (3, 4, U, None), goes_on=False),
        status_intervals("b", (0, 1, C, False), (1, 2, A, True), (2, 3, C, False), (3, 4, A, True), goes_on=False),
    )
    assert [(one.node, one.since, one.until) for one in found.recoveries] == [("b", at(1), at(2))]
    assert [(one.node, one.since, one.until) for one in found.quarantined] == [("a", at(1), at(4))]
    assert found.hours.out == 4, "and each hour of it counts"


def test_drift_is_counted_when_it_came_and_when_it_went() -> None:
    drift = (
        Episode("a", "bios.X", "drifted", at(-5), at(1)),
        Episode("a", "image.version", "pending", at(2), at(4)),
        Episode("b", "bios.X", "drifted", at(2.5), None),
        Episode("b", "host.hostname", "unknown", at(3), None),  # neither drift nor clean
        Episode("c", "bios.X", "ignored", at(3), None),
        Episode("gone", "bios.X", "drifted", at(3), None),  # of a node that has left the spec
    )
    found = told(drift=drift[:5])
    assert (found.introduced, found.removed, found.open) == (2, 2, 1)
    assert found.converge == Times(2, 4 * 3600, 4 * 3600, 6 * 3600)
    assert [(one.concern, one.introduced, one.removed, one.open, one.nodes) for one in found.concerns] == [
        ("bios", 1, 1, 1, 2), ("image", 1, 1, 0, 1),
    ]  # fmt: skip
    assert [(one.node, one.introduced, one.open) for one in found.top_nodes] == [("b", 1, 1), ("a", 1, 0)]
    assert [(day.introduced, day.removed, day.open) for day in found.days[:5]] == [
        (0, 0, 1), (0, 1, 0), (2, 0, 2), (0, 0, 2), (0, 1, 1),
    ]  # fmt: skip
    assert found.days[-1].open == found.open


def test_a_long_period_is_told_by_the_day() -> None:
    found = told(drift=(Episode("a", "bios.X", "drifted", at(30), at(60)),), since=5, until=100)
    assert [(day.start, day.introduced, day.removed, day.open) for day in found.days] == [
        (at(0), 0, 0, 0), (at(24), 1, 0, 1), (at(48), 0, 1, 0), (at(72), 0, 0, 0), (at(96), 0, 0, 0),
    ]  # fmt: skip


def test_nine_of_ten_stay_within_the_ninth_decile() -> None:
    assert times(range(1, 11)) == Times(10, 5.5, 5.5, 9)
    assert times([7]) == Times(1, 7, 7, 7)
    assert times([]) == Times()
