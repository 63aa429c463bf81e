"""A part that fails in the lab: the same on the wire and in process, and told by a signal until it is repaired."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.drivers.redfish import RedfishBmc
from reconciler.health.bmc import bmc_signals
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.model.desired import DesiredInventory
from reconciler.model.observed import Answered, Observed, RedfishHot, RedfishInventory
from reconciler.model.vocab import Health
from tests import builders as b
from tests.drivers.redfish.test_lab import MAKES, Lab, play
from tests.lab.redfish_bench import EPOCH, Trust, make_trust

pytestmark = pytest.mark.wire

FAULTS: list[tuple[dict[str, Any], set[str]]] = [
    ({"part": "psu", "index": 3}, {"psu_failed", "bmc_health", "subsystem_health"}),
    ({"part": "fan", "index": 9}, {"fan_failed", "bmc_health", "subsystem_health"}),
    ({"part": "leak", "index": 1}, {"leak", "bmc_health", "subsystem_health"}),
    ({"part": "drive", "index": 2}, {"drive_failed", "bmc_health", "subsystem_health"}),
    ({"part": "dimm", "index": 7}, {"dimm_failed", "bmc_health", "subsystem_health"}),
    ({"part": "drive", "index": 2, "how": "missing"}, {"drive_missing"}),
    ({"part": "dimm", "index": 7, "how": "missing"}, {"dimm_missing"}),
    ({"part": "dimm", "index": 7, "how": "logged"}, {"dimm_ue"}),
]


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


class Now:
    """A fleet clock at the machine's time."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._lab.clock.seconds)


async def seen(bmc: RedfishBmc | MachineBmc) -> tuple[RedfishHot, RedfishInventory]:
    hot, inventory = await bmc.hot(), await bmc.inventory()
    assert isinstance(hot, Answered), hot
    assert isinstance(inventory, Answered), inventory
    return hot.value, inventory.value


def signals_of(machine: Machine, hot: RedfishHot, inventory: RedfishInventory) -> set[str]:
    wanted = DesiredInventory(drives=len(machine.state.drives), dimms=machine.state.dimms)
    observed: Observed = b.observed(hot=hot, inventory=inventory)
    return {name for name, _ in bmc_signals(b.profile(inventory=wanted), observed)}


@pytest.mark.parametrize("make", list(MAKES)[:2])
@pytest.mark.parametrize(("fault", "wanted"), FAULTS, ids=["-".join(map(str, one.values())) for one, _ in FAULTS])
def test_a_failed_part_is_told_on_the_wire_and_in_process(
    trust: Trust, make: str, fault: dict[str, Any], wanted: set[str]
) -> None:
    lab = Lab(make, MAKES[make], trust)
    inside = MachineBmc(lab.machine, Now(lab), EPOCH, latency_s=0)  # type: ignore[arg-type]

    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        assert signals_of(lab.machine, *await seen(bmc)) == set()
        lab.machine.inject("failed_part", **fault)
        hot, inventory = await seen(bmc)
        assert signals_of(lab.machine, hot, inventory) == wanted
        within = await seen(inside)
        assert signals_of(lab.machine, *within) == wanted
        assert set(within[1].parts or ()) <= set(inventory.parts or ())
        assert within[0].health == hot.health == (Health.CRITICAL if "bmc_health" in wanted else Health.OK)
        lab.machine.clear()
        assert signals_of(lab.machine, *await seen(bmc)) == set()

    play(lab, steps)


@pytest.mark.parametrize(
    "given",
    [
        {"part": "cpu"},
        {"part": "psu", "index": 99},
        {"part": "psu", "how": "missing"},
        {"part": "drive", "how": "logged"},
    ],
)
def test_a_part_that_can_not_fail_like_that_is_refused(trust: Trust, given: dict[str, Any]) -> None:
    lab = Lab(next(iter(MAKES)), MAKES[next(iter(MAKES))], trust)
    with pytest.raises(ValueError, match=r"missing|numbered|a part is|can be logged"):
        lab.machine.inject("failed_part", **given)
    assert not lab.machine.state.faults
