"""Which nodes are reserved before their work, and when such a reservation is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Hours, Window
from reconciler.model.reservations import Reservation, Reservations
from reconciler.model.vocab import WindowKind
from reconciler.planner.fleet.reservations import TOLERATED, has_moved, is_over, wanted_reservations
from tests import builders as b
from tests.planner.test_timeline import plan

NIGHT = Hours(tuple(range(7)), 22 * 60, 6 * 60, "UTC")
AHEAD = timedelta(hours=24)
HOUR = timedelta(hours=1)


def expected(hours: float = 3, **changes: Any) -> Any:
    begins = b.NOW + timedelta(hours=hours)
    return plan(**{"start": begins, "end": begins + HOUR, **changes})


@pytest.mark.parametrize(
    ("found", "pools", "wanted"),
    [
        (expected(), (), True),
        (expected(), ("train",), True),
        (expected(), ("other",), False),
        (expected(25), (), False),
        (expected(0), (), False),
        (expected(start=None), (), False),
        (expected(minutes=0, harmless=5), (), False),
        (expected(in_service=False), (), False),
    ],
)
def test_nodes_that_will_be_taken_out_soon_in_a_window_are_reserved(found: Any, pools: Any, *, wanted: bool) -> None:
    windows = (Window(WindowKind.ALLOW, NIGHT, pools=pools),)
    assert bool(wanted_reservations({"a": found}, windows, b.NOW, AHEAD)) is wanted


@pytest.mark.parametrize(
    ("found", "begins", "over"),
    [
        (None, 1, True),
        (plan(minutes=0), 1, True),
        (plan(), 1, True),  # it goes at another time
        (plan(), -1, False),  # its time has come, and a budget still holds it back
        (plan(in_service=False), -1, False),
        (plan(in_service=None), -1, False),
    ],
)
def test_a_reservation_is_over_when_it_serves_nothing(found: Any, begins: int, *, over: bool) -> None:
    ours = Reservation("a", b.NOW + begins * HOUR, b.NOW + 5 * HOUR)
    assert is_over(ours, found, b.NOW) is over


@given(st.integers(-120, 120), st.integers(-120, 120), st.booleans())
def test_a_reservation_follows_its_plan_until_it_begins(start: int, end: int, begun: bool) -> None:
    ours = Reservation("a", b.NOW + (-HOUR if begun else 3 * HOUR), b.NOW + 6 * HOUR)
    wanted = replace(ours, start=ours.start + timedelta(minutes=start), end=ours.end + timedelta(minutes=end))
    far = max(abs(start), abs(end)) > TOLERATED.total_seconds() / 60
    assert has_moved(ours, wanted, b.NOW) is (far and not begun)


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20), st.integers(1, 20), st.booleans())
def test_two_reservations_of_a_node_overlap_if_they_share_a_minute(
    first: int, lasts: int, second: int, goes_on: int, same: bool
) -> None:
    def at(begins: int, minutes: int, node: str) -> Reservation:
        begin = b.NOW + timedelta(minutes=begins)
        return Reservation(node, begin, begin + timedelta(minutes=minutes))

    theirs = at(second, goes_on, "a" if same else "b")
    shared = set(range(first, first + lasts)) & set(range(second, second + goes_on))
    found = Reservations({}, (theirs,)).overlapped(at(first, lasts, "a"))
    assert (found is not None) is (same and bool(shared))
