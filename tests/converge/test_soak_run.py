"""A soak in a run, in virtual time: a week, a reconciler that dies in it, a node that is booted, a GPU that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.app.under_way import under_way
from reconciler.converge import lease
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.run import Ended
from reconciler.model import soak
from reconciler.model.desired import Acceptance, Desired, GatePhase, GateTest, Profile, Threshold
from reconciler.model.errors import LedgerError
from reconciler.model.gate import Certificate
from reconciler.model.outcome import Done, Outcome, Permanent
from reconciler.model.soak_progress import JOURNALED, progress_of
from tests.converge.test_soak import listening
from tests.converge.world import PROFILE, QuickGate, World

Worlds = Callable[..., World]
HOUR = 3600.0
WEEK = 168 * HOUR
LOAD = GateTest("cpu", "stress-ng", {"seconds": 1800}, (Threshold("cpu.bogo_ops_s", 1.0),), 2400.0)
PASSIVE = GateTest("health", "xid", {}, (), 60.0)
SHORT = GateTest("short", "stress-ng", {"seconds": 60}, (), 600.0)


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let leases be renewed once an hour: 30,000 renewals of a week would cost a minute, and have their own tests."""
    monkeypatch.setattr(lease, "TTL_REAL_S", 3 * HOUR)


class RealGate(QuickGate):
    """Measures on the lab's machines."""

    def __init__(self) -> None:
        super().__init__()
        self.real = AcceptanceGate(lambda _: None)

    async def run(self, desired: Desired, *given: Any) -> Certificate:
        certificate = await self.real.run(desired, *given)
        self.tested.append((desired.node, tuple(result.test for result in certificate.results)))
        return certificate


def deep(*phases: GatePhase) -> Profile:
    first = GatePhase("first", (PASSIVE, SHORT))
    return replace(PROFILE, digest=f"soak {phases}", acceptance=Acceptance("deep", (first, *phases), None))


def soaking(world: Worlds, seconds: float = WEEK) -> World:
    return world(nodes=1, profile=deep(soak.phase(seconds, 2.0, (LOAD,))), gate=RealGate())


async def dies_after(here: World, seconds: float) -> None:
    """Apply, and be killed so long after the soak has begun."""
    work = asyncio.create_task(here.applying(wait_s=2 * WEEK))
    while here.machine("n0").state.soak is None:
        await here.clock.sleep(30)
    await here.clock.sleep(seconds)
    work.cancel()
    await asyncio.wait({work})


def declare(here: World, profile: Profile) -> None:
    here.fleet = replace(here.fleet, nodes={"n0": replace(here.fleet.nodes["n0"], profile=profile)})


def gates(here: World) -> list[tuple[str, ...]]:
    return [names for _, names in here.gate.tested]


def test_a_week_is_waited_for_and_the_node_serves_then(world: Worlds) -> None:
    here = soaking(world)
    before = here.clock.elapsed
    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert here.clock.elapsed - before >= WEEK
    assert here.serves("n0")
    assert gates(here) == [("health", "short"), ("soak",)]
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    [result] = [result for result in certificate.results if result.test == "soak"]
    assert result.metrics["hours"] >= 168
    assert result.metrics["cpu.decline"] == pytest.approx(0, abs=0.1)
    assert here.machine("n0").state.soak is None, "nothing is left on the node"
    assert here.plan().nodes["n0"].actions == ()


def test_a_run_that_dies_is_continued_without_a_second_soak_or_a_second_test(world: Worlds) -> None:
    here = soaking(world, 24 * HOUR)

    here.run(dies_after(here, 10 * HOUR))
    unit = here.machine("n0").state.soak
    assert unit is not None
    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert here.serves("n0")
    assert here.clock.elapsed - unit.began < 25.5 * HOUR, "it was not begun anew"
    assert [names for names in gates(here) if "short" in names] == [("health", "short")]


def test_how_far_it_is_is_journaled_for_whoever_asks_also_after_its_reconciler_died(world: Worlds) -> None:
    here = soaking(world, 24 * HOUR)
    notes: list[Mapping[str, Any]] = []
    amend = here.ledger.amend

    def noted(attempt: int, intent: Mapping[str, Any], now: datetime) -> None:
        notes.append(intent)
        amend(attempt, intent, now)

    here.ledger.amend = noted  # type: ignore[method-assign]
    here.run(dies_after(here, 10 * HOUR))
    unit = here.machine("n0").state.soak
    assert unit is not None
    [(_, _, _, _, intent)] = here.ledger.unfinished()
    progress = progress_of(intent)
    assert progress is not None
    assert progress.seconds == 24 * HOUR
    assert 9.4 * HOUR < progress.done_s <= 10 * HOUR
    assert abs((progress.ends_at - here.clock.now()).total_seconds() - 14 * HOUR) < 120
    assert len(notes) < 25, "ten hours are no thousand rows"
    later = here.clock.now() + timedelta(hours=3)
    assert under_way(here.ledger, later)["n0"].startswith("soak: 9h")
    assert "of 1d00h and no bad sign when last looked at 3h" in under_way(here.ledger, later)["n0"]
    assert "nobody has read" in under_way(here.ledger, later + timedelta(hours=24))["n0"]

    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert under_way(here.ledger, here.clock.now()) == {}


def test_a_week_takes_no_more_room_than_an_hour_and_is_not_read_again(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = soaking(world)
    here.run(dies_after(here, 100 * HOUR))
    unit = here.machine("n0").state.soak
    assert unit is not None
    before = len(unit.outputs)
    assert before >= 195
    assert len([output for output in unit.outputs if output]) <= 2
    assert len(unit.judged) < 1000

    read = listening(monkeypatch)
    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert min(read) > before - 2
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    [hours] = [result.metrics["hours"] for result in certificate.results if result.test == "soak"]
    assert hours >= 168


def test_a_ledger_that_keeps_no_note_ends_no_soak(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = soaking(world, 2 * HOUR)
    amend = here.ledger.amend

    def refused(attempt: int, intent: Mapping[str, Any], now: datetime) -> None:
        if JOURNALED in intent:
            raise LedgerError("database is locked")
        amend(attempt, intent, now)

    monkeypatch.setattr(here.ledger, "amend", refused)
    assert isinstance(here.act("run_gate"), Done)


def test_a_soak_that_the_spec_asks_for_no_more_does_not_load_a_node_in_service(world: Worlds) -> None:
    here = soaking(world, 24 * HOUR)
    here.run(dies_after(here, HOUR))
    declare(here, deep())
    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert here.serves("n0")
    assert here.machine("n0").state.soak is None


def test_a_soak_with_other_loads_is_not_taken_for_the_one_that_is_asked_for(world: Worlds) -> None:
    here = soaking(world, 24 * HOUR)
    here.run(dies_after(here, 10 * HOUR))
    old = here.machine("n0").state.soak
    assert old is not None
    declare(here, deep(soak.phase(24 * HOUR, 2.0, (replace(LOAD, args={"seconds": 900}),))))
    report = here.apply(wait_s=2 * WEEK)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert here.clock.elapsed - old.began >= 34 * HOUR, "it was begun anew"


@pytest.mark.parametrize("event", ["reboot", "xid"])
def test_what_happens_in_it_keeps_the_node_out(world: Worlds, event: str) -> None:
    here = soaking(world)

    async def interrupted() -> Outcome:
        work = asyncio.create_task(here.acting("run_gate"))
        machine = here.machine("n0")
        while machine.state.soak is None:
            await here.clock.sleep(30)
        await here.clock.sleep(5 * HOUR)
        if event == "reboot":
            machine.reboot()
        else:
            machine.inject("xid_79", gpu=1)
        return await work

    outcome = here.run(interrupted())
    assert isinstance(outcome, Permanent), outcome
    assert "soak" in outcome.detail
    assert here.clock.elapsed < 10 * HOUR
    assert here.machine("n0").state.soak is None
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    judged = here.gate.judge(certificate, here.fleet.nodes["n0"], here.observe().nodes["n0"], here.clock)
    assert not judged.valid


def test_what_was_done_after_a_soak_asks_for_another_although_its_result_is_kept(world: Worlds) -> None:
    """The result of the old soak must not stand in the certificate that is saved before the new one."""
    here = soaking(world, 4 * HOUR)
    assert isinstance(here.act("run_gate"), Done)
    first = here.ledger.node("n0").certificate
    attempt = here.ledger.begin("test", "n0", "erase", "", "", {}, here.lease().token(), here.clock.now())
    here.ledger.finish(attempt, "done", "", here.clock.now())
    here.clock.elapsed += 60
    assert isinstance(here.act("run_gate"), Done)
    assert gates(here)[-1] == ("soak",)
    assert here.ledger.node("n0").certificate != first
