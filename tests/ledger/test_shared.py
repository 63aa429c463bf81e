"""Fleets that share a ledger: what is one's is not taken over, forgotten or acted on by another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.records import NodeRecord, Rollout
from tests.converge.world import World

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_each_knows_its_own_and_a_node_is_free_when_its_fleet_forgets_it(where: str) -> None:
    east, west, both = SqlLedger(where, fleet="east"), SqlLedger(where, fleet="west"), SqlLedger(where)
    rollout = Rollout("train", "d1", {"image.version": ("1",)}, {}, ("a",), False, T0, "c0ffee")
    east.start_run("run-e", "apply", "", "", T0)
    token = east.acquire("east", "one", 60, T0).token
    east.remember_paths(["a"], frozenset({"bios.X"}))
    east.remember_applied("a", {"bios.X": 1}, "d", "c", T0)
    begun = east.begin("run-e", "a", "reimage", "", "", {}, token, T0)
    east.start_rollout(rollout, "run-e")
    assert west.node("a").fleet == "east"
    assert (east.node("a").fleet, both.node("a").fleet) == ("", "")
    assert (east.known(), west.known(), both.known()) == (["a"], [], ["a"])
    assert (len(east.unfinished()), len(west.unfinished()), len(both.unfinished())) == (1, 0, 1)
    west.start_rollout(replace(rollout, digest="d2"), "run-w")
    assert (east.rollouts()["train"].digest, west.rollouts()["train"].digest) == ("d1", "d2")
    west.remember_identities({"a": ("S", None)}, T0)
    assert west.node("a").fleet == "east", "whose it is already, it stays"
    east.finish(begun, "done", "", T0)
    east.forget(["a"], T0)
    assert west.node("a").fleet == ""
    west.remember_paths(["a"], frozenset({"bios.X"}))
    assert east.node("a").fleet == "west"
    assert both.node("b") == NodeRecord("b")
    for ledger in (east, west, both):
        ledger.close()


def test_two_fleets_at_once_leave_each_other_alone(where: str, tmp_path: Path) -> None:
    """A node in both specs belongs to the fleet that met it first."""
    here = World(tmp_path, nodes=3, drift={"n*": ["bios_off"]})
    here.ledger.close()
    here.ledger = east = SqlLedger(where, fleet=here.fleet.settings.fleet)
    west = SqlLedger(where, fleet="west")
    here.adopt()
    nodes = here.fleet.nodes
    first = replace(here.fleet, nodes={name: nodes[name] for name in ("n0", "n1")})
    settings = replace(here.fleet.settings, fleet="west")
    other = replace(here.fleet, nodes={name: nodes[name] for name in ("n1", "n2")}, settings=settings)
    for number, ledger in enumerate((east, west), 1):
        ledger.start_run(f"run-{number}", "apply", "", "", here.clock.now())

    async def both() -> tuple[ApplyReport, ApplyReport]:
        working = asyncio.create_task(here.applying(fleet=first))
        await here.started("soft_restart")
        here.ledger = west
        found = await here.applying(fleet=other)
        return await working, found

    one, two = here.run(both())
    assert {name: result.state for name, result in one.results.items()} == {"n0": Ended.DONE, "n1": Ended.DONE}
    assert (two.results["n1"].state, two.results["n2"].state) == (Ended.NOT_STARTED, Ended.DONE)
    assert two.results["n1"].detail == "this ledger has it as a node of fleet test, whose spec must give it up first"
    assert two.abandoned == ()
    assert {here.machine(name).state.counters.boots for name in nodes} == {1}
    assert (east.known(), west.known()) == (["n0", "n1"], ["n2"])
    stories = [entry for name in nodes for entry in east.history(name)]
    assert [entry.detail for entry in stories if entry.event in ("resume", "forget")] == []
    assert {entry.evidence["outcome"] for entry in stories if entry.event == "outcome"} == {"done"}
    east.close()
    west.close()


@pytest.mark.parametrize("fleet", ["", "east"])
def test_a_ledger_of_before_is_everybody_s(where: str, fleet: str) -> None:
    """Nodes of which nobody said whose they are belong to who meets them next."""
    old = SqlLedger(where)
    old.remember_paths(["a"], frozenset({"bios.X"}))
    old.remember_applied("a", {"bios.X": 1}, "d", "c", T0)
    old.close()
    found = SqlLedger(where, fleet=fleet)
    assert (found.known(), found.node("a").fleet) == (["a"], "")
    found.remember_identities({"a": ("S", None)}, T0)
    found.close()
    west = SqlLedger(where, fleet="west")
    assert west.node("a").fleet == fleet
    west.close()
