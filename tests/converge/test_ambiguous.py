"""Writes that time out may have happened (pitfall A3): what is read back decides, and nothing is done twice for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Ambiguous, Done
from tests.converge.invariant_checker import counters
from tests.converge.world import World

Worlds = Callable[..., World]

_READS = frozenset({
    "hot", "inventory", "media", "task", "tasks", "close", "facts", "state", "member", "scaled_by", "read",
})  # fmt: skip


class TimesOut:
    """A fabric on which every write is done, or not, and its answer gets lost. `effect`: whether it is done."""

    def __init__(self, here: World, *, effect: bool) -> None:
        self._fabric = here.fabric
        self._effect = effect
        here.fabric = self  # type: ignore[assignment]  # a Fabric by structure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def bmc(self, desired: Desired) -> Any:
        return _Port(self._fabric.bmc(desired), effect=self._effect)

    def cluster(self) -> Any:
        return _Port(self._fabric.cluster(), effect=self._effect)


class _Port:
    def __init__(self, port: Any, *, effect: bool) -> None:
        self._port = port
        self._effect = effect

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        if name in _READS:
            return call
        if name == "adjustments":  # a port of the port
            return lambda: _Port(call(), effect=self._effect)

        async def write(*args: Any, **options: Any) -> Any:
            if self._effect:
                await call(*args, **options)
            raise DriverError(Failure.AMBIGUOUS, "no answer within 30s")

        return write


DRIFT = {"n0": ["bios_off", "wrong_boot_order", {"old_firmware": {"component": "nic0"}}, "old_image", "missing_label"]}
ACTIONS = [
    ("set_bios", ""), ("set_boot", ""), ("update_firmware", "nic0"), ("reset_bmc", ""), ("power_cycle", ""),
    ("reimage", ""), ("mark", ""), ("set_labels", ""),
]  # fmt: skip


@pytest.mark.parametrize(("action", "target"), ACTIONS)
def test_a_write_that_had_its_effect_is_not_repeated(world: Worlds, action: str, target: str) -> None:
    calm = world(nodes=1, drift=DRIFT)
    assert isinstance(calm.act(action, target=target), Done)
    expected = counters(calm), calm.machine("n0").state.counters.bios_writes
    calm.ledger.close()
    here = world(nodes=1, drift=DRIFT)
    TimesOut(here, effect=True)
    assert isinstance(here.act(action, target=target), Done)
    assert (counters(here), here.machine("n0").state.counters.bios_writes) == expected


@pytest.mark.parametrize(
    ("action", "target"), [pair for pair in ACTIONS if pair[0] != "reset_bmc"]
)  # a BMC tells nothing by which a reset could be proved; of set_boot, the boot order is read back
def test_a_write_without_effect_is_not_taken_for_done(world: Worlds, action: str, target: str) -> None:
    here = world(nodes=1, drift=DRIFT)
    TimesOut(here, effect=False)
    outcome = here.act(action, target=target)
    assert not isinstance(outcome, Done)
    assert counters(here) == {"n0": (0, 0, 0)}
    assert here.serves("n0")


def test_an_update_of_which_nobody_can_say_whether_it_runs_stays_ambiguous(world: Worlds) -> None:
    here = world(nodes=1, drift=DRIFT)
    TimesOut(here, effect=False)
    assert isinstance(here.act("update_firmware", target="nic0"), Ambiguous)


def test_evictions_whose_answers_get_lost_are_seen_by_their_effect(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    TimesOut(here, effect=True)
    assert isinstance(here.act("drain"), Done)
    assert here.lab.cluster is not None
    assert not here.lab.cluster.has_work("n0")


def test_a_whole_apply_converges_though_no_write_ever_answers(world: Worlds) -> None:
    here = world(nodes=2, drift={"n0": ["old_image", "bios_off", {"old_firmware": {}}, "secure_boot_off"]})
    here.adopt()
    TimesOut(here, effect=True)
    here.apply()
    assert here.serves("n0")
    assert here.machine("n0").state.counters.installs == 1
