"""A repair ends without its rung when it is not needed any more, or when a person takes the node back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.model.desired import Rung
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
LADDER = (Rung("gpu_reset"), Rung("soft_restart"), Rung("power_cycle"))
TREATED = replace(PROFILE, digest="treated", remediation=replace(PROFILE.remediation, ladder=LADDER))


def sick(world: Worlds, **fault: Any) -> World:
    here = world(nodes=2, profile=TREATED, faults={"n0": fault})
    here.adopt()
    return here


def during_drain(here: World, happens: Callable[[], object]) -> None:
    async def both() -> None:
        applying = asyncio.create_task(here.applying())
        await here.started("drain")
        happens()
        await applying

    here.run(both())


def rungs(here: World) -> list[str]:
    return [word for word in here.did("n0") if word.split("!")[0] in {rung.action for rung in LADDER}]


def test_a_state_that_is_gone_after_the_drain_needs_no_rung(world: Worlds) -> None:
    """Its row asks for nothing more than that, and for the gate."""
    here = sick(world, gpu_cell={"cell": "pcie_width", "text": "8x"})
    during_drain(here, lambda: here.machine("n0").clear("gpu_cell"))
    assert rungs(here) == []
    assert here.serves("n0")


def test_a_state_whose_row_asks_for_a_reset_needs_it_though_it_is_gone(world: Worlds) -> None:
    here = sick(world, gpu_cell={"cell": "recovery_action", "text": "Reset"})
    during_drain(here, lambda: here.machine("n0").clear("gpu_cell"))
    assert rungs(here) == ["gpu_reset"]
    assert here.serves("n0")


def test_an_event_is_not_gone_because_its_log_is(world: Worlds) -> None:
    here = sick(world, xid={"code": 119})
    during_drain(here, lambda: here.machine("n0").clear("xid"))
    assert rungs(here) == ["gpu_reset"]
    assert here.serves("n0")


def uncordon(here: World) -> None:
    """As `kubectl uncordon` does: our taint and annotation stay."""
    assert here.lab.cluster is not None
    here.lab.cluster.node("n0").unschedulable = False
    here.lab.cluster.sync("n0")


def test_a_person_who_uncordons_cancels_the_repair(world: Worlds) -> None:
    here = sick(world, xid={"code": 119})
    during_drain(here, lambda: uncordon(here))
    here.apply()
    assert rungs(here) == []
    [hold] = here.ledger.holds()
    assert hold.subject == "n0"
    assert "somebody uncordoned it while it was repaired for health.xid_119" in hold.reason
    here.apply()
    assert rungs(here) == [], "it stays cancelled over runs"
    assert here.tainted("n0"), "what is ill gets no new work"
    here.ledger.release("n0", "ann", here.clock.now())
    here.apply()
    assert rungs(here)
    assert here.serves("n0")
