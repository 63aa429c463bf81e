"""A flash is asked for once: what its task said is journaled, and only a read of the old version is a failure (A5, A6).

`asked` counts requests that the BMC accepted, whatever became of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.actions.firmware import POLL_S
from reconciler.converge.run import Ended
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Done, Transient
from reconciler.model.ports import FirmwareFile
from reconciler.model.vocab import Activation
from tests import builders as b
from tests.converge.world import FIRMWARE, PROFILE, World

Worlds = Callable[..., World]

MINUTE, HOUR = 60.0, 3600.0
RETIMER = b.firmware("retimer", 1, Activation.IMMEDIATE)
COMPONENTS = ("bmc", "bios", "nic0", "retimer")  # one of each class of activation


@pytest.fixture
def old(world: Worlds) -> Callable[[str], World]:
    """A node whose `component` is old, with a certificate for all the rest."""

    def build(component: str) -> World:
        profile = replace(PROFILE, digest="all classes", firmware=(*FIRMWARE, RETIMER))
        here = world(nodes=1, profile=profile, drift={"n0": [{"old_firmware": {"component": component}}]})
        here.adopt()
        return here

    return build


def asked(here: World) -> int:
    return here.machine("n0").state.tasks_started


def converges(here: World, *, runs: int = 4) -> None:
    """Within some runs, an hour apart: a failure is tried again after a pause."""
    for _ in range(runs):
        report = here.apply(wait_s=4 * HOUR)
        if report.results["n0"].state in (Ended.DONE, Ended.CONVERGED):
            break
        here.clock.elapsed += HOUR
    assert here.serves("n0"), report.results
    assert all(item.version == "2.0" for item in here.machine("n0").state.firmware.values())


def applied_while(here: World, meanwhile: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A run, and what happens to it on its way."""

    async def both() -> None:
        other = asyncio.create_task(meanwhile())
        await here.applying(wait_s=4 * HOUR)
        await other

    here.run(both())


async def killed(here: World, when: Callable[[], bool], *, after_s: float = 0.0) -> None:
    """A run that ends when something is so, or a little later."""
    work = asyncio.create_task(here.applying(wait_s=4 * HOUR))
    while not when() and not work.done():
        await here.clock.sleep(0.5)
    await here.clock.sleep(after_s)
    assert not work.done(), "it never came to that"
    work.cancel()
    await asyncio.wait([work])


def ended_well(here: World) -> bool:
    tasks = here.machine("n0").tasks()
    return bool(tasks) and all(task.state == "Completed" for task in tasks)


def learnt(here: World) -> dict[str, Any]:
    """Return the intent that the attempt under way has journaled."""
    return {key: value for row in here.ledger.unfinished() for key, value in row[4].items()}


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("away_s", [10 * MINUTE, 2 * HOUR])
def test_a_good_flash_whose_read_back_is_lost_is_not_repeated(
    old: Callable[[str], World], component: str, away_s: float
) -> None:
    """The BMC goes away once it has said that all is well, and comes back: within the run's patience, or not."""
    here = old(component)

    async def goes_away() -> None:
        while not ended_well(here):
            await here.clock.sleep(1.0)
        await here.clock.sleep(POLL_S)
        here.machine("n0").inject("bmc_unreachable")
        await here.clock.sleep(away_s)
        here.machine("n0").clear("bmc_unreachable")

    applied_while(here, goes_away)
    converges(here)
    assert asked(here) == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_good_flash_whose_run_is_killed_before_the_read_back_is_not_repeated(
    old: Callable[[str], World], component: str
) -> None:
    """The BMC forgets tasks that have ended, as old iDRACs do after a minute: the journal alone knows."""
    here = old(component)
    here.run(killed(here, lambda: ended_well(here), after_s=POLL_S))
    here.machine("n0").state.tasks.clear()
    here.clock.elapsed += HOUR
    converges(here)
    assert asked(here) == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_task_that_is_gone_when_the_next_run_asks_is_judged_by_its_effect(
    old: Callable[[str], World], component: str
) -> None:
    """Killed in mid-flash, and the task has ended and is forgotten since (A5)."""
    here = old(component)
    here.run(killed(here, lambda: bool(learnt(here).get("task"))))
    here.clock.elapsed += HOUR
    assert ended_well(here)
    here.machine("n0").state.tasks.clear()
    converges(here)
    assert asked(here) == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_request_without_an_answer_whose_task_is_gone_is_judged_by_its_effect(
    old: Callable[[str], World], component: str
) -> None:
    """Nobody knows the task's URI, and its BMC knows none any more."""
    here = old(component)
    lost(here, dies=True)
    with pytest.raises(SystemExit):
        here.apply()
    here.clock.elapsed += HOUR
    assert ended_well(here)
    here.machine("n0").state.tasks.clear()
    converges(here)
    assert asked(here) == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_request_without_an_answer_is_looked_for_when_the_bmc_is_back(
    old: Callable[[str], World], component: str
) -> None:
    """It flashes already, and can't be asked for its tasks for a while."""
    here = old(component)
    lost(here, away=True)
    here.apply(wait_s=0.0)
    here.machine("n0").clear("bmc_unreachable")
    converges(here)
    assert asked(here) == 1


def test_a_request_that_never_came_through_is_made_again(old: Callable[[str], World]) -> None:
    """The BMC shows no new task while the flash would have to run."""
    here = old("nic0")
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    real, calls = bmc.update_firmware, []

    async def dies_first(inventory_id: str, file: FirmwareFile) -> str:
        calls.append(file)
        if len(calls) == 1:
            raise SystemExit
        return await real(inventory_id, file)

    bmc.update_firmware = dies_first  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        here.apply()
    converges(here, runs=1)
    assert asked(here) == 1
    assert here.machine("n0").state.counters.power_cycles == 1


def test_a_refused_request_is_not_taken_for_a_flash(old: Callable[[str], World]) -> None:
    here = old("nic0")
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    real, calls = bmc.update_firmware, []

    async def busy_first(inventory_id: str, file: FirmwareFile) -> str:
        calls.append(file)
        if len(calls) == 1:
            raise DriverError(Failure.BUSY, "not now")
        return await real(inventory_id, file)

    bmc.update_firmware = busy_first  # type: ignore[method-assign]
    converges(here)
    assert len(calls) == 2
    assert here.machine("n0").state.counters.power_cycles == 1


def test_a_read_of_the_old_version_after_it_has_settled_is_a_failure(
    old: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is tried again: the task said that all was well, and the component says that it was not."""
    here = old("retimer")
    with monkeypatch.context() as patched:
        patched.setattr(here.machine("n0"), "_flashed", lambda *_: None)
        outcome = here.act("update_firmware", target="retimer")
    assert isinstance(outcome, Transient)
    assert "still runs 1.0" in outcome.detail
    assert isinstance(here.act("update_firmware", target="retimer"), Done)
    assert asked(here) == 2


def lost(here: World, *, dies: bool = False, away: bool = False) -> None:
    """The first request is accepted, and its answer never comes: the run `dies` of it, or the BMC goes `away`."""
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    real = bmc.update_firmware

    async def no_answer(inventory_id: str, file: FirmwareFile) -> str:
        bmc.update_firmware = real  # type: ignore[method-assign]
        await real(inventory_id, file)
        if dies:
            raise SystemExit
        if away:
            here.machine("n0").inject("bmc_unreachable")
        raise DriverError(Failure.AMBIGUOUS, "no answer within 30s")

    bmc.update_firmware = no_answer  # type: ignore[method-assign]
