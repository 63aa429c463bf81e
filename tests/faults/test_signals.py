"""Random schedules of signals: flapping, doubled, late, in another order, in floods, over reboots and clocks."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.faults import signal_schedule
from tests.faults.signal_schedule import KINDS, Played, Sent, draw, kept, play

SHARDS = 10
SEEDS = {60: 10, 100: 20, 500: 10_000}[settings().max_examples]  # of the profiles dev, ci and soak


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_telemetry_does_the_rules_hold(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        schedule = draw(seed)
        played = play(schedule, on_disk=shard == 0, whole=shard == 1)
        assert not played.broken, f"seed {seed}: {played.broken}; {schedule}"


@pytest.mark.parametrize("seed", kept())
def test_schedules_that_once_broke_a_rule_hold(seed: int) -> None:
    """527: who was isolated and healed between two passes was told to nobody. 5581: a clock set back drained nodes.

    606: the entry of a broken DIMM stood before 300 of a BMC that flooded its log, of which 200 were read.
    30396: what was read after a clock was set back was taken for older than what was read before.
    40262: an outage of a node that was isolated between two passes, after the clock was set back, was told to nobody.
    163644925372: nor was who was isolated, became a spare again and was drained anew, all of it between two passes.
    """
    assert not play(kept()[seed]).broken


def test_a_clock_set_back_between_a_treatment_and_its_gate_repeats_no_gate() -> None:
    """The certificate is of an earlier time than the treatment, until the clock has caught up."""
    played = play((Sent(600.0, "a GPU falls off", "n3"), Sent(900.0, "the clock jumps", "n1")))
    assert (played.broken, played.rungs) == ((), 2)


@pytest.mark.parametrize("who", ["n0", "n1"], ids=["forward", "back"])
def test_a_clock_that_is_set_makes_no_boot_hang(who: str) -> None:
    """Set forward by 37 minutes, it had a node power-cycled that its owner had rebooted a minute before."""
    schedule = (Sent(11.9 * 60, "it reboots", "n3"), Sent(12.6 * 60, "the clock jumps", who))
    assert play(schedule) == Played((), isolated=0, rungs=0, messages=0)


def test_a_ledger_in_memory_plays_as_one_on_disk_and_both_the_same_each_time() -> None:
    schedule = draw(8)
    assert play(schedule) == play(schedule, on_disk=True)


def test_every_kind_is_drawn() -> None:
    assert {one.kind for seed in range(200) for one in draw(seed)} == set(KINDS)


def test_rules_that_are_broken_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules see what they are about: a node that is called well and treated, and an ill one that serves."""
    monkeypatch.setattr(signal_schedule, "NOISE", ("a GPU is gone for good",))
    monkeypatch.setattr(signal_schedule, "ISOLATE_S", -1.0)
    broken = play((Sent(600.0, "a GPU is gone for good", "n3"),)).broken
    assert "n3 is schedulable, with evidence that stays" in broken
    assert any(one.startswith("n3 is well, and was treated: mark") for one in broken)
