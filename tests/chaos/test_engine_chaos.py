"""A sample of the outages of an engine. `make chaos ARGS=engine` plays them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.engine_cell import WORKER_KILLED, play

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("engine")]


def test_a_worker_that_is_killed_while_the_loop_acts_repeats_and_loses_nothing(tmp_path: Path) -> None:
    outcome = play(WORKER_KILLED, tmp_path / "world", None)
    assert not outcome.broke, outcome.told
