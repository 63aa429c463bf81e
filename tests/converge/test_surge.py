"""What serves is raised elsewhere before its node is drained, once, and lowered again, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.converge.adoption import adopt
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.run import Ended
from reconciler.lab.hardware.control_plane import ClusterTruth, DisruptionBudget
from reconciler.lab.hardware.replicas import QUEUE_LABEL, QueueObject, ReplicatedObject
from reconciler.lab.inprocess.adjustments import TruthAdjustments
from reconciler.lab.inprocess.cluster_port import TruthCluster
from reconciler.model.adjustments import SURGE, Adjusted, AdjustedRef, AdjustmentRecord
from reconciler.model.adjustments import adjusted as with_share
from reconciler.model.desired import Desired
from reconciler.model.drain import DrainPolicy, QueueHold, Surge
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.vocab import DrainProvider, NodeState, StopPolicy
from tests.converge.test_k3s_killed import Killed, surviving
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
COLD_S = 400.0  # until a model is loaded
ANNOTATED = Surge(every=False, timeout_s=900.0)
HOLD = QueueHold(("training",), StopPolicy.HOLD_AND_DRAIN, 300.0)


def of(nodes: int = 3, **policy: Any) -> dict[str, Any]:
    wanted = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0, **policy)
    return {"nodes": nodes, "profile": replace(PROFILE, drain=wanted)}


def truth(here: World) -> ClusterTruth:
    assert here.lab.cluster is not None
    return here.lab.cluster


def serving(
    here: World, replicas: int = 2, *, kind: str = "Deployment", says: str = "true", starts_s: float = COLD_S
) -> ReplicatedObject:
    """A model server whose replicas have been ready for a while."""
    for pod in truth(here).pods():
        if pod.evictable:
            truth(here).delete_pod(pod.namespace, pod.name, grace_s=0)
    annotations = {SURGE: says} if says else {}
    made = truth(here).add_replicated(kind, "ml", "llama", replicas, starts_s=starts_s, annotations=annotations)
    here.clock.elapsed += 2 * COLD_S
    truth(here).sync()
    assert made.least_ready == replicas
    return made


def host_of(here: World, made: ReplicatedObject) -> str:
    """A node that has a pod of it."""
    return str(min(str(pod.node) for pod in truth(here).pods_of(made)))


def drain(here: World, node: str) -> Outcome:
    here.act("mark", node)
    return here.act("drain", node)


def adjusted(here: World, node: str) -> tuple[str, ...]:
    mark = read_mark(truth(here).node(node).annotations.get(OWNER_ANNOTATION))
    return () if mark is None else mark.adjusted


def settled(here: World, made: ReplicatedObject, replicas: int = 2) -> None:
    here.clock.elapsed += 2 * COLD_S
    truth(here).sync()
    assert (made.replicas, made.note, truth(here).ready_of(made)) == (replicas, None, replicas)


def test_it_is_raised_ready_and_lowered_and_never_serves_with_less(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    began = here.clock.elapsed
    assert isinstance(drain(here, node), Done)
    assert here.clock.elapsed - began >= COLD_S
    assert (made.largest, made.least_ready) == (3, 2)
    assert not [pod for pod in truth(here).pods_of(made) if pod.node == node]
    assert adjusted(here, node) == ()
    settled(here, made)


def test_without_a_surge_it_serves_with_less(world: Worlds) -> None:
    """The lab shows the loss that the surge is there for."""
    here = world(**of())
    made = serving(here)
    assert isinstance(drain(here, host_of(here, made)), Done)
    assert (made.largest, made.least_ready) == (2, 1)


@pytest.mark.parametrize(("every", "says", "largest"), [(True, "", 3), (True, "false", 2), (False, "", 2)])
def test_which_pods_are_surged_is_declared(world: Worlds, *, every: bool, says: str, largest: int) -> None:
    here = world(**of(surge=Surge(every, 900.0)))
    made = serving(here, says=says)
    assert isinstance(drain(here, host_of(here, made)), Done)
    assert made.largest == largest
    settled(here, made)


def test_all_replicas_of_a_node_are_raised_together(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here, 4)
    node = host_of(here, made)
    here_now = sum(pod.node == node for pod in truth(here).pods_of(made))
    assert here_now > 1
    assert isinstance(drain(here, node), Done)
    assert made.largest == 4 + here_now
    assert made.least_ready == 4
    settled(here, made, 4)


def test_two_nodes_take_back_their_own_shares(world: Worlds) -> None:
    """The first drain waits for a budget, with what it raised, while the second comes and goes."""
    here = world(**of(nodes=4, surge=ANNOTATED))
    made = serving(here, 2)
    first, second = sorted({str(pod.node) for pod in truth(here).pods_of(made)})
    stuck = truth(here).add_pod("web", "stuck", first, ("ReplicaSet", "web"), labels={"app": "web"})
    truth(here).budgets.append(DisruptionBudget("web", "web", {"app": "web"}, 1))
    assert isinstance(drain(here, first), Transient)
    assert made.replicas == 3
    assert isinstance(drain(here, second), Done)
    assert made.replicas == 3
    truth(here).budgets.clear()
    assert isinstance(here.act("drain", first), Done)
    assert stuck.deletion_started is not None
    assert made.least_ready == 2
    settled(here, made)


def test_what_is_not_ready_in_time_is_lowered_and_nothing_is_evicted(world: Worlds) -> None:
    here = world(**of(surge=Surge(every=False, timeout_s=120.0)))
    made = serving(here)
    node = host_of(here, made)
    outcome = drain(here, node)
    assert isinstance(outcome, Declined)
    assert "Deployment ml/llama: 2 of 3 ready" in outcome.detail
    assert [pod.node for pod in truth(here).pods_of(made) if pod.node == node and pod.ends is None]
    assert adjusted(here, node) == ()
    assert made.least_ready == 2
    settled(here, made)


def test_replicas_that_others_keep_are_refused(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    made.keeper = "Flux (kustomize-controller)"
    outcome = drain(here, host_of(here, made))
    assert isinstance(outcome, Declined)
    assert "Deployment ml/llama: Flux (kustomize-controller) sets its replicas back" in outcome.detail
    assert (made.largest, made.least_ready, made.note) == (2, 2, None)


def test_replicas_that_are_set_back_meanwhile_are_refused(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)

    async def set_back() -> None:
        while made.replicas < 3:
            await here.clock.sleep(1.0)
        made.replicas = 2
        made.resource_version += 1

    async def both() -> Outcome:
        meddler = asyncio.ensure_future(set_back())
        outcome = await here.acting("drain", node)
        await meddler
        return outcome

    outcome = here.run(both())
    assert isinstance(outcome, Declined)
    assert "somebody set its replicas back to 2" in outcome.detail
    assert made.least_ready == 2
    settled(here, made)


def test_a_number_that_a_person_changed_meanwhile_stays(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)

    def dies(_: int) -> None:
        if made.replicas == 3:
            raise Killed

    with surviving(), dying_at(dies):
        here.act("drain", node)
    truth(here).change(made, str(made.resource_version), 5, made.note)
    here.act("drain", node)
    settled(here, made, 5)


def test_groups_that_are_numbered_stay_raised_until_the_node_is_admitted(world: Worlds) -> None:
    """A LeaderWorkerSet takes its highest group away first, and that is the one that was added."""
    here = world(**of(surge=ANNOTATED))
    made = serving(here, kind="LeaderWorkerSet")
    node = host_of(here, made)
    assert isinstance(drain(here, node), Done)
    assert made.replicas == 3
    assert adjusted(here, node) == ("LeaderWorkerSet/ml/llama/",)
    began = here.clock.elapsed
    assert isinstance(here.act("admit", node), Done)
    assert here.clock.elapsed - began >= COLD_S / 2, "the group that was evicted has to be ready again"
    assert made.least_ready == 2
    settled(here, made)


def test_groups_that_wait_for_the_node_are_not_waited_for_for_ever(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here, kind="LeaderWorkerSet")
    node = host_of(here, made)
    assert isinstance(drain(here, node), Done)
    for other in here.fleet.nodes:
        truth(here).node(other).unschedulable = True  # no room anywhere
    for pod in truth(here).pods_of(made):
        if pod.created > 2 * COLD_S + 3600.0 and pod.node is not None:
            truth(here).delete_pod(pod.namespace, pod.name, grace_s=0)
    said = list[str]()
    assert isinstance(here.act("admit", node, step=said.append), Done)
    assert [line for line in said if "not all are ready again" in line]
    assert (made.replicas, made.note) == (2, None)


def test_pods_of_a_dead_node_are_not_surged(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)
    here.machine(node).inject("host_hung")
    here.clock.elapsed += 600.0
    here.act("drain", node)
    assert made.largest == 2


ILL: dict[str, Any] = {"because": ("isolated: health.gpu_missing",)}


@pytest.mark.parametrize("ill", [False, True])
def test_a_pod_of_the_node_that_does_not_serve_is_not_waited_for(world: Worlds, *, ill: bool) -> None:
    """A model server that lost its GPU never becomes ready again: its drain is what helps."""
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    for pod in truth(here).pods_of(made):
        pod.fails = pod.node == node
    here.act("mark", node, **(ILL if ill else {}))
    assert isinstance(here.act("drain", node), Done)
    assert made.largest == 2, "what does not serve needs no stand-in"
    settled(here, made)


def test_beside_a_pod_that_does_not_serve_the_others_are_raised(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here, 4)
    node = max(here.fleet.nodes, key=lambda name: sum(pod.node == name for pod in truth(here).pods_of(made)))
    pods = [pod for pod in truth(here).pods_of(made) if pod.node == node]
    assert len(pods) == 2
    pods[0].fails = True
    assert isinstance(drain(here, node), Done)
    assert (made.largest, made.least_ready) == (5, 3)
    settled(here, made, 4)


def test_an_unready_pod_elsewhere_keeps_a_healthy_node_and_no_ill_one(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    for pod in truth(here).pods_of(made):
        pod.fails = pod.node != node
    assert isinstance(drain(here, node), Declined)
    here.act("admit", node)
    for pod in truth(here).pods_of(made):
        pod.fails = pod.node != node
    said = list[str]()
    here.act("mark", node, **ILL)
    assert isinstance(here.act("drain", node, step=said.append), Done)
    assert [line for line in said if "the node is ill and goes nevertheless" in line]
    assert (made.replicas, made.note) == (2, None)


def test_an_ill_node_is_drained_where_nothing_can_be_raised(world: Worlds) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    made.keeper = "Flux (kustomize-controller)"
    node = host_of(here, made)
    here.act("mark", node, **ILL)
    assert isinstance(here.act("drain", node), Done)
    assert not [pod for pod in truth(here).pods_of(made) if pod.node == node]
    assert (made.largest, made.note) == (2, None)


# --- Kueue -----------------------------------------------------------------------------------------------------------


def queued(here: World) -> QueueObject:
    queue = truth(here).queues["training"] = QueueObject("training")
    for name in ("n0", "n1"):
        truth(here).add_pod("ml", f"job-{name}", name, ("Job", "job"), labels={QUEUE_LABEL: "team-a"})
    return queue


def test_a_queue_is_stopped_from_the_drain_until_the_node_is_admitted(world: Worlds) -> None:
    here = world(**of(hold=HOLD))
    queue = queued(here)
    evictions = truth(here).evictions
    assert isinstance(drain(here, "n0"), Done)
    assert (queue.stop_policy, queue.stops) == ("HoldAndDrain", 1)
    assert not [pod for pod in truth(here).pods() if QUEUE_LABEL in pod.labels]
    others = [pod for pod in truth(here).pods("n0") if pod.evictable]
    assert not others
    assert truth(here).evictions - evictions < 3, "Kueue has ended them: an eviction counts as a failure of the Job"
    assert isinstance(drain(here, "n1"), Done)
    here.act("admit", "n0")
    assert queue.stop_policy == "HoldAndDrain", "n1 is still out"
    here.act("admit", "n1")
    assert (queue.stop_policy, queue.stops, queue.note) == ("None", 1, None)
    assert [pod for pod in truth(here).pods() if QUEUE_LABEL in pod.labels]


def test_a_queue_that_somebody_else_stopped_stays_stopped(world: Worlds) -> None:
    here = world(**of(hold=HOLD))
    queue = queued(here)
    queue.stop_policy = "Hold"
    assert isinstance(drain(here, "n0"), Done)
    here.act("admit", "n0")
    assert (queue.stop_policy, queue.note) == ("Hold", None)


def test_a_queue_that_does_not_exist_is_refused(world: Worlds) -> None:
    here = world(**of(hold=HOLD))
    outcome = drain(here, "n0")
    assert isinstance(outcome, Declined)
    assert "there is no ClusterQueue training" in outcome.detail


def test_a_queue_runs_again_when_the_node_becomes_a_spare(world: Worlds) -> None:
    """Nobody admits a spare for months."""
    here = world(**of(hold=HOLD, surge=ANNOTATED))
    made = serving(here, kind="LeaderWorkerSet")
    queue = queued(here)
    node = host_of(here, made)
    assert isinstance(drain(here, node), Done)
    assert (queue.stop_policy, made.replicas) == ("HoldAndDrain", 3)
    assert isinstance(here.act("reserve", node), Done)
    assert (queue.stop_policy, queue.note, adjusted(here, node)) == ("None", None, ())
    assert not here.serves(node)
    settled(here, made)


def test_a_queue_runs_again_when_the_node_leaves_the_cluster_for_good(world: Worlds) -> None:
    def leaves(node: Desired) -> Desired:
        return replace(node, state=NodeState.DECOMMISSIONED, serial="SN") if node.node == "n0" else node

    here = world(each=leaves, **of(hold=HOLD))
    queue = queued(here)
    assert isinstance(drain(here, "n0"), Done)
    assert queue.stop_policy == "HoldAndDrain"
    outcome = here.act("remove_node", "n0")
    assert "its node object is deleted" in outcome.detail
    assert (queue.stop_policy, queue.note) == ("None", None)


def test_an_ill_node_holds_no_queue(world: Worlds) -> None:
    """It may wait for its parts for weeks."""
    here = world(**of(hold=HOLD))
    queue = queued(here)
    here.act("mark", "n0", **ILL)
    assert isinstance(here.act("drain", "n0"), Done)
    assert (queue.stop_policy, queue.stops, queue.note) == ("None", 0, None)


def test_an_adopted_node_gives_back_what_the_lost_ledger_changed(world: Worlds) -> None:
    here = world(**of(hold=HOLD, surge=ANNOTATED))
    made = serving(here, kind="LeaderWorkerSet")
    queue = queued(here)
    node = host_of(here, made)
    assert isinstance(drain(here, node), Done)
    cluster = here.fabric.cluster()
    assert cluster is not None
    timed = TimedCluster(cluster, here.clock, here.fleet.settings, here.lease())
    for thing in (made, queue):
        thing.note = thing.note.replace(here.ledger.id, "lost")
    before = read_mark(truth(here).node(node).annotations[OWNER_ANNOTATION])
    found = here.run(timed.member(node))
    assert before is not None
    assert found is not None
    here.run(timed.mark(found, replace(before, ledger="lost")))
    assert not here.run(adopt(timed, here.ledger, node, "ops", here.clock)).problem
    ours = read_mark(truth(here).node(node).annotations[OWNER_ANNOTATION])
    assert ours is not None
    assert (ours.ledger, ours.adjusted, ours.workloads) == (here.ledger.id, before.adjusted, before.workloads)
    assert isinstance(here.act("admit", node), Done)
    assert (queue.stop_policy, queue.note) == ("None", None)
    settled(here, made)


# --- killed at every point -------------------------------------------------------------------------------------------

_CALLS = ("mark", "unmark", "evict", "delete")


@contextmanager
def dying_at(dies: Callable[[int], None]) -> Iterator[None]:
    """Call `dies` with the number of each call to the cluster, before and after it is made."""
    number = 0

    def counted(call: Any) -> Any:
        async def made(*arguments: Any, **more: Any) -> Any:
            nonlocal number
            number += 1
            dies(number)
            found = await call(*arguments, **more)
            number += 1
            dies(number)
            return found

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("scaled_by", "read", "write"):
            patch.setattr(TruthAdjustments, name, counted(getattr(TruthAdjustments, name)))
        for name in _CALLS:
            patch.setattr(TruthCluster, name, counted(getattr(TruthCluster, name)))
        yield


def calls_of(work: Callable[[], object]) -> int:
    """Return how many points a piece of work has at which it may be killed."""
    last = 0

    def noted(number: int) -> None:
        nonlocal last
        last = number

    with dying_at(noted):
        work()
    return last


def dies_at(point: int, failure: DriverError | None) -> Callable[[int], None]:
    """Kill the process at this point: nothing that it does later has an effect. Or lose one answer."""

    def dies(number: int) -> None:
        if failure is None and number >= point:
            raise Killed
        if failure is not None and number == point:
            raise failure

    return dies


LOST = DriverError(Failure.AMBIGUOUS, "no answer")


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet"])
@pytest.mark.parametrize("failure", [None, LOST], ids=["killed", "lost answer"])
def test_killed_at_any_point_of_its_drain_it_is_raised_once_and_lowered(
    world: Worlds, kind: str, failure: DriverError | None
) -> None:
    """Every point from the mark to the admission, each once: the next run goes on, and all is as it was before."""

    def scene() -> tuple[World, ReplicatedObject, QueueObject]:
        here = world(**of(surge=ANNOTATED, hold=HOLD))
        return here, serving(here, kind=kind, starts_s=25.0), queued(here)

    def whole(here: World) -> None:
        here.act("mark", "n0")
        if isinstance(here.act("drain", "n0"), Done):
            here.act("admit", "n0")

    here, made, _ = scene()
    points = calls_of(lambda: whole(here))
    assert points >= 30
    assert made.largest == 3
    for at in range(1, points + 1):
        here, made, queue = scene()
        with dying_at(dies_at(at, failure)), surviving():
            whole(here)
        whole(here)
        assert here.serves("n0"), at
        assert (made.largest, made.least_ready) == (3, 2), at
        assert (queue.stop_policy, queue.note) == ("None", None), at
        settled(here, made)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 190), min_size=1, max_size=2))
def test_runs_that_are_killed_at_any_point_end_with_everything_as_it_was(points: list[int]) -> None:
    """A new image needs the drain. Nobody tells the next run what the killed one did."""
    with tempfile.TemporaryDirectory() as folder:
        here = World(Path(folder), drift={"n0": ["old_image"]}, **of(surge=ANNOTATED, hold=HOLD))
        made, queue = serving(here), queued(here)
        here.adopt()
        for at in points:
            with dying_at(dies_at(at, None)), surviving():
                here.apply(wait_s=36000.0)
        here.apply(wait_s=36000.0)
        assert here.serves("n0")
        assert (made.largest, made.least_ready) == (3, 2)
        assert (queue.stop_policy, queue.note) == ("None", None)
        settled(here, made)
        here.ledger.close()


def test_a_run_that_dies_before_it_lowers_leaves_a_node_that_is_not_drained(world: Worlds) -> None:
    """So the next run drains it again, finds nothing to evict, and lowers: it would stay raised for hours otherwise."""
    here = world(drift={"n0": ["old_image"]}, **of(surge=ANNOTATED))
    made = serving(here)
    here.adopt()

    def dies(_: int) -> None:
        if made.replicas == 3 and not [pod for pod in truth(here).pods_of(made) if pod.node == "n0"]:
            raise Killed

    with dying_at(dies), surviving():
        here.apply(wait_s=36000.0)
    assert adjusted(here, "n0") == ("Deployment/ml/llama/",)
    actions = [action.name for action in here.plan().nodes["n0"].actions]
    assert actions[:2] == ["drain", "reimage"]


def test_no_queue_is_stopped_for_a_drain_whose_surge_is_refused(world: Worlds) -> None:
    """Each attempt would end all work of the queue, and the next pass tries again."""
    here = world(**of(hold=HOLD, surge=ANNOTATED))
    made, queue = serving(here), queued(here)
    made.keeper = "Argo CD"
    outcome = drain(here, "n0")
    assert isinstance(outcome, Declined)
    assert (queue.stop_policy, queue.stops) == ("None", 0)


def test_a_second_node_of_what_was_scaled_up_meanwhile_is_raised_for_too() -> None:
    """An HPA's least was raised from 2 to 6 for n0, and it runs 9 by now: for n1 there must be a tenth."""
    hpa = AdjustedRef("HorizontalPodAutoscaler", "ml", "llama")
    record = AdjustmentRecord("ledger", 2, 6, {"n0": 1})
    found = Adjusted(hpa, "1", value=6, wanted=9, ready=9, record=record)
    assert with_share(found, "n1", "ledger", 1) == AdjustmentRecord("ledger", 2, 10, {"n0": 1, "n1": 1})


def failing_reads(
    patch: pytest.MonkeyPatch,
    times: int,
    kind: Failure = Failure.UNREACHABLE,
    when: Callable[[], bool] = lambda: True,
) -> None:
    """Let so many reads of what sets numbers fail, as while an API server restarts."""
    left = [times]
    for name in ("scaled_by", "read"):
        real = getattr(TruthAdjustments, name)

        async def read(self: TruthAdjustments, what: Any, real: Any = real) -> Any:
            if left[0] and when():
                left[0] -= 1
                raise DriverError(kind, "the API server does not answer")
            return await real(self, what)

        patch.setattr(TruthAdjustments, name, read)


def test_reads_that_fail_for_a_while_end_no_attempt(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)
    failing_reads(monkeypatch, 3)
    assert isinstance(here.act("drain", node), Done)
    assert (made.largest, made.least_ready) == (3, 2)
    settled(here, made)


def test_reads_that_fail_for_good_end_with_the_time_of_the_surge(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)
    began = here.clock.elapsed
    with monkeypatch.context() as patch:
        failing_reads(patch, 10**6)
        outcome = here.act("drain", node)
    assert isinstance(outcome, Transient)
    assert "does not answer" in outcome.detail
    assert ANNOTATED.timeout_s <= here.clock.elapsed - began <= ANNOTATED.timeout_s + 120
    assert (made.largest, made.least_ready) == (2, 2), "nothing was raised, and nothing evicted"


def test_one_lost_read_long_after_the_surge_ends_no_drain(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round reads the queues, for as long as their work is given to end."""
    here = world(**of(surge=Surge(every=False, timeout_s=60.0), hold=replace(HOLD, stop_policy=StopPolicy.HOLD)))
    made = serving(here, starts_s=25.0)
    queue, node = queued(here), "n0"
    here.act("mark", node)
    began = here.clock.elapsed
    failing_reads(monkeypatch, 1, when=lambda: here.clock.elapsed > began + 150.0)
    assert isinstance(here.act("drain", node), Done)
    assert here.clock.elapsed - began > 150.0
    assert (made.least_ready, queue.stops) == (2, 1)


def test_what_was_raised_is_lowered_when_the_node_can_not_be_read(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)
    real, left = TruthCluster.member, [1]

    async def member(self: TruthCluster, *arguments: Any, **more: Any) -> Any:
        if left[0] and made.replicas == 3:
            left[0] -= 1
            raise DriverError(Failure.AUTH, "the token has expired")
        return await real(self, *arguments, **more)

    monkeypatch.setattr(TruthCluster, "member", member)
    assert not isinstance(here.act("drain", node), Done)
    assert adjusted(here, node) == ()
    settled(here, made)


@pytest.mark.parametrize("ill", [False, True])
def test_a_right_that_is_missing_keeps_a_healthy_node_and_no_ill_one(
    world: Worlds, monkeypatch: pytest.MonkeyPatch, *, ill: bool
) -> None:
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node, **(ILL if ill else {}))
    failing_reads(monkeypatch, 10**6, Failure.AUTH)
    outcome = here.act("drain", node)
    assert isinstance(outcome, Done if ill else Declined)
    assert bool([pod for pod in truth(here).pods_of(made) if pod.node == node]) is not ill


def test_a_pod_that_was_just_replaced_needs_nothing(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in the list, and its Deployment has put another one elsewhere by the time that it is asked about."""
    here = world(**of(surge=ANNOTATED))
    made = serving(here)
    node = host_of(here, made)
    here.act("mark", node)
    real = TruthAdjustments.scaled_by

    async def replaced(self: TruthAdjustments, pod: Any) -> Any:
        truth(here).delete_pod(pod.namespace, pod.name, grace_s=0)
        return await real(self, pod)

    monkeypatch.setattr(TruthAdjustments, "scaled_by", replaced)
    assert isinstance(here.act("drain", node), Done)
    assert made.largest == 2


def test_a_surge_that_is_refused_is_tried_again_after_growing_pauses(world: Worlds) -> None:
    """What refuses it is of other people, and asking each pass changes nothing."""
    here = world(**of(surge=ANNOTATED), drift={"n*": ["bios_off"]})
    made = serving(here)
    made.keeper = "Argo CD"
    node = host_of(here, made)
    ended = set[Ended]()
    for _ in range(4):
        ended.add(here.apply(wait_s=0.0).results[node].state)
        here.clock.elapsed += 60.0
    tries = [one for one in here.ledger.node(node).attempts if one.action == "drain"]
    assert 1 <= len(tries) < 4
    assert {one.outcome for one in tries} == {"refused"}, "max_failures of a rollout counts it for no failure"
    assert ended == {Ended.NOT_STARTED}, "it waits, and has not failed"
    assert "Argo CD sets its replicas back" in here.apply(wait_s=0.0).results[node].detail
    assert here.serves(node)
    made.keeper = ""
    here.clock.elapsed += 86400.0
    here.apply()
    assert here.serves(node)
    assert made.least_ready == 2
