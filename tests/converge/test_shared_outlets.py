"""Nodes that share outlets are cut off together: each is counted, drained and judged, or nobody is (pitfall C4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.model.vocab import NodeState
from tests.converge.test_ac_cycle import TREATED, A, B, all_on, cuts
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
ONLY = replace(TREATED, digest="only", remediation=replace(PROFILE.remediation, ladder=(d.Rung("ac_cycle"),)))
ILL = {"xid": {"code": 119, "heals": "ac"}}


@pytest.fixture
def fed(world: Worlds) -> Worlds:
    """Worlds of nodes on two PDUs. `sockets`: node -> the outlet that it hangs on, where that is not its own."""

    def build(sockets: Mapping[str, str], each: Mapping[str, Any] | None = None, **differences: Any) -> World:
        number = differences.get("nodes", 3)
        socket = {f"n{at}": sockets.get(f"n{at}", f"A{at}") for at in range(number)}

        def feeds(node: d.Desired) -> d.Desired:
            mine = socket[node.node]
            others = tuple(name for name, one in socket.items() if one == mine and name != node.node)
            changes = (each or {}).get(node.node, {})
            return replace(node, outlets=(d.Outlet(A, mine, others), d.Outlet(B, mine, others)), **changes)

        here = world(each=feeds, **{"nodes": 3, "profile": ONLY, "faults": {"n0": ILL}, **differences})
        here.adopt()
        return here

    return build


PAIR = {"n0": "A0", "n1": "A0"}


def watched(here: World) -> list[tuple[str, bool, int]]:
    """Note each machine that is cut off: (node, whether it is marked, how many pods it has)."""
    seen: list[tuple[str, bool, int]] = []
    for name, machine in here.lab.machines.items():

        def noting(*, on: bool, name: str = name, cut: Any = machine.set_mains) -> None:
            if not on and here.machine(name).state.mains:
                assert here.lab.cluster is not None
                work = [pod for pod in here.lab.cluster.pods() if pod.node == name and not pod.daemon]
                seen.append((name, here.marked(name), len(work)))
            cut(on=on)

        machine.set_mains = noting  # type: ignore[method-assign]
    return seen


def test_a_sibling_is_drained_counted_cut_off_and_judged(fed: Worlds) -> None:
    here = fed(PAIR)
    boots = {name: here.machine(name).system().boot_id for name in ("n0", "n1", "n2")}
    plan = here.plan().nodes["n0"]
    assert "ac_cycle:n1" in [action.id for action in plan.actions]
    lost = watched(here)
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE, report.results["n0"]
    assert here.serves("n0")
    assert here.serves("n1"), report.results["n1"]
    assert cuts(here) == [1, 1, 0]
    assert all_on(here)
    assert sorted(name for name, *_ in lost) == ["n0", "n1"]
    did = here.did("n1")
    assert [one for one in did if one in ("mark", "drain", "ac_cycle:with:n0", "run_gate", "admit")] == [
        "mark", "drain", "ac_cycle:with:n0", "run_gate", "admit",
    ]  # fmt: skip
    assert {name: here.machine(name).system().boot_id != boots[name] for name in boots} == {
        "n0": True, "n1": True, "n2": False,
    }  # fmt: skip
