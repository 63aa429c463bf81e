"""Invariant never_erase_unasked: no data go without the state, an approved plan, a consent and the very serial."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reconciler.lab.hardware.machine import Machine
from reconciler.model.errors import Refused, StalePlan
from reconciler.model.records import Hold
from reconciler.model.vocab import NodeState
from reconciler.planner.node.actions import ACTIONS
from tests import builders as b
from tests import strategies
from tests.converge.world import World

few = settings(max_examples=settings().max_examples // 5, phases=(Phase.explicit, Phase.reuse, Phase.generate))
MEMORY = Path("/dev/shm")
NAMES = ("n0", "n1")
FAULTS: tuple[dict[str, dict[str, Any]], ...] = (
    {}, {}, {}, {"sanitize_fails": {}}, {"erase_lies": {}}, {"ssh_refused": {}}, {"bmc_unreachable": {}},
    {"wrong_machine": {}}, {"power_ignored": {"times": 2}}, {"node_conflicts": {}}, {"host_hung": {}},
)  # fmt: skip


def intact(machine: Machine) -> set[int]:
    return {at for at, drive in enumerate(machine.state.drives) if drive.holds and not drive.sanitizes}


ORDER = ("mark", "drain", "power_on", "remove_node", "revoke", "erase", "clear_tpm", "power_off", "tombstone")


@given(strategies.situations(), st.sets(st.sampled_from(["D1", "D2", "no such drive"])), st.booleans())
def test_a_plan_to_decommission_goes_all_the_way_or_nowhere(case: Any, drives: set[str], held: bool) -> None:
    """Whatever was read of the node: nothing is flashed or installed, and no step comes before what it needs."""
    desired, observed, record = case
    node = replace(desired, state=NodeState.DECOMMISSIONED, erase=tuple(sorted(drives)))
    kept = replace(record, holds=(Hold(1, node.node, "wait", "ops", b.NOW),)) if held else record
    plan = b.planner().plan(node, observed, kept)
    names = [action.name for action in plan.actions]
    assert [one.target for one in plan.actions if one.name == "erase" and one.target not in drives] == []
    assert not [name for name in names if ACTIONS[name].overwrites]
    assert plan.drift == ()
    assert not held or names == []
    steps = [name for name in names if ACTIONS[name].decommissions]
    if steps:
        assert steps[-1] == "tombstone"
        assert steps == sorted(steps, key=ORDER.index)


@few
@given(
    states=st.tuples(*(st.sampled_from(NodeState) for _ in NAMES)),
    declared=st.tuples(*(st.sets(st.integers(0, 2)) for _ in NAMES)),
    wrong=st.sampled_from(["", "", "other machine", "unknown drive"]),
    approved=st.sampled_from(["none", "same", "other drives"]),
    consented=st.sets(st.sampled_from(NAMES)),
    faults=st.tuples(*(st.sampled_from(FAULTS) for _ in NAMES)),
)
def test_never_erase_unasked(
    states: tuple[NodeState, ...], declared: tuple[set[int], ...], wrong: str, approved: str, consented: set[str],
    faults: tuple[dict[str, dict[str, Any]], ...],
) -> None:  # fmt: skip
    """Invariant 26. The lab tells what was erased; what failed may be half gone, and only where it was asked for."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        here = World(Path(place), nodes=len(NAMES), faults={n: f for n, f in zip(NAMES, faults, strict=True) if f})
        here.adopt()

        def spec(drives: tuple[set[int], ...]) -> None:
            nodes = dict(here.fleet.nodes)
            for name, state, chosen in zip(NAMES, states, drives, strict=True):
                machine = here.machine(name).state
                serials = [machine.drives[at].serial for at in sorted(chosen)]
                serials += ["no such drive"] if wrong == "unknown drive" else []
                serial = "another" if wrong == "other machine" else machine.serial
                nodes[name] = replace(nodes[name], state=state, serial=serial, erase=tuple(serials))
            here.fleet = replace(here.fleet, nodes=nodes)

        spec(tuple({0, 1, 2} - one for one in declared) if approved == "other drives" else declared)
        plan = None if approved == "none" else here.plan()
        spec(declared)
        may = {
            name: chosen if state is NodeState.DECOMMISSIONED and not wrong and approved == "same" and name in consented
            else set[int]()
            for name, state, chosen in zip(NAMES, states, declared, strict=True)
        }  # fmt: skip
        try:
            report = here.apply(approved=plan, consented=frozenset(consented), wait_s=0.0)
        except (StalePlan, Refused):
            report = None
        for name in NAMES:
            machine = here.machine(name)
            assert {0, 1, 2} - intact(machine) <= may[name], here.did(name)
            done = [done for done in (report.executed if report else ()) if done.node == name]
            if not may[name] and (name not in consented or approved != "same"):
                assert not [one.action for one in done if ACTIONS[one.action].decommissions]
            if here.did(name)[-1:] == ["tombstone"]:
                assert not intact(machine) & may[name]
                assert all(not machine.state.drives[at].holds for at in may[name]), "a tombstone, and data are left"
        here.ledger.close()
