"""Fixtures of the lab's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from reconciler.lab.fleet import build_lab
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.scenario import load_scenario
from reconciler.lab.wire.redfish import Quirks
from tests.lab.machines import Time, example_fleet, example_lab
from tests.lab.redfish_bench import Bench, Trust, make_trust


@pytest.fixture(scope="session")
def bmc_trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def make_bench(bmc_trust: Trust) -> Iterator[Callable[..., Bench]]:
    """Make machines behind BMCs with given quirks."""
    with ExitStack() as benches:
        yield lambda **quirks: benches.enter_context(Bench(bmc_trust, Quirks(**quirks)))


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A machine behind a well-behaved BMC."""
    return make_bench()


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def gpu_machine(clock: Time) -> Machine:
    """A running machine, exactly as the worked example specifies."""
    return example_lab("clean", clock).machines["gpu-a001"]


@pytest.fixture
def wire_machine(clock: Time) -> Machine:
    """A machine like on the wire: its installer waits until a test delivers a document."""
    fleet = example_fleet()
    lab = build_lab(fleet, load_scenario("clean"), clock, seed=1, serve_documents=False)
    return lab.machines["gpu-a001"]


@pytest.fixture
def blank_machine(clock: Time) -> Machine:
    return example_lab("blank", clock).machines["gpu-a001"]


@pytest.fixture
def mig_machine(clock: Time) -> Machine:
    """A machine in MIG mode."""
    return example_lab("clean", clock).machines["gpu-b001"]
