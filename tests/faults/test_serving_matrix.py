"""The rolling rebuild of a serving group, whole and interrupted: the group answers throughout.

`python -m tests.faults serving --update` plays every interruption point and writes the table of the documentation; here
its rows and columns are compared, and one point of each of its places is played.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.faults.cluster_matrix import SERVING, Cell


@cache
def cells() -> dict[str, list[Cell]]:
    return SERVING.undisturbed()


def test_the_page_has_the_actions_and_the_points_at_which_they_are_interrupted() -> None:
    assert SERVING.on_page() == SERVING.table(cell for stage in cells().values() for cell in stage)


@pytest.mark.parametrize("stage", SERVING.stages)
def test_a_rebuild_that_dies_after_a_call_is_gone_on_with(stage: str) -> None:
    some = {cell.place: cell for cell in cells()[stage]}.values()
    wrong = [f"{one.place}, call {one.at}: {why}" for one in SERVING.played(some) for why in one.wrong]
    assert not wrong, "\n".join(wrong)
