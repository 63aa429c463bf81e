"""A kubelet that is stopped ends no pods: before a drain it is started, whatever image it belongs to."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.converge.run import Ended
from tests.converge.world import World

Worlds = Callable[..., World]


def stopped(world: Worlds, *drift: str) -> World:
    here = world(nodes=2, drift={"n0": drift})
    here.adopt()
    machine = here.machine("n0")
    machine.catch_up()
    machine.service_set("kubelet", active=False, enabled=False)
    here.clock.elapsed += 120.0
    return here


def test_another_image_for_a_node_whose_kubelet_is_stopped(world: Worlds) -> None:
    here = stopped(world, "old_image")
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE, report.results["n0"]
    assert here.did("n0")[:4] == ["mark", "configure_host:kubelet", "drain", "reimage"]
    assert here.machine("n0").state.counters.killed_work == 0
    assert here.serves("n0")


def test_nothing_else_of_an_image_that_is_to_go_is_configured(world: Worlds) -> None:
    """Other values that differ in the old image may not exist in the new one."""
    here = stopped(world, "old_image", "wrong_hostname")
    plan = here.plan().nodes["n0"]
    first = next(action for action in plan.actions if action.id == "configure_host:kubelet")
    assert first.because == ("required by drain",)
    here.run(here.acting("configure_host", target="kubelet"))
    assert here.machine("n0").state.os is not None
    assert here.machine("n0").system().hostname == "localhost"
    assert here.machine("n0").system().services_active["kubelet"]


def test_where_nothing_is_to_be_drained_it_is_configured_with_all_else(world: Worlds) -> None:
    here = stopped(world)
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    assert here.did("n0") == ["mark", "configure_host", "join", "admit"]


def test_a_node_that_a_kubelet_registers_is_marked_before_it_serves(world: Worlds) -> None:
    """H3: it has passed no gate. The pods that wait for room must not get theirs here."""
    here = world(nodes=2, drift={"n0": ["not_a_member"]})
    assert here.lab.cluster is not None
    here.run(here.acting("configure_host"))
    assert here.machine("n0").system().services_active["kubelet"]
    assert here.marked("n0")
    assert here.apply().results["n0"].state is Ended.DONE
    assert "run_gate" in here.did("n0")
    assert here.serves("n0")
