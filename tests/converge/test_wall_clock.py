"""A machine's clock may be set while a run works: elapsed time is measured by a clock that can't be set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from reconciler.converge.actions.context import poll
from reconciler.converge.clock_steps import STEP, ClockSteps
from reconciler.converge.guarded_ports import PROVED_S, GuardedBmc, WrongMachine
from reconciler.converge.lease import TTL_REAL_S, held_lease
from reconciler.converge.run import Ended
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.inprocess import VirtualClock, run_virtual
from reconciler.model.desired import DrainPolicy
from reconciler.model.errors import LeaseHeld
from reconciler.model.outcome import Done
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import DrainProvider
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forward"])
def test_a_bmc_that_answers_another_serial_is_not_written_after_the_clock_was_set(
    world: Worlds, step: timedelta
) -> None:
    """The proof of its identity is as old as the monotonic clock says."""
    here = world(nodes=1)
    desired = here.fleet.nodes["n0"]
    port = here.fabric.bmc(desired)
    assert port is not None
    here.apply()  # the ledger knows its serial number
    bmc = GuardedBmc(port, desired, None, here.ledger.node("n0"), here.clock, here.fleet.settings, here.lease())

    async def run() -> None:
        await bmc.boot_once("disk")
        here.clock.stepped += step
        here.machine("n0").state.serial = "ANOTHER"  # the cable, or the address, is that of another machine now
        await here.clock.sleep(PROVED_S + 1)
        with pytest.raises(WrongMachine, match="ANOTHER"):
            await bmc.power(PowerAction.FORCE_OFF)

    before = here.machine("n0").state.power
    here.run(run())
    assert here.machine("n0").state.power == before


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forward"])
def test_an_action_waits_as_long_as_it_should_when_the_clock_is_set(world: Worlds, step: timedelta) -> None:
    """Set forward, it would give up at once and force the power off; set back, it would wait for an hour longer."""
    here = world(nodes=1)

    class Context:
        clock = here.clock

    async def run() -> None:
        asked: list[float] = []

        async def probe() -> None:
            asked.append(here.clock.elapsed)
            if len(asked) == 2:
                here.clock.stepped += step

        began = here.clock.elapsed
        await poll(Context(), probe, within_s=60.0, every_s=5.0)  # type: ignore[arg-type]  # its clock
        assert here.clock.elapsed - began == pytest.approx(60.0)

    here.run(run())


def test_a_drain_is_not_late_because_the_clock_was_set_forward(world: Worlds) -> None:
    """A late drain may delete pods by force."""
    policy = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=60.0, force=True)
    profile = replace(PROFILE, digest="force", drain=policy)
    here = world(nodes=1, profile=profile, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")

    async def run() -> float:
        began = here.clock.elapsed
        draining = asyncio.create_task(here.acting("drain"))
        await here.clock.sleep(10)
        here.clock.stepped += HOUR
        assert await draining == Done("2 pods deleted")
        return here.clock.elapsed - began

    assert here.run(run()) >= 60


@pytest.mark.parametrize("step", [-24 * HOUR, 24 * HOUR], ids=["back", "forward"])
def test_an_inventory_from_the_future_is_read_anew(world: Worlds, step: timedelta) -> None:
    here = world(nodes=1)
    first = here.observe()
    here.clock.stepped += step
    here.clock.elapsed += 60
    again = here.observe(previous=first)
    assert abs(again.nodes["n0"].inventory.at - here.clock.now()) < timedelta(seconds=5)


class SharedVirtualClock(VirtualClock):
    """A clock like a machine's: all its processes share `monotonic`."""

    def at(self, wall: datetime) -> datetime:
        return wall


@pytest.mark.parametrize("step", [-24 * HOUR, 24 * HOUR], ids=["back", "forward"])
def test_a_run_keeps_its_lease_when_the_clock_is_set_and_loses_it_when_it_sleeps(
    tmp_path: Path, step: timedelta
) -> None:
    clock = SharedVirtualClock()
    ledger = SqlLedger(tmp_path / "ledger.sqlite", clock=clock)

    async def run() -> None:
        async with held_lease(ledger, "fleet", "one", clock) as held:
            held.take("bmc/a")
            clock.stepped += step
            held.prove_bmc("bmc/a")
            with pytest.raises(LeaseHeld, match="being written by one"):
                ledger.acquire("fleet", "two", 60, clock.now())
            await clock.sleep(3 * TTL_REAL_S)
            held.prove_bmc("bmc/a")
            clock.elapsed += TTL_REAL_S + 1
            held.prove()

    with pytest.raises(LeaseHeld, match=r"ran out at .*, while its runner was stopped"):
        run_virtual(run(), clock)
    assert clock.elapsed == pytest.approx(4 * TTL_REAL_S + 1)
    ledger.close()


@pytest.mark.parametrize("back", [HOUR, 24 * HOUR], ids=["an hour", "a day"])
def test_a_clock_that_was_set_back_drains_no_fleet(world: Worlds, back: timedelta) -> None:
    """Certificates of nodes that serve are then ahead. They serve on, and what is out is not admitted by one."""
    here = world(nodes=4)
    assert {end.state for end in here.apply().results.values()} == {Ended.DONE}  # each by its gate
    here.act("mark", "n3")
    here.clock.stepped -= back
    report = here.apply()
    done = {(one.node, one.action) for one in report.executed}
    assert {node for node, _ in done} == {"n3"}
    assert ("n3", "run_gate") in done
    assert [here.serves(name) for name in here.fleet.nodes] == [True] * 4
    told = [item.detail for item in report.plan.nodes["n0"].drift if item.path == "gate.certificate"]
    assert len(told) == 1
    assert "set the clock" in told[0]
    here.clock.stepped += back
    assert here.apply().executed == ()


def test_a_silence_that_begins_in_the_future_begins_now(world: Worlds) -> None:
    """Noted by a process whose clock was ahead, a dead host would not be down before 2037."""
    here = world(nodes=2)
    now = here.clock.now()
    here.ledger.note_silences([("n0", "ssh", True)], now + 10_000 * HOUR)
    here.ledger.note_silences([("n0", "redfish", True)], now + STEP / 2)
    here.ledger.note_silences([("n1", "ssh", True)], now - HOUR)
    here.clock.elapsed += 1
    steps, later = ClockSteps(here.clock), here.clock.now()
    for _ in range(2):
        steps.mind(here.ledger, here.fleet.nodes.keys())
        assert here.ledger.node("n0").silent_since == {"ssh": later, "redfish": now + STEP / 2}
        assert here.ledger.node("n1").silent_since == {"ssh": now - HOUR}
        here.clock.elapsed += 1
