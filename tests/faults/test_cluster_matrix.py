"""A K3s cluster with operators from blank machines to its teardown, whole and interrupted.

`python -m tests.faults cluster --update` plays every interruption point and writes the table of the documentation; here
its rows and columns are compared, and some of its points are played.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.converge.k3s_world import NEW, OLD, declare, site, spec
from tests.faults.cluster_life import LOST, STAGES, WIPE, a_life, interrupted
from tests.faults.cluster_matrix import CLUSTER, NODES, Cell

PLAYED = 8  # of each stage


@cache
def cells() -> dict[str, list[Cell]]:
    return CLUSTER.undisturbed()


def test_the_page_has_the_actions_and_the_points_at_which_they_are_interrupted() -> None:
    assert CLUSTER.on_page() == CLUSTER.table(cell for stage in cells().values() for cell in stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_dies_after_a_call_is_gone_on_with(stage: str) -> None:
    found = cells()[stage]
    some = found[:: max(1, len(found) // PLAYED)]
    wrong = [f"{one.place}, call {one.at}: {why}" for one in CLUSTER.played(some) for why in one.wrong]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_runs_that_die_one_after_the_other_are_gone_on_with(stage: str, data: st.DataObject) -> None:
    most = cells()[stage][-1].at
    first = data.draw(st.integers(2, most))
    wrong = interrupted(stage, NODES, first, data.draw(st.integers(1, 9)))
    assert not wrong, "\n".join(wrong)


def test_twelve_nodes_from_blank_to_teardown() -> None:
    """Three servers and nine agents, as one cluster through all stages."""
    with a_life(12, blank=True) as life:
        for name, stage in STAGES.items():
            if stage.database or name == WIPE:
                continue
            if name != "begin":
                declare(life.world, spec(NEW if name != "upgrade by one minor" else OLD))
            stage.prepare(life)
            life.run(stage)
            if name == "replace a lost server":  # after the upgrade, it comes back with the new version
                life.serving(NEW)
            else:
                stage.finished(life)
            assert not life.wrong, (name, life.wrong)
        assert site(life.world).begun == 1
        assert {"install_k3s", "join", "run_gate", "await_operators", "admit"} <= life.done(LOST)
