"""A rollout to 500 nodes, 50 at a time, of which 2% fail. `python -m tests.faults rollout` prints the details."""

from __future__ import annotations

from tests.faults.rollout import roll_out

NODES, OUT = 500, 50


def test_a_new_image_reaches_all_but_those_that_fail() -> None:
    found = roll_out(NODES, OUT)
    assert not found.wrong, found
    assert 0 < found.failing < OUT, "some have to fail, and leave something of the budget"
    assert len(found.left) <= found.failing
    assert OUT - found.failing <= found.peak.most <= OUT, found
