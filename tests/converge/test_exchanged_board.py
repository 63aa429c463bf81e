"""A mainboard that somebody exchanged: found out, told, and left alone until a person confirms which machine it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reconciler.model.plan import BlockCode
from reconciler.notify.found import Notice, _judge
from tests.converge.world import World

Worlds = Callable[..., World]


def swapped(world: Worlds) -> tuple[World, str, str]:
    """Return a world in which n0 came back with another mainboard, its UUID before, and its UUID now."""
    here = world(nodes=2)
    here.adopt()
    here.apply()
    machine, before = here.machine("n0"), here.ledger.node("n0").uuid
    assert before is not None
    machine.power("force_off")
    here.clock.elapsed += 60
    machine.exchange("mainboard", 0)
    machine.power("on")
    here.clock.elapsed += 1800
    return here, before, machine.state.uuid


def declare(here: World, uuid: str | None) -> None:
    nodes = {**here.fleet.nodes, "n0": replace(here.fleet.nodes["n0"], uuid=uuid)}
    here.fleet = replace(here.fleet, nodes=nodes)


def test_an_exchanged_mainboard_is_told_and_nothing_is_done_to_the_node(world: Worlds) -> None:
    here, before, now = swapped(world)
    here.machine("n0").inject("xid_79", gpu=0)
    done = here.did("n0")
    here.apply()
    plan = here.plan().nodes["n0"]
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IDENTITY
    for said in (now, before, "its mainboard was exchanged", f"declare `uuid: {now}`"):
        assert said in plan.blocked.detail
    assert here.did("n0") == done
    assert here.ledger.node("n0").uuid == before, "what nobody confirmed is not on record"
    assert here.plan().nodes["n1"].blocked is None


def test_a_person_is_told_though_the_node_serves(world: Worlds) -> None:
    here, _, now = swapped(world)
    here.apply()
    notice = _judge(here.plan().nodes["n0"], here.observe().nodes["n0"])
    assert isinstance(notice, Notice)
    assert notice.reason == "may be another machine"
    assert f"declare `uuid: {now}`" in notice.detail
    assert _judge(here.plan().nodes["n1"], here.observe().nodes["n1"]) is False


def test_a_person_confirms_it_in_the_spec_and_the_ledger_follows(world: Worlds) -> None:
    here, before, now = swapped(world)
    here.apply()
    declare(here, before)
    here.apply()
    assert here.ledger.node("n0").uuid == before
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None, "the spec says that this is not the machine"
    declare(here, now)
    here.apply()
    assert here.ledger.node("n0").uuid == now
    assert here.plan().nodes["n0"].blocked is None
    assert here.serves("n0")


def test_a_node_that_was_confirmed_once_needs_no_word_in_the_spec(world: Worlds) -> None:
    here, _, now = swapped(world)
    declare(here, now)
    here.apply()
    declare(here, None)
    here.apply()
    assert here.plan().nodes["n0"].blocked is None
