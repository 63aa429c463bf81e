"""Limits within a time, bakes and halts of rollouts count time that has passed, though the wall clock was set."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.converge.clock_steps import STEP, ClockSteps
from reconciler.lab.inprocess import VirtualClock
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.desired import BudgetLimit, Fleet, SpecSource
from reconciler.model.observed import Observation
from reconciler.model.records import ISOLATED, Applied, Mark, Rollout
from reconciler.planner.fleet.isolation import Isolation
from reconciler.planner.fleet.rollout_member import rollout_member
from reconciler.planner.fleet.taken_out import taken_out
from tests import builders as b

SIGNAL = "health.gpu_missing"
BACK, ON = timedelta(hours=-3), timedelta(days=2)


class Here:
    """A ledger and a clock that is set."""

    def __init__(self) -> None:
        self.clock, self.ledger = VirtualClock(), MemoryLedger("x")
        self.steps = ClockSteps(self.clock)
        self.steps.mind(self.ledger, ["a"])

    def set_by(self, step: timedelta) -> None:
        self.clock.stepped += step
        self.steps.mind(self.ledger, ["a"])

    def do(self, action: str, cause: str = "", outcome: str = "done") -> None:
        token = self.ledger.acquire("fleet", "me", 1e9, self.clock.now()).token
        number = self.ledger.begin("run", "a", action, "", cause, {}, token, self.clock.now())
        self.clock.elapsed += 10
        self.ledger.finish(number, outcome, "", self.clock.now())

    def wait(self, minutes: float) -> None:
        self.clock.elapsed += 60 * minutes


def isolated_lately(here: Here, mark: Mark | None = None) -> bool:
    nodes = {"a": b.node("a")}
    fleet = Fleet(b.SETTINGS, SpecSource("spec"), nodes, "d")
    now = here.clock.now()
    seen = {"a": b.observed("a", member=b.member("a", mark=mark))} if mark is not None else {}
    counted = Isolation(fleet, Observation("1.0", "t", "", now, now, seen), {"a": here.ledger.node("a")}, now)
    return "a" in counted._recent.get((nodes["a"].pool, SIGNAL), set())


@pytest.mark.parametrize("step", [BACK, ON])
@pytest.mark.parametrize("recorded", [True, False])
def test_an_isolation_counts_for_an_hour_of_time_that_passed(step: timedelta, recorded: bool) -> None:
    here = Here()
    mark = Mark("x", "run", ISOLATED + SIGNAL, at=here.clock.now().replace(microsecond=0).isoformat(), cordoned=True)
    here.do("mark", ISOLATED + SIGNAL if recorded else "drift")  # else only the mark on the node tells
    here.wait(30)
    here.set_by(step)
    here.do("probe")
    assert isolated_lately(here, mark)
    here.wait(31)
    assert not isolated_lately(here, mark)


@pytest.mark.parametrize("step", [BACK, ON])
def test_a_rate_counts_who_was_taken_out_by_time_that_passed(step: timedelta) -> None:
    here = Here()
    settings = replace(b.SETTINGS, budgets=(BudgetLimit("fleet", "1", per_s=3600.0),))
    first = "mark" if settings.cluster is not None else "drain"
    here.do(first)
    here.wait(30)
    here.set_by(step)
    (at,) = taken_out({"a": here.ledger.node("a")}, settings)["a"]
    assert timedelta(minutes=30) <= here.clock.now() - at < timedelta(minutes=31)


@pytest.mark.parametrize("step", [BACK, ON])
@pytest.mark.parametrize("last", ["admit", "values", "certificate"])
def test_a_bake_lasts_as_long_as_it_says(step: timedelta, last: str) -> None:
    here, desired = Here(), b.node("a")
    seen = b.observed("a")
    known = b.record(desired, seen)
    here.do({"admit": "admit", "values": "reimage", "certificate": "run_gate"}[last])
    ended = here.clock.now()
    here.wait(5)
    here.set_by(step)
    long_ago = ended - timedelta(days=9)
    assert known.certificate is not None
    applied = {"image.version": Applied("2", "d", "c0ffee", ended if last == "values" else long_ago)}
    issued = ended - timedelta(seconds=2) if last == "certificate" else long_ago
    record = replace(
        known, attempts=here.ledger.node("a").attempts, applied=applied,
        certificate=replace(known.certificate, issued_at=issued),
    )  # fmt: skip
    member = rollout_member(desired, {"image.version": "2"}, None, record, True, here.clock.now())
    assert member.since is not None, member.missing
    passed = here.clock.now() - member.since
    assert timedelta(minutes=5) <= passed <= timedelta(minutes=5, seconds=3)


@pytest.mark.parametrize("step", [BACK, ON, timedelta()])
@pytest.mark.parametrize("early", [True, False])
def test_what_failed_since_a_rollout_began_halts_it_and_what_failed_before_does_not(
    step: timedelta, early: bool
) -> None:
    here, desired = Here(), b.node("a")
    if early:
        here.do("run_gate", outcome="permanent")
        here.wait(5)
    rollout = Rollout("train", "d", {"image.version": ("2",)}, {}, ("a",), False, here.clock.now(), "c0ffee")
    here.ledger.start_rollout(rollout, "run")
    here.wait(5)
    here.set_by(step)
    if not early:
        here.do("run_gate", outcome="permanent")
    record = replace(b.record(desired, b.observed("a")), attempts=here.ledger.node("a").attempts)
    member = rollout_member(desired, {"image.version": "2"}, None, record, False, here.clock.now())
    assert not member.settled
    began = here.ledger.rollouts()["train"].started_at
    assert timedelta(minutes=5) <= here.clock.now() - began <= timedelta(minutes=6)
    assert bool(member.failed_since(began)) is not early


def test_a_rollout_that_a_clock_ahead_has_dated_begins_now() -> None:
    clock, ledger = VirtualClock(), MemoryLedger("x")
    ahead = clock.now() + timedelta(days=365)
    ledger.start_rollout(Rollout("train", "d", {}, {}, ("a",), False, ahead, "c0ffee"), "run")
    ClockSteps(clock).mind(ledger, ["a"])
    assert abs(ledger.rollouts()["train"].started_at - clock.now()) < STEP
