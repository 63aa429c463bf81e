"""Servers of K3s whose kubelets are not Ready wait for none that waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.model.outcome import Transient
from tests.converge.k3s_world import k3s_world, spec
from tests.converge.test_k3s_quorum import restarts as started
from tests.converge.world import World

Worlds = Callable[..., World]
ONCE: dict[str, Any] = {"kubelet_not_ready": {"times": 1}}


def servers(here: World) -> tuple[Any, ...]:
    return tuple(here.fabric.servers())  # type: ignore[attr-defined]


def restarts(here: World, name: str) -> None:
    """Let a server join again, and see that its K3s was restarted."""
    before = started(here, name)
    here.act("join", name, servers=servers(here))
    assert started(here, name) != before


def test_the_second_member_of_etcd_is_restarted_when_it_is_not_ready(world: Worlds) -> None:
    """The third joins only once it is Ready."""
    here = k3s_world(world, spec(), nodes=4, faults={"n1": ONCE}, drift={"n2": ["not_a_member"]})
    here.adopt()
    restarts(here, "n1")


def test_two_servers_that_are_not_ready_do_not_wait_for_each_other(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n1": ONCE, "n2": ONCE})
    here.adopt()
    restarts(here, "n1")
    restarts(here, "n2")


def test_one_whose_api_server_does_not_answer_is_away(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n1": ONCE})
    here.adopt()
    here.machine("n2").poweroff()
    here.clock.elapsed += 600.0
    outcome = here.act("join", "n1", servers=servers(here))
    assert isinstance(outcome, Transient)
    assert "server n2 is not Ready: with n1 away as well" in outcome.detail
