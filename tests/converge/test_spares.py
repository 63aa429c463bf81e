"""Spares: certified, out of the work, and in the place of a node that failed before that one is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.desired import BudgetLimit, Reserve
from reconciler.model.outcome import Declined, Done
from reconciler.model.period_report import Past
from reconciler.model.plan import Goal
from reconciler.model.records import IN_PLACE_OF, RETRACTED, SPARE
from reconciler.planner.fleet.period_report import period_report
from reconciler.render.period_report import human
from tests.converge.test_isolation import WATCHED, fall_ill, reason
from tests.converge.test_loop import HOUR, MINUTE, Looped, changed, disable

PERSONA = "training"
PROMPT_S = 90.0  # the time within which capacity is to be back, whatever the repair takes


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[Callable[..., Looped]]:
    built: list[Looped] = []

    def build(*spares: str, **differences: Any) -> Looped:
        settings = {"reserves": (Reserve(PERSONA, "1"),), "budgets": (BudgetLimit("fleet", "2"),)}
        built.append(
            Looped(
                tmp_path,
                **{"nodes": 5, "profile": WATCHED, "node": {"persona": PERSONA}, "settings": settings, **differences},
            )
        )
        for name in spares:  # out of service and as specified, as they come from their gate
            built[-1].act("mark", name)
        built[-1].go(10 * MINUTE)
        return built[-1]

    yield build
    for one in built:
        one.ledger.close()


def serving(here: Looped) -> list[str]:
    return [name for name in here.fleet.nodes if here.serves(name)]


def ended(here: Looped, name: str, action: str) -> datetime:
    return next(a.ended_at for a in reversed(here.ledger.node(name).attempts) if a.action == action and a.ended_at)


def past(here: Looped) -> Past:
    return here.ledger.past(here.clock.now() - timedelta(hours=2), here.clock.now())


def test_a_node_that_is_ready_is_kept_and_none_is_taken_out_for_it(looped: Callable[..., Looped]) -> None:
    here = looped("n4")
    assert serving(here) == ["n0", "n1", "n2", "n3"]
    assert reason(here, "n4") == SPARE + PERSONA
    [line] = here.plan().spares
    assert (line.ready, line.preparing, line.failed, line.promoted) == (("n4",), (), (), ())
    assert here.plan().nodes["n4"].goal is Goal.SPARE
    assert here.seen.fleet is not None
    assert here.seen.fleet.spares["training", "ready"] == 1
    assert here.seen.fleet.nodes["n4"].out_since is None
    assert all(not line.out for line in here.plan().budget), "a spare uses up no limit"


def test_reserve_alone_marks_a_node_that_is_ours_and_out(looped: Callable[..., Looped]) -> None:
    here = looped()
    refused = here.act("reserve", "n0")
    assert isinstance(refused, Declined)
    assert here.serves("n0"), "it takes no node out"
    here.act("mark", "n0")
    assert here.act("reserve", "n0") == Done(SPARE + PERSONA)
    assert here.act("reserve", "n0") == Done(SPARE + PERSONA, changed=False)
    assert not here.serves("n0")
    here.act("admit", "n0")
    assert here.serves("n0")


@pytest.mark.parametrize("fault", ["node_conflicts", "kubelet_not_ready", "bmc_unreachable", "ssh_refused"])
def test_a_fault_as_the_spare_is_kept_or_promoted_passes(looped: Callable[..., Looped], fault: str) -> None:
    here = looped("n4")
    here.machine("n4").inject(fault)

    async def falls_ill() -> None:
        fall_ill(here, "n1")
        await here.clock.sleep(20 * MINUTE)
        here.machine("n4").clear()

    here.go(4 * HOUR, falls_ill)
    kept = [name for name in here.fleet.nodes if reason(here, name) == SPARE + PERSONA]
    assert (len(serving(here)), len(kept)) == (4, 1)


def test_without_a_node_that_is_out_there_is_no_spare(looped: Callable[..., Looped]) -> None:
    here = looped()
    assert len(serving(here)) == 5
    assert here.plan().spares[0].ready == ()


def test_a_spare_takes_the_place_of_an_isolated_node_before_its_repair(looped: Callable[..., Looped]) -> None:
    here = looped("n4")

    async def falls_ill() -> None:
        await asyncio.sleep(3 * MINUTE)
        fall_ill(here, "n1")

    here.go(HOUR, falls_ill)
    assert serving(here) == ["n0", "n2", "n3", "n4"]
    admission = [a for a in here.ledger.node("n4").attempts if a.action == "admit"][-1]
    assert admission.cause == IN_PLACE_OF + "n1"
    back = ended(here, "n4", "admit") - ended(here, "n1", "mark")
    assert back < timedelta(seconds=PROMPT_S)
    assert ended(here, "n4", "admit") <= ended(here, "n1", "drain")
    # Replacement and repair are told apart.
    report = period_report(past(here), "lab", here.fleet.nodes, here.clock.now() - timedelta(hours=2), here.clock.now())
    [replaced] = report.replacements
    assert (replaced.node, replaced.spare, replaced.seconds < PROMPT_S) == ("n1", "n4", True)
    [repaired] = [one for one in report.recoveries if one.node == "n1"]
    assert repaired.until is not None
    assert repaired.seconds > replaced.seconds
    text = human(report)
    assert "Capacity back: 1 time" in text
    assert "Back in service: " in text
    # The repaired node is the spare now: nobody swaps back.
    assert reason(here, "n1") == SPARE + PERSONA
    assert here.did("n1")[-2:] == ["run_gate", "reserve"]


def test_work_on_a_spare_uses_up_no_budget(looped: Callable[..., Looped]) -> None:
    here = looped("n4", settings={"reserves": (Reserve(PERSONA, "1"),), "budgets": (BudgetLimit("fleet", "0"),)})

    async def drifts() -> None:
        disable(here.machine("n4"))

    here.go(HOUR, drifts)
    assert "soft_restart" in here.did("n4")
    assert reason(here, "n4") == SPARE + PERSONA
    assert len(serving(here)) == 4


def test_a_spare_that_is_ill_or_only_marginal_is_not_promoted(looped: Callable[..., Looped]) -> None:
    here = looped("n4")

    async def both() -> None:
        fall_ill(here, "n4", persistent=True)  # its power cycle heals nothing
        await asyncio.sleep(5 * MINUTE)
        fall_ill(here, "n1")

    here.go(8 * MINUTE, both)
    assert not here.serves("n4")
    assert "admit" not in here.did("n4")


def test_a_retracted_signal_brings_a_node_back_and_keeps_none_out(looped: Callable[..., Looped]) -> None:
    here = looped("n4", settings={"reserves": (Reserve(PERSONA, "1"),), "budgets": (BudgetLimit("fleet", "0"),)})

    async def wrongly() -> None:
        fall_ill(here, "n1")
        await asyncio.sleep(5 * MINUTE)
        here.ledger.hold(RETRACTED + "condition_GpuUnhealthy", "the detector is wrong", "ops", None, here.clock.now())

    here.go(20 * MINUTE, wrongly)
    assert len(serving(here)) == 5, "n4 was promoted, and n1 serves as before"


def test_a_planned_change_takes_no_spare(looped: Callable[..., Looped]) -> None:
    """The node that is changed comes back soon, and a failure meanwhile finds the spare."""
    here = looped("n4")

    async def new_bios() -> None:
        bios = {**here.fleet.nodes["n0"].profile.bios, "NumaNodesPerSocket": "NPS2"}
        here.put(changed(here.fleet, "new", bios=bios, remediation=WATCHED.remediation))

    here.go(3 * HOUR, new_bios)
    assert "admit" not in here.did("n4")
    assert reason(here, "n4") == SPARE + PERSONA


@pytest.mark.parametrize("at", ["mark", "drain", "power_cycle", "run_gate", "reserve", "admit"])
def test_a_killed_runner_promotes_once(looped: Callable[..., Looped], at: str) -> None:
    """Two spares, one failure, a runner that dies as an action begins, and another one that goes on: one promotion."""
    here = looped("n4", "n3", settings={"reserves": (Reserve(PERSONA, "2"),), "budgets": (BudgetLimit("fleet", "2"),)})
    assert serving(here) == ["n0", "n1", "n2"]

    async def until_begun() -> None:
        fall_ill(here, "n1")
        await here.started(at)
        raise TimeoutError  # ends this runner as SIGTERM does

    here.events.clear()
    here.go(HOUR, until_begun)
    here.go(2 * HOUR, holder="b")
    assert len(serving(here)) == 3
    promoted = [name for name in ("n3", "n4") if here.serves(name)]
    assert len(promoted) == 1
    kept = [name for name in here.fleet.nodes if reason(here, name) == SPARE + PERSONA]
    assert sorted(kept) == sorted({"n1", "n3", "n4"} - set(promoted))
