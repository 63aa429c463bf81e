"""From a sign in the log of a BMC to our mark, over the wire: the BMC pushes its event, and no pass is waited for."""

from __future__ import annotations

import time

import pytest

from reconciler.spec import load_spec
from tests.bench.latency import PUSHED, TARGET_MS, mark_ms, reconciler
from tests.bench.wire import running_lab

_TRIES = 3  # of different nodes: other work on this machine may delay one
_STREAMS_S = 3.0  # what opening all streams takes, after the first pass


@pytest.mark.wire
def test_an_uncorrectable_error_that_the_bmc_alone_knows_takes_the_node_out_within_a_second() -> None:
    with running_lab(4) as (directory, _), reconciler(directory):
        time.sleep(_STREAMS_S)
        names = sorted(load_spec(directory / "fleet-spec", directory="").nodes)[:_TRIES]
        took = [mark_ms(directory, name, PUSHED) for name in names]

    assert min(took) < TARGET_MS, took
