"""Random schedules of faults, edits, holds, cordons and crashes, on small fleets under virtual time."""

from __future__ import annotations

import os

import pytest

from tests.faults.life import told

SHARDS = 10
SEEDS = 500 if os.environ.get("CI") else 50


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_a_fleet_keeps_its_invariants_and_ends_well(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        story = told(seed)
        assert not story, story
