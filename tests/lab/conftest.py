"""What tests of the lab share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from reconciler.lab.wire.redfish import Quirks
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
