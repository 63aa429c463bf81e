"""Random schedules of faults, edits, holds, cordons and crashes, on small fleets under virtual time."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.faults import schedule_run
from tests.faults.schedule import Schedule, ScheduledEvent, draw
from tests.faults.schedule_run import failure_report

SHARDS = 10
SEEDS = {60: 50, 100: 100, 500: 500}[settings().max_examples]  # of the profiles dev, ci and soak


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_a_fleet_keeps_its_invariants_and_ends_well(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        log = failure_report(draw(seed))
        assert not log, log


def test_what_breaks_is_told_with_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken invariant must be noticed, and be reported with the steps that repeat it."""
    careless = (lambda one, what: one.world.kube.update_node(what.subject, unschedulable=False),)
    monkeypatch.setattr(schedule_run, "HANDLERS", {**schedule_run.HANDLERS, "our runner uncordons": careless})
    policy = {"budgets": "all", "windows": "none", "rollout": "at once"}
    events = (
        ScheduledEvent(0.0, "drift", "n0", "BIOS off"),
        ScheduledEvent(60.0, "cordon", "n1", until=7200.0),
        ScheduledEvent(600.0, "fault", "n2", "host hangs", until=1200.0),
        ScheduledEvent(900.0, "our runner uncordons", "n1"),
    )
    log = failure_report(Schedule(7, ("n0", "n1", "n2"), policy, events))
    assert "foreign_cordon_is_kept: n1" in log
    assert "** our runner uncordons n1" in log
    assert "** cordon n1" in log
    assert "BIOS off" not in log, "what it does not take is left out"
    assert log.endswith("again: python -m tests.faults seed 7")
