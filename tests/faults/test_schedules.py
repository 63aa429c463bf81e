"""Random schedules of faults, edits, holds, cordons and crashes, on small fleets under virtual time."""

from __future__ import annotations

import os

import pytest

from tests.faults import life
from tests.faults.life import told
from tests.faults.schedule import Happening, Schedule, draw

SHARDS = 10
SEEDS = 500 if os.environ.get("CI") else 50


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_a_fleet_keeps_its_invariants_and_ends_well(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        story = told(draw(seed))
        assert not story, story


def test_what_breaks_is_told_with_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedules above are worth something only if a broken invariant is noticed, and can be seen again."""
    careless = (lambda one, what: one.world.kube.update_node(what.subject, unschedulable=False),)
    monkeypatch.setattr(life, "HAPPENS", {**life.HAPPENS, "our runner uncordons": careless})
    policy = {"budgets": "all", "windows": "none", "rollout": "at once"}
    happenings = (
        Happening(0.0, "drift", "n0", "BIOS off"),
        Happening(60.0, "cordon", "n1", until=7200.0),
        Happening(600.0, "fault", "n2", "host hangs", until=1200.0),
        Happening(900.0, "our runner uncordons", "n1"),
    )
    story = told(Schedule(7, ("n0", "n1", "n2"), policy, happenings))
    assert "foreign_cordon_is_kept: n1" in story
    assert "** our runner uncordons n1" in story
    assert "** cordon n1" in story
    assert "BIOS off" not in story, "what it does not take is left out"
    assert story.endswith("again: python -m tests.faults seed 7")
