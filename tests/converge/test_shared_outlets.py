"""Nodes that share outlets are cut off together: marked, empty and in the budget, or nobody is (pitfalls C4, K6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.spec.shared_outlets import with_bars
from tests.converge.test_ac_cycle import A, B, LADDER, TREATED, cuts
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
ONLY = replace(TREATED, digest="only", remediation=replace(PROFILE.remediation, ladder=LADDER[2:]))
ILL = {"n0": {"xid": {"code": 79, "heals": "ac"}}}


@pytest.fixture
def shared(world: Worlds) -> Worlds:
    """Worlds in which n0 and n1 hang on the same two outlets, and n2 on others of the same PDUs."""

    def build(**differences: Any) -> World:
        def feeds(node: d.Desired) -> d.Desired:
            other = {"n0": ("n1",), "n1": ("n0",)}.get(node.node, ())
            name = "A1" if other else "A2"
            return replace(node, outlets=(d.Outlet(A, name, other), d.Outlet(B, name, other)))

        each = differences.pop("each", lambda node: node)
        here = world(each=lambda node: each(feeds(node)), **{"nodes": 3, "profile": ONLY, "faults": ILL, **differences})
        here.fleet = replace(here.fleet, nodes=with_bars(here.fleet.nodes))
        here.adopt()
        watch(here)
        return here

    return build


def watch(here: World) -> None:
    """Check at every cut that each machine which loses power is off, out of service by our mark, and empty."""
    for name, machine in here.lab.machines.items():
        set_mains = machine.set_mains

        def checked(*, on: bool, name: str = name, set_mains: Any = set_mains) -> None:
            if not on and here.machine(name).state.mains:
                assert name in ("n0", "n1")
                assert here.machine(name).state.power == "off"
                assert here.marked(name)
                assert not here.serves(name)
                assert not pods(here, name)
                assert here.ledger.node(name).attempts[-1].action == "ac_cycle"
            set_mains(on=on)

        machine.set_mains = checked  # type: ignore[method-assign]


def pods(here: World, name: str) -> list[str]:
    assert here.lab.cluster is not None
    here_now = [pod for pod in here.lab.cluster.pods(name) if pod.phase in ("Running", "Pending")]
    return [pod.name for pod in here_now if pod.owner_kind not in ("DaemonSet", "Node")]


def test_both_are_cut_off_and_both_serve_again_after_their_gates(shared: Worlds) -> None:
    here = shared()
    plan = here.plan().nodes["n0"]
    assert "ac_cycle:n1" in [action.id for action in plan.actions]
    report = here.apply()
    assert cuts(here) == [1, 1, 0]
    assert report.results["n0"].state is Ended.DONE
    assert all(here.serves(name) for name in ("n0", "n1", "n2"))
    assert {"n0", "n1"} <= set(here.gate.runs)
