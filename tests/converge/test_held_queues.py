"""A queue of Kueue is held only for nodes that come back by themselves, and as long as one of them is out (H9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.events import LoopTold
from reconciler.lab.hardware.replicas import QueueObject
from reconciler.lab.inprocess.adjustments import TruthAdjustments
from reconciler.model.adjustments import Adjusted, AdjustedRef, read_record
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError, Failure, Refused
from reconciler.model.outcome import Done
from reconciler.model.records import FLEET
from reconciler.model.vocab import NodeState
from tests.converge.test_k3s_killed import Killed, surviving
from tests.converge.test_loop import HOUR, Looped, looped
from tests.converge.test_surge import HOLD, Worlds, drain, dying_at, of, queued, truth
from tests.converge.world import World

__all__ = ["looped"]
HELD, RUNS = "HoldAndDrain", "None"


def two_drained(world: Worlds) -> tuple[World, QueueObject]:
    """Two nodes whose drains hold the queue. Their runs died then."""
    here = world(**of(hold=HOLD))
    here.adopt()
    queue = queued(here)
    for node in ("n0", "n1"):
        assert isinstance(drain(here, node), Done)
    assert (queue.stop_policy, holders(queue)) == (HELD, ["n0", "n1"])
    return here, queue


def holders(queue: QueueObject) -> list[str]:
    record = read_record(queue.note)
    return [] if record is None else sorted(record.by)


def told(here: World) -> list[str]:
    return [one.message for one in here.events if isinstance(one, LoopTold) and one.event == "queue"]


def of_state(here: World, state: NodeState) -> None:
    def change(node: Desired) -> Desired:
        return replace(node, state=state) if node.node == "n0" else node

    here.fleet = replace(here.fleet, nodes={name: change(node) for name, node in here.fleet.nodes.items()})


def falls_ill(here: World) -> None:
    here.machine("n0").inject("xid", code=79)


def is_quarantined(here: World) -> None:
    of_state(here, NodeState.QUARANTINED)


def is_held(here: World) -> None:
    here.ledger.hold("n0", "its cables are moved", "ops", None, here.clock.now())


def loses_its_object(here: World) -> None:
    """As `kubectl delete node` does. Its kubelet registers it anew, without our mark."""
    truth(here).remove_node("n0")


def leaves_the_spec(here: World) -> None:
    here.fleet = replace(here.fleet, nodes={name: node for name, node in here.fleet.nodes.items() if name != "n0"})


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (falls_ill, "it is ill (health.xid_79)"),
        (is_quarantined, "quarantined in the spec: not acted upon"),
        (is_held, "its cables are moved"),
        (loses_its_object, "its node object does not say so any more"),
        (leaves_the_spec, "it left the spec"),
    ],
)
def test_a_node_that_does_not_come_back_holds_no_queue(
    world: Worlds, happens: Callable[[World], None], why: str
) -> None:
    """The other node of the pool is still out, and holds it until it is admitted."""
    here, queue = two_drained(world)
    happens(here)
    here.apply(selected=[name for name in ("n0", "n2") if name in here.fleet.nodes], wait_s=0.0)
    assert (queue.stop_policy, holders(queue)) == (HELD, ["n1"]), "n1 still drains"
    [message] = told(here)
    assert message.startswith("ClusterQueue training is no longer held for n0: ")
    assert why in message
    here.apply(selected=["n1"], wait_s=10 * HOUR)
    assert here.serves("n1")
    assert (queue.stop_policy, queue.stops, queue.note) == (RUNS, 1, None)


def test_a_node_of_another_fleet_of_the_ledger_keeps_its_queue(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here, queue = two_drained(world)
    leaves_the_spec(here)
    known = here.ledger.node
    monkeypatch.setattr(
        here.ledger, "node", lambda name: replace(known(name), fleet="west") if name == "n0" else known(name)
    )
    here.apply(selected=["n2"], wait_s=0.0)
    assert (queue.stop_policy, holders(queue)) == (HELD, ["n0", "n1"])
    assert told(here) == []


def test_a_node_whose_work_fails_lets_its_queue_go_at_the_end_of_the_run(world: Worlds) -> None:
    here = world(drift={"n0": ["old_image"]}, **of(hold=HOLD))
    queue = queued(here)
    here.adopt()

    def breaks(_: int) -> None:
        if queue.stop_policy == HELD and not here.machine("n0").state.faults:
            here.machine("n0").inject("installer_fails", phase="started", why="no disk", cause="disk", times=9)

    with dying_at(breaks):
        report = here.apply(wait_s=36000.0)
    assert not here.serves("n0"), report.results["n0"]
    assert (queue.stop_policy, queue.stops, queue.note) == (RUNS, 1, None), told(here)


def test_the_run_after_a_killed_one_goes_on_and_stops_the_queue_no_second_time(world: Worlds) -> None:
    """Each stop of HoldAndDrain ends the work of the queue."""
    here = world(drift={"n0": ["old_image"]}, **of(hold=HOLD))
    queue = queued(here)
    here.adopt()

    def dies(_: int) -> None:
        if queue.stop_policy == HELD:
            raise Killed

    with dying_at(dies), surviving():
        here.apply(wait_s=36000.0)
    assert holders(queue) == ["n0"]
    here.apply(wait_s=36000.0)
    assert here.serves("n0")
    assert (queue.stop_policy, queue.stops, queue.note, told(here)) == (RUNS, 1, None, [])


def test_a_queue_that_somebody_else_stopped_meanwhile_stays_stopped(world: Worlds) -> None:
    here, queue = two_drained(world)
    queue.stop_policy = "Hold"
    falls_ill(here)
    here.apply(selected=["n0"], wait_s=0.0)
    assert (queue.stop_policy, holders(queue)) == ("Hold", ["n1"])


def test_a_queue_that_can_not_be_read_is_told_of_and_tried_again(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, queue = two_drained(world)
    is_quarantined(here)

    async def refused(_self: TruthAdjustments, _ref: AdjustedRef) -> Adjusted | None:
        raise DriverError(Failure.AUTH, "forbidden")

    with monkeypatch.context() as patch:
        patch.setattr(TruthAdjustments, "read", refused)
        here.apply(selected=["n0"], wait_s=0.0)
    assert holders(queue) == ["n0", "n1"]
    assert "ClusterQueue training may stay held" in told(here)[0]
    assert "forbidden" in told(here)[0]
    here.apply(selected=["n0"], wait_s=0.0)
    assert holders(queue) == ["n1"]


def test_a_stopped_fleet_lets_no_queue_go(world: Worlds) -> None:
    here, queue = two_drained(world)
    is_quarantined(here)
    here.ledger.hold(FLEET, "stop", "ops", None, here.clock.now())
    with pytest.raises(Refused, match="nothing is done"):
        here.apply()
    assert holders(queue) == ["n0", "n1"]


def test_the_service_lets_it_go_with_its_next_pass(looped: Callable[..., Looped]) -> None:
    policy = of(hold=HOLD)
    here = looped(**policy)
    queue = queued(here)
    assert isinstance(drain(here, "n0"), Done)
    falls_ill(here)
    is_quarantined(here)
    here.put(here.fleet)
    here.go(HOUR)
    assert not here.serves("n0")
    assert (queue.stop_policy, queue.stops, queue.note) == (RUNS, 1, None)
    assert len(here.said("queue")) == 1
