"""What tests of the lab share."""

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
    """Machines behind BMCs with these quirks."""
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
    """A machine that runs, exactly as the worked example wants it."""
    return example_lab("clean", clock).machines["gpu-a001"]


@pytest.fixture
def wire_machine(clock: Time) -> Machine:
    """As on the wire: its installer waits until somebody delivers a document."""
    fleet = example_fleet()
    lab = build_lab(fleet, load_scenario("clean"), clock, seed=1, serve_documents=False)
    return lab.machines["gpu-a001"]


@pytest.fixture
def blank_machine(clock: Time) -> Machine:
    return example_lab("blank", clock).machines["gpu-a001"]


@pytest.fixture
def mig_machine(clock: Time) -> Machine:
    """A machine whose GPUs are divided."""
    return example_lab("clean", clock).machines["gpu-b001"]
