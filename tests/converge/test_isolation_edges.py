"""Isolation where something else is the matter too: holds, quarantine, a mark that fails, signals side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge import dispatcher
from reconciler.converge.events import Event, LoopTold
from reconciler.converge.pass_messages import PassMessages
from reconciler.health.table import health_table
from reconciler.model.desired import BudgetLimit, NodeCondition, Rung
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Observation, Silent
from reconciler.model.records import ISOLATED, RETRACTED, NodeRecord
from reconciler.model.vocab import BootPhase, DrainProvider, NodeState, Power, UnknownReason
from reconciler.planner.fleet.isolation import evidence
from tests import builders as b
from tests.converge.test_isolation import (
    NONE_OUT,
    POLICY,
    WATCHED,
    Worlds,
    adopted,
    attempts,
    fall_ill,
    lose_gpu,
    reason,
)
from tests.converge.test_loop import HOUR, MINUTE

__all__ = ["adopted"]


# --- taking it back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["held", "quarantined"])
def test_a_node_that_a_person_keeps_out_stays_out_when_its_signal_is_retracted(adopted: Worlds, who: str) -> None:
    here = adopted(settings={"budgets": NONE_OUT})
    fall_ill(here, "n1", persistent=True)
    here.apply(wait_s=0.0)
    assert here.marked("n1")
    served = here.fleet
    if who == "held":
        here.ledger.hold("n1", "a technician works on it", "ops", None, here.clock.now())
    else:
        away = replace(here.fleet.nodes["n1"], state=NodeState.QUARANTINED)
        here.fleet = replace(here.fleet, nodes={**here.fleet.nodes, "n1": away})
    here.ledger.hold(RETRACTED + "condition_GpuUnhealthy", "the detector is broken", "ops", None, here.clock.now())
    here.apply(wait_s=0.0)
    assert here.marked("n1")
    assert not here.serves("n1")
    here.fleet = served
    here.ledger.release("n1", "ops", here.clock.now())
    here.apply(wait_s=0.0)
    assert here.serves("n1"), "as soon as nobody keeps it out"


# --- the mark --------------------------------------------------------------------------------------------------------


def test_a_mark_that_failed_often_is_tried_again_while_the_evidence_lasts(adopted: Worlds) -> None:
    here = adopted(settings={"budgets": NONE_OUT})
    port = here.fabric.cluster()
    assert port is not None
    genuine, refuses = port.mark, [True]

    async def mark(*arguments: Any) -> None:
        if refuses[0]:
            raise DriverError(Failure.UNREACHABLE, "a webhook does not answer")
        await genuine(*arguments)

    port.mark = mark  # type: ignore[method-assign, assignment]
    here.fabric.cluster = lambda: port  # type: ignore[method-assign]
    fall_ill(here, "n1", persistent=True)
    for _ in range(2):
        here.apply(wait_s=0.0)
        here.clock.elapsed += MINUTE
    assert here.serves("n1")
    refuses[0] = False
    here.apply(wait_s=0.0)
    assert reason(here, "n1").startswith(ISOLATED)


def test_a_long_name_of_a_condition_can_be_retracted(adopted: Worlds) -> None:
    """Its mark says on what the node was isolated, whole."""
    kind = ".".join(["detector"] * 25) + "/GpuUnhealthy"
    named = replace(WATCHED, digest="long", remediation=replace(POLICY, node_conditions=(NodeCondition(kind),)))
    here = adopted(profile=named, settings={"budgets": NONE_OUT})
    fall_ill(here, "n1", type=kind, persistent=True)
    here.apply(wait_s=0.0)
    assert reason(here, "n1") == f"{ISOLATED}health.condition_{kind}"
    here.ledger.hold(f"{RETRACTED}condition_{kind}", "the detector is broken", "ops", None, here.clock.now())
    here.apply(wait_s=0.0)
    assert here.serves("n1")


def test_a_node_is_isolated_though_as_many_as_may_be_are_at_work(
    adopted: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = adopted(nodes=10)
    monkeypatch.setattr(dispatcher, "NODES_AT_ONCE", 1)
    fall_ill(here, "n1", "n2", persistent=True)
    here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, budgets=NONE_OUT))
    here.apply(wait_s=0.0)
    assert reason(here, "n1").startswith(ISOLATED)
    assert reason(here, "n2").startswith(ISOLATED)


# --- two reads, of each signal ---------------------------------------------------------------------------------------


def test_a_latched_signal_does_not_confirm_another_that_was_read_once(adopted: Worlds) -> None:
    here = adopted(settings={"budgets": NONE_OUT})
    fall_ill(here, "n1", persistent=True)
    left = lose_gpu(here, "n1", 0)
    port = here.fabric.host(here.fleet.nodes["n1"])
    assert port is not None
    genuine, reads = port.facts, [0]

    async def facts(sysctls: Any, services: Any) -> Any:
        reads[0] += 1
        left[0] = int(reads[0] == 2)  # the pass saw nothing of it, and the next look is the last that does
        return await genuine(sysctls, services)

    port.facts = facts  # type: ignore[method-assign]
    here.apply(wait_s=0.0)
    assert reads[0] > 2
    [marked] = [a for a in here.ledger.node("n1").attempts if a.action == "mark"]
    assert marked.cause == ISOLATED + "health.condition_GpuUnhealthy"


# --- caps ------------------------------------------------------------------------------------------------------------


def test_quarantined_nodes_use_up_no_cap(adopted: Worlds) -> None:
    """It is one of the two ways out that an incident names."""
    here = adopted(nodes=10, racks=10, settings={"budgets": NONE_OUT})
    fall_ill(here, "n1", "n2", persistent=True)
    here.apply(wait_s=0.0)
    assert here.marked("n1")
    assert here.marked("n2")
    away = {n: replace(here.fleet.nodes[n], state=NodeState.QUARANTINED) for n in ("n1", "n2")}
    here.fleet = replace(here.fleet, nodes={**here.fleet.nodes, **away})
    here.clock.elapsed += 2 * HOUR
    fall_ill(here, "n3", persistent=True)
    report = here.apply(wait_s=0.0)
    assert reason(here, "n3").startswith(ISOLATED), report.plan.incidents
    assert report.plan.totals.nodes_isolated == 1


def test_those_that_fell_ill_after_different_changes_are_no_incident(adopted: Worlds) -> None:
    """Four changes, a day and more apart, with one ill node after each: a coincidence each time."""
    here = adopted(nodes=40, racks=40, settings={"budgets": NONE_OUT})
    for at in range(4):
        policy = replace(POLICY, ignore_xids=(13, 31 + at))
        new = replace(WATCHED, digest=f"x{at}", remediation=policy)
        here.fleet = replace(
            here.fleet, nodes={name: replace(node, profile=new) for name, node in here.fleet.nodes.items()}
        )
        here.apply(wait_s=0.0)
        fall_ill(here, f"n{at}", persistent=True)
        here.apply(wait_s=0.0)
        here.clock.elapsed += 30 * HOUR
    assert [name for name in here.fleet.nodes if reason(here, name)] == ["n0", "n1", "n2", "n3"]


def test_a_signal_that_flaps_is_no_news(adopted: Worlds) -> None:
    """Many showed it first after a change. That it was gone for one look does not make it evidence."""
    here = adopted(nodes=20, racks=20, settings={"budgets": NONE_OUT})
    lefts = {name: lose_gpu(here, name, 0) for name in ("n1", "n2", "n3", "n4")}
    policy = replace(POLICY, ignore_xids=(13,))
    new = replace(WATCHED, digest="x", remediation=policy)
    here.fleet = replace(
        here.fleet, nodes={name: replace(node, profile=new) for name, node in here.fleet.nodes.items()}
    )
    for shows in (99, 0, 99):
        for left in lefts.values():
            left[0] = shows
        here.apply(wait_s=0.0)
        assert not any(reason(here, name) for name in here.fleet.nodes)
        here.clock.elapsed += 70 * MINUTE


# --- what no repair of ours heals -------------------------------------------------------------------------------------

LADDER = replace(POLICY, ladder=(Rung("power_cycle", 1), Rung("reimage", 1)))
COUNTED = replace(WATCHED, digest="counted", remediation=LADDER, inventory=replace(WATCHED.inventory, gpus=4, dimms=32))


def test_what_only_a_person_heals_is_drained_and_left_to_them(adopted: Worlds) -> None:
    """A reimage for coolant, or for memory that is gone, wipes a disk and heals nothing."""
    here = adopted(profile=COUNTED)
    here.machine("n1").inject("failed_part", part="leak", index=1)
    report = here.apply()
    assert reason(here, "n1") == ISOLATED + "health.leak"
    assert attempts(here, "n1") == ["mark", "drain"]
    blocked = report.plan.nodes["n1"].blocked
    assert blocked is not None
    said = "no action heals leak: repair the node (`reconciler repair start NODE`), or set `state: quarantined` for it"
    assert said in blocked.detail
    assert report.plan.nodes["n1"].waits_for_person
    told: list[Event] = []
    seen = Observation("1.0", "f", "c", b.NOW, b.NOW, {})
    PassMessages(told.append).planned(report.plan, seen, 0)
    [line] = [one.message for one in told if isinstance(one, LoopTold) and one.event == "pass"]
    assert line.endswith("0 at work, 0 unknown, 1 waits for a person"), "it differs in nothing that an action removes"
    here.machine("n1").clear("failed_part")
    here.apply()
    assert here.gate.runs == ["n1"], "what a person has repaired is tested before it serves"
    assert here.serves("n1")


def test_a_node_that_cannot_be_drained_is_cordoned_all_the_same(adopted: Worlds) -> None:
    here = adopted(profile=COUNTED, settings={"budgets": NONE_OUT})
    here.machine("n1").inject("failed_part", part="leak", index=1)
    here.apply(wait_s=0.0)
    assert reason(here, "n1") == ISOLATED + "health.leak"
    assert attempts(here, "n1") == ["mark"], "the drain waits for its budget"


def test_no_disk_is_wiped_for_a_part_that_is_gone(adopted: Worlds) -> None:
    here = adopted(profile=COUNTED)
    here.machine("n1").inject("failed_part", part="drive", index=2, how="missing")
    report = here.apply()
    assert reason(here, "n1") == ISOLATED + "health.drive_missing"
    assert attempts(here, "n1") == ["mark", "drain", "power_cycle"]
    assert report.plan.nodes["n1"].waits_for_person


# --- what is unknown beside it ----------------------------------------------------------------------------------------

ILL = {"Ready": "True", "GpuUnhealthy": "True"}
DARK = Silent(b.NOW, UnknownReason.UNREACHABLE, "no route")
BESIDE: dict[str, dict[str, Any]] = {
    "BMC silent": {"hot": DARK, "inventory": DARK},
    "host silent": {"host": DARK},
    "all but the cluster silent": {"hot": DARK, "inventory": DARK, "host": DARK},
    "BMC says that it boots": {
        "hot": b.hot("n1", boot_phase=BootPhase.POST), "host": Silent(b.NOW, UnknownReason.EXPLAINED, "in POST"),
    },
    "BMC says that it is off": {
        "hot": b.hot("n1", power=Power.OFF), "host": Silent(b.NOW, UnknownReason.EXPLAINED, "powered off"),
    },
    "GPUs unread": {"host": b.facts("n1", gpus=None, xids=None)},
}  # fmt: skip
WITHOUT: dict[str, dict[str, Any]] = {
    "": {},
    "no acceptance": {"acceptance": None},
    "no image": {"image": None},
    "no rungs": {"remediation": replace(POLICY, ladder=())},
    "drain by command": {"drain": replace(b.PROFILE.drain, provider=DrainProvider.COMMAND)},
    "no drain": {"drain": replace(b.PROFILE.drain, provider=DrainProvider.NONE)},
}


@pytest.mark.parametrize("lacks", WITHOUT)
@pytest.mark.parametrize("beside", BESIDE)
def test_a_node_that_serves_can_be_marked_whatever_else_is_unknown(beside: str, lacks: str) -> None:
    profile = b.profile(**({"remediation": POLICY} | WITHOUT[lacks]))
    desired = b.node("n1", profile=profile)
    seen = b.observed("n1", **({"member": replace(b.member("n1"), conditions=ILL)} | BESIDE[beside]))
    plan = b.planner().plan(desired, seen, NodeRecord("n1", serial=desired.serial))
    assert evidence(plan, health_table()) == ("health.condition_GpuUnhealthy",), plan.situation


# --- what heals it ---------------------------------------------------------------------------------------------------


def test_an_error_of_memory_is_healed_by_another_module_and_not_by_time(adopted: Worlds) -> None:
    """The entry in the BMC's log is out of its window after two days. The module is still the one that lost data."""
    here = adopted()
    here.machine("n1").inject("failed_part", part="dimm", index=7, how="logged")
    here.apply(wait_s=0.0)
    assert reason(here, "n1") == ISOLATED + "health.dimm_ue"
    for _ in range(3):
        here.clock.elapsed += 24 * HOUR
        here.apply(wait_s=0.0)
        assert not here.serves("n1")
    here.machine("n1").clear("failed_part")
    here.clock.elapsed += HOUR
    here.apply()
    assert here.serves("n1")
    done = attempts(here, "n1")
    assert done[-2:] == ["run_gate", "admit"], "through its gate"


def test_a_node_that_a_person_booted_after_its_gpu_fell_off_the_bus_passes_its_gate_first(adopted: Worlds) -> None:
    """It was isolated and not drained, so no treatment of ours voids its certificate. The row asks for a gate."""
    here = adopted(settings={"budgets": NONE_OUT})
    here.machine("n1").inject("xid_79", gpu=1)
    here.apply(wait_s=0.0)
    assert "health.xid_79" in reason(here, "n1")
    assert attempts(here, "n1") == ["mark"]
    here.machine("n1").clear("xid_79")
    here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, budgets=(BudgetLimit("fleet", "100%"),)))
    here.machine("n1").power("force_restart")
    here.clock.elapsed += HOUR
    here.apply()
    assert here.serves("n1")
    assert "run_gate" in attempts(here, "n1")
    assert "power_cycle" not in attempts(here, "n1")
