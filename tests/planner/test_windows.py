"""Windows on the days on which people trip over them, and in the words in which they are told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reconciler.model.desired import Hours, Window
from reconciler.model.vocab import WindowKind
from reconciler.planner.fleet import hours
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.workload import Need

NIGHTS = Hours((0, 1, 2, 3, 4, 5, 6), 2 * 60, 3 * 60, "Europe/Berlin")  # 02:00-03:00


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def refused(kind: WindowKind, told: Hours, now: str, minutes: int = 1) -> bool:
    return Windows((Window(kind, told),), None, at(now)).refusal("a", Need(minutes * 60)) is not None


@pytest.mark.parametrize(
    ("now", "allow", "deny"),
    [
        ("2026-03-28T01:30", True, True),  # 02:30 on an ordinary night
        ("2026-03-29T00:59", False, True),  # 01:59, and then it is 03:00 at once: the hour in between does not exist
        ("2026-03-29T01:01", False, False),
        ("2026-10-25T00:30", False, True),  # 02:30 for the first time: which one is meant?
        ("2026-10-25T01:30", True, True),  # 02:30 for the second time
        ("2026-10-25T02:01", False, False),
    ],
)
def test_when_clocks_change_the_careful_reading_holds(now: str, allow: bool, deny: bool) -> None:
    assert refused(WindowKind.ALLOW, NIGHTS, now) is not allow
    assert refused(WindowKind.DENY, NIGHTS, now) is deny


def test_windows_that_join_up_are_one() -> None:
    evening, night = Hours((0,), 20 * 60, 24 * 60, "UTC"), Hours((1,), 0, 4 * 60, "UTC")
    both = Windows([Window(WindowKind.ALLOW, told) for told in (evening, night)], None, at("2026-11-23T23:00"))
    assert both.refusal("a", Need(4 * 3600)) is None
    assert both.refusal("a", Need(5.1 * 3600)) is not None


def test_work_waits_for_the_first_gap_that_is_long_enough() -> None:
    deny = [Window(WindowKind.DENY, Hours((1,), start, start + 60, "UTC")) for start in (600, 690, 900)]
    verdict = Windows(deny, None, at("2026-11-24T10:30")).refusal("a", Need(45 * 60))
    assert verdict is not None
    assert verdict.until == at("2026-11-24T12:30"), "from 11:00 to 11:30 is too short"
    assert verdict.detail == "denied by the deny window tue 10:00-11:00 UTC"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Hours((0, 1, 2, 3, 4), 480, 1080, "UTC"), "mon-fri 08:00-18:00 UTC"),
        (Hours((5, 6), 0, 1440, "Asia/Kolkata"), "sat,sun 00:00-24:00 Asia/Kolkata"),
        (Hours((0, 2, 4), 5, 65, "UTC"), "mon,wed,fri 00:05-01:05 UTC"),
        (Hours((0, 1, 2, 3, 4, 5, 6), 1320, 360, "UTC"), "daily 22:00-06:00 UTC"),
    ],
)
def test_hours_in_words(told: Hours, words: str) -> None:
    assert hours.text(told) == words
