"""Short regression tests for defects that random schedules of faults have found."""

from __future__ import annotations

from pathlib import Path

from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import ActionStep, Event
from reconciler.converge.run import Ended
from reconciler.model.plan import BlockCode
from reconciler.model.vocab import NodeState
from tests.converge.world import World
from tests.soak.spec import Spec
from tests.soak.world import SmallFleet

HOUR, DAY = 3600.0, 86400.0


def small_fleet(*, mig: bool = False) -> SmallFleet:
    names = ("n0", "n1", "n2")
    world = SmallFleet(spec=Spec(states=dict.fromkeys(names, NodeState.ACTIVE)), names=names)
    for pool in world.spec.pools.values():
        pool.rollout, pool.mig = "at once", mig
    world.spec.budgets = "all"
    world.edited()
    assert ends(world.apply())["n0"] in (Ended.CONVERGED, Ended.DONE)
    return world


def ends(report: ApplyReport) -> dict[str, Ended]:
    return {name: result.state for name, result in report.results.items()}


def test_a_bmc_that_answers_for_another_machine_amid_an_installation_is_not_written_to(tmp_path: Path) -> None:
    """The node, whose disk is already written, must stay out of service."""
    here = World(tmp_path, nodes=2, drift={"n0": ["old_image"]})
    here.adopt()

    class InjectingEvents(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, ActionStep) and event.step == "installing":
                here.machine("n0").inject("wrong_machine")

    here.events = InjectingEvents()
    here.machine("n0").state.media = None
    report = here.apply(wait_s=0.0)
    assert ends(report)["n0"] is Ended.FAILED
    assert "while it was under way: the BMC answers for serial XN-n0" in report.results["n0"].detail
    assert here.machine("n0").state.media is not None, "ours is still in it: nothing was written"
    assert here.marked("n0")
    assert not here.serves("n0")


def test_a_halted_rollout_happen_when_somebody_has_seen_to_what_failed_it() -> None:
    world = small_fleet()
    world.machine("n0").inject("power_ignored", times=0)
    world.spec.pools["train"].image = "2"
    world.edited()
    for _ in range(4):
        report = world.apply()
        world.wait(5 * HOUR)
    blocked = report.plan.nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.HALTED
    world.machine("n0").clear()
    world.wait(DAY)
    assert ends(world.apply())["n0"] is not Ended.DONE, "nobody has said that it is repaired"
    world.acknowledge(["n0"])
    assert ends(world.apply())["n0"] is Ended.DONE
    assert world.machine("n0").disk().version == "2"


def test_a_node_that_failed_its_gate_and_falls_ill_is_treated() -> None:
    world = small_fleet()
    world.gate.failing.add("n0")
    world.spoil("n0", "old NIC firmware")
    assert ends(world.apply())["n0"] is Ended.FAILED
    world.machine("n0").inject("xid_79", gpu=1)
    assert ends(world.apply())["n0"] is Ended.DONE
    assert world.is_serving("n0")


def test_a_mig_layout_that_our_own_gate_undid_is_no_drift_that_does_not_hold() -> None:
    world = small_fleet(mig=True)
    for kind in ("old NIC firmware", "old BIOS firmware", "old image", "old BMC firmware"):
        world.spoil("n0", kind)
        assert ends(world.apply(wait_s=0.0))["n0"] is Ended.DONE
        world.wait(HOUR)
