"""The wall clock jumps back and forward between attempts: bounds within a time hold, and order stays order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.converge.clock_steps import STEP, ClockSteps
from reconciler.health.ladder import REMEDIATION, next_rung
from reconciler.lab.inprocess import VirtualClock
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.desired import Rung
from reconciler.model.records import UNHEALED
from tests import builders as b

DAY_S = 86400.0
LADDER = (Rung("soft_restart", 1), Rung("power_cycle", 2))
POLICY = replace(b.REMEDIATION, ladder=LADDER, window_s=DAY_S)
# No step is less than what a clock is slewed by, and none takes the clock before 1970.
STEPS = st.sampled_from([0, 0]) | st.integers(61, 3 * 86400) | st.integers(-3 * 86400, -61)
INSIDE = st.just(0) | STEPS  # while an attempt is under way
MOVES = st.lists(st.tuples(st.integers(60, 86400), STEPS, INSIDE), max_size=30)


@given(MOVES)
def test_a_rung_is_climbed_as_often_as_its_bound_says_and_no_less(moves: list[tuple[int, int, int]]) -> None:
    clock, ledger = VirtualClock(), MemoryLedger("x")
    steps, done, ends = ClockSteps(clock), list[tuple[str, float]](), list[float]()
    steps.mind(ledger, ["a"])
    for passes, step, inside in moves:
        clock.elapsed += passes
        clock.stepped += timedelta(seconds=step)
        steps.mind(ledger, ["a"])
        used = [action for action, at in done if at > clock.elapsed - DAY_S]
        wanted = next((rung.action for rung in LADDER if used.count(rung.action) < rung.attempts), None)
        rung = next_rung(POLICY, ledger.node("a").attempts, clock.now())
        assert (rung.action if rung else None) == wanted
        if rung is not None:
            token = ledger.acquire("fleet", "me", 1e9, clock.now()).token
            number = ledger.begin("run", "a", rung.action, "", REMEDIATION, {}, token, clock.now())
            done.append((rung.action, clock.elapsed))
            clock.elapsed += 30
            clock.stepped += timedelta(seconds=inside)
            steps.mind(ledger, ["a"])
            ledger.finish(number, "done", "", clock.now())
            ends.append(clock.elapsed)
        ages = [(clock.now() - one.ended).total_seconds() for one in ledger.node("a").attempts]
        assert all(abs(age - (clock.elapsed - end)) < 1 for age, end in zip(ages, ends, strict=True))


@given(st.lists(st.tuples(STEPS, st.sampled_from(["attempt", "event", "release"])), max_size=20))
def test_what_a_person_has_seen_to_is_what_came_before_the_hold_was_lifted(moves: list[tuple[int, str]]) -> None:
    clock, ledger = VirtualClock(), MemoryLedger("x")
    steps, since, fresh = ClockSteps(clock), 0, False
    released = False
    for step, what in moves:
        clock.elapsed += 60.0
        clock.stepped += timedelta(seconds=step)
        steps.mind(ledger, ["a"])
        key = f"{UNHEALED}health.xid_79"
        if what == "attempt":
            token = ledger.acquire("fleet", "me", 1e9, clock.now()).token
            ledger.finish(ledger.begin("run", "a", "mark", "", "", {}, token, clock.now()), "done", "", clock.now())
            since += 1
        elif what == "event":
            ledger.note_silences([("a", key, False), ("a", key, True)], clock.now())
            fresh = True
        else:
            ledger.hold("a", "looked at", "me", None, clock.now())
            ledger.release("a", "me", clock.now())
            since, fresh, released = 0, False, True
        record = ledger.node("a")
        assert len(record.since_release) == since
        if released and key in record.silent_since:
            assert record.released_at is not None
            assert (record.silent_since[key] > record.released_at) is fresh


def test_a_process_that_finds_attempts_of_later_than_now_counts_them_from_now() -> None:
    """The clock was ahead by a year while another process climbed a rung, and was set right before this one."""
    clock, ledger = VirtualClock(), MemoryLedger("x")
    ahead = clock.now() + timedelta(days=365)
    number = ledger.begin(
        "run", "a", "soft_restart", "", REMEDIATION, {}, ledger.acquire("f", "me", 1e9, ahead).token, ahead
    )
    ledger.finish(number, "done", "", ahead)
    for _ in range(2):
        ClockSteps(clock).mind(ledger, ["a"])
        (one,) = ledger.node("a").attempts
        assert abs(one.begun - clock.now()) < STEP
    clock.elapsed += DAY_S + 1
    ClockSteps(clock).mind(ledger, ["a"])
    rung = next_rung(POLICY, ledger.node("a").attempts, clock.now())
    assert rung == LADDER[0], "the day is over"


def test_an_attempt_of_later_than_now_makes_no_other_older() -> None:
    """A rung that was climbed by a right clock stays used, though one after it was dated by a clock days ahead."""
    clock, ledger = VirtualClock(), MemoryLedger("x")
    for action, ahead in (("soft_restart", timedelta()), ("power_cycle", timedelta(days=3))):
        at = clock.now() + ahead
        token = ledger.acquire("f", "me", 1e9, at).token
        ledger.finish(ledger.begin("run", "a", action, "", REMEDIATION, {}, token, at), "done", "", at)
        clock.elapsed += 3600
    for _ in range(2):
        ClockSteps(clock).mind(ledger, ["a"])
        soft, cycle = ledger.node("a").attempts
        assert clock.now() - soft.begun == timedelta(hours=2)
        assert abs(clock.now() - cycle.begun) < STEP
        assert next_rung(POLICY, (soft, cycle), clock.now()) == LADDER[1], "the milder rung is used up"
