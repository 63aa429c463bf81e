"""Marks, drains, labels, joining and admission, judged by the cluster's own truth."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.lab.hardware.control_plane import ClusterTruth, DisruptionBudget
from reconciler.model.desired import DrainPolicy
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Taint
from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, read_mark, write_mark
from reconciler.model.vocab import DrainProvider
from tests import builders
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]


def truth(here: World) -> ClusterTruth:
    assert here.lab.cluster is not None
    return here.lab.cluster


def the_mark(here: World, node: str = "n0") -> Mark | None:
    return read_mark(truth(here).node(node).annotations.get(OWNER_ANNOTATION))


def busy(here: World, node: str = "n0") -> list[str]:
    return [pod.name for pod in truth(here).pods(node) if pod.evictable]


# --- mark and admit --------------------------------------------------------------------------------------------------


def test_mark_and_admit_leave_no_trace(world: Worlds) -> None:
    here = world(nodes=1)
    before = replace(truth(here).node("n0"))
    assert here.act("mark") == Done("out of service")
    node = truth(here).node("n0")
    mark = the_mark(here)
    assert mark is not None
    assert (mark.ledger, mark.reason, mark.cordoned) == (here.ledger.id, "a test", True)
    assert node.unschedulable
    assert here.tainted("n0")
    assert here.act("mark") == Done("out of service", changed=False)
    assert here.act("admit") == Done("in service")
    after = truth(here).node("n0")
    assert (after.labels, after.annotations, after.unschedulable) == (before.labels, before.annotations, False)
    assert sorted(after.taints) == sorted(before.taints)
    assert here.act("admit") == Done("in service", changed=False)


def test_a_cordon_of_somebody_else_outlives_our_mark(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["foreign_cordon"]})
    assert isinstance(here.act("mark"), Done)
    mark = the_mark(here)
    assert mark is not None
    assert not mark.cordoned
    here.act("admit")
    assert truth(here).node("n0").unschedulable
    assert not here.marked("n0")


def test_a_mark_of_another_ledger_is_respected(world: Worlds) -> None:
    here = world(nodes=1)
    theirs = Mark("other", "p", "their repair", "2026-01-01T00:00:00+00:00", True)
    truth(here).update_node(
        "n0", annotations={OWNER_ANNOTATION: write_mark(theirs)}, taints=[Taint(MARK_TAINT, "", "NoSchedule")]
    )
    for action in ("mark", "admit", "drain"):
        outcome = here.act(action)
        assert isinstance(outcome, Declined)
        assert "ledger other" in outcome.detail
    assert the_mark(here) == theirs
    assert busy(here)


def test_a_mark_that_nobody_can_read_is_somebody_elses(world: Worlds) -> None:
    here = world(nodes=1)
    truth(here).update_node("n0", annotations={OWNER_ANNOTATION: "{"})
    assert isinstance(here.act("mark"), Declined)


def test_a_half_written_mark_is_completed(world: Worlds) -> None:
    """Somebody removed the taint and the cordon, and left our annotation."""
    here = world(nodes=1)
    here.act("mark")
    truth(here).update_node("n0", taints=[], unschedulable=False)
    assert isinstance(here.act("mark"), Done)
    assert here.tainted("n0")
    assert truth(here).node("n0").unschedulable
    here.act("admit")
    assert here.serves("n0")


class Meddler:
    """Somebody who writes the node object between our reading and our writing, so many times."""

    def __init__(self, here: World, times: int) -> None:
        self._here = here
        self._port = here.fabric.cluster()
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def member(self, node: str, *, cached: bool = False) -> Any:
        found = await self._port.member(node, cached=cached)  # type: ignore[union-attr]  # this world has a cluster
        if self._left:
            self._left -= 1
            labels: Mapping[str, str] = truth(self._here).node(node).labels
            truth(self._here).update_node(node, labels={**labels, "meddled": str(self._left)})
        return found


def test_conflicts_are_read_and_tried_again_a_few_times(world: Worlds) -> None:
    here = world(nodes=1)
    assert isinstance(here.act("mark", cluster_port=Meddler(here, 3)), Done)
    assert truth(here).node("n0").labels["meddled"] == "0", "their write stands"
    outcome = here.act("admit", cluster_port=Meddler(here, 99))
    assert isinstance(outcome, Transient)
    assert here.marked("n0")


def test_admission_of_a_node_that_is_not_ready_is_no_admission(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    here.machine("n0").inject("kubelet_not_ready")
    assert isinstance(here.act("admit"), Transient)


# --- drain -----------------------------------------------------------------------------------------------------------


def test_a_drain_evicts_what_can_move_and_nothing_else(world: Worlds) -> None:
    here = world(nodes=2)
    here.act("mark")
    stay = {pod.name for pod in truth(here).pods("n0") if not pod.evictable}
    assert here.act("drain") == Done("2 pods evicted")
    assert busy(here) == []
    assert {pod.name for pod in truth(here).pods("n0")} == stay
    assert here.act("drain") == Done("nothing to evict", changed=False)


def test_a_drain_without_our_mark_is_refused(world: Worlds) -> None:
    here = world(nodes=1)
    outcome = here.act("drain")
    assert isinstance(outcome, Declined)
    assert truth(here).evictions == 0


def test_a_drain_whose_mark_is_taken_away_stops(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")

    async def lifted() -> Any:
        action = asyncio.create_task(here.acting("drain"))
        await asyncio.sleep(60)
        truth(here).update_node("n0", annotations={}, taints=[], unschedulable=False)
        return await action

    assert isinstance(here.run(lifted()), Declined)


def test_a_drain_that_a_budget_refuses_ends_in_time_and_names_it(world: Worlds) -> None:
    """H1."""
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")
    began = here.clock.elapsed
    outcome = here.act("drain")
    assert isinstance(outcome, Transient)
    assert "2 pods left after 5m" in outcome.detail
    assert "disruption budget never-n0" in outcome.detail
    assert 300 <= here.clock.elapsed - began < 360
    assert len(busy(here)) == 2


def test_a_drain_that_waits_names_its_pods_and_repeats_itself_seldom(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")
    first, second = sorted(f"default/{name}" for name in busy(here))
    said: list[str] = []
    here.act("drain", step=said.append)
    refusal = "Cannot evict pod as it would violate the pod's disruption budget never-n0."
    assert set(said) == {f"2 pods to go: {first}: {refusal}; {second}: goes last, as others depend on it"}
    assert len(said) == 5, "at once, and then each of the five minutes"


def test_a_drain_says_when_fewer_pods_are_left(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    budget = DisruptionBudget("default", "keep", {"app": "trainer"}, 1)
    truth(here).budgets.append(budget)
    said: list[str] = []

    async def yields() -> Any:
        action = asyncio.create_task(here.acting("drain", step=said.append))
        await asyncio.sleep(20)
        truth(here).budgets.clear()
        return await action

    assert isinstance(here.run(yields()), Done)
    assert [text.partition(" to go")[0] for text in said] == ["2 pods", "2 pods", "1 pod"]
    assert "disruption budget keep" in said[0]
    assert "disruption budget keep" not in said[1]
    assert "terminating since" in said[2]


def test_a_budget_that_yields_later_is_waited_for(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    truth(here).budgets.append(DisruptionBudget("default", "keep", {"app": "trainer"}, 1))

    async def yields() -> Any:
        action = asyncio.create_task(here.acting("drain"))
        await asyncio.sleep(120)
        truth(here).budgets.clear()
        return await action

    assert isinstance(here.run(yields()), Done)
    assert busy(here) == []


def test_force_deletes_what_is_left(world: Worlds) -> None:
    drain = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=60.0, force=True)
    here = world(
        nodes=1, profile=replace(PROFILE, digest="force", drain=drain), faults={"n0": {"pdb_never_yields": {}}}
    )
    here.act("mark")
    assert here.act("drain") == Done("2 pods deleted")
    assert busy(here) == []


def test_the_pods_of_a_dead_host_are_deleted_past_their_grace(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    here.machine("n0").inject("host_hung")
    here.clock.elapsed += 60
    assert here.act("drain") == Done("2 pods deleted")
    assert busy(here) == []


def two_budgets(here: World) -> None:
    """Cover the trainer by two budgets: the API server refuses to evict such a pod, whatever they allow."""
    for name in ("old", "new"):
        truth(here).budgets.append(DisruptionBudget("default", name, {"app": "trainer"}, 0))


def test_a_pod_with_two_budgets_does_not_keep_the_others(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    two_budgets(here)
    said: list[str] = []
    outcome = here.act("drain", step=said.append)
    assert isinstance(outcome, Transient)
    assert "1 pod left after 5m" in outcome.detail
    assert "more than one PodDisruptionBudget" in outcome.detail
    assert "more than one PodDisruptionBudget" in said[0], "it is told as soon as it is known"
    [left] = busy(here)
    assert left.startswith("trainer")


def test_force_deletes_a_pod_with_two_budgets_at_the_deadline(world: Worlds) -> None:
    drain = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=60.0, force=True)
    here = world(nodes=1, profile=replace(PROFILE, digest="force", drain=drain))
    here.act("mark")
    two_budgets(here)
    began = here.clock.elapsed
    assert here.act("drain") == Done("2 pods deleted")
    assert here.clock.elapsed - began >= 60
    assert busy(here) == []


@pytest.mark.parametrize("kind", [Failure.UNREACHABLE, Failure.BUSY, Failure.TIMEOUT, Failure.MALFORMED])
def test_a_drain_outlives_an_api_server_that_fails_for_a_while(world: Worlds, kind: Failure) -> None:
    """One refused connection ended it."""
    here = world(nodes=1)
    here.act("mark")
    port = Failing(here, DriverError(kind, "connection refused"), reads=3, writes=2)
    said: list[str] = []
    assert here.act("drain", cluster_port=port, step=said.append) == Done("2 pods evicted")
    assert busy(here) == []
    assert "connection refused" in said[0]


def test_a_drain_ends_at_its_deadline_with_what_was_in_the_way(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    truth(here).down = True
    began = here.clock.elapsed
    outcome = here.act("drain")
    assert isinstance(outcome, Transient)
    assert "does not answer" in outcome.detail
    assert 300 <= here.clock.elapsed - began < 360


def test_a_right_that_is_missing_to_read_ends_a_drain_at_once(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    began = here.clock.elapsed
    port = Failing(here, DriverError(Failure.AUTH, 'cannot list resource "pods"'), reads=99, writes=0)
    assert isinstance(here.act("drain", cluster_port=port), Permanent)
    assert here.clock.elapsed - began < 5


class Failing:
    """A cluster whose first reads and evictions fail."""

    def __init__(self, here: World, error: DriverError, *, reads: int, writes: int) -> None:
        self._port: Any = here.fabric.cluster()
        self._error = error
        self._left = {"member": reads, "evict": writes}

    def __getattr__(self, name: str) -> Any:
        if self._left.get(name, 0) == 0:
            return getattr(self._port, name)
        self._left[name] -= 1

        async def fails(*_: Any, **__: Any) -> None:
            raise self._error

        return fails


class Behind:
    """A cluster whose cache still shows the node as it was."""

    def __init__(self, here: World, then: Any) -> None:
        self._port: Any = here.fabric.cluster()
        self._then = then
        self.consistent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def member(self, node: str, *, cached: bool = False) -> Any:
        self.consistent += not cached
        return self._then if cached else await self._port.member(node)


def test_that_a_node_is_empty_is_believed_from_a_consistent_read_alone(world: Worlds) -> None:
    """The server's cache may be behind: here it does not know of the pods yet."""
    here = world(nodes=1)
    here.act("mark")
    member = here.observe().nodes["n0"].member
    assert isinstance(member, Answered)
    assert member.value is not None
    port = Behind(here, replace(member.value, pods=()))
    assert here.act("drain", cluster_port=port) == Done("2 pods evicted")
    assert busy(here) == []
    gone = builders.pod("gone", owner_kind="")
    port = Behind(here, replace(member.value, pods=(gone,)))
    assert here.act("drain", cluster_port=port) == Done("nothing to evict", changed=False)
    before_the_mark = replace(member.value, annotations={}, taints=(), unschedulable=False)
    assert isinstance(here.act("drain", cluster_port=Behind(here, before_the_mark)), Done)


def test_a_drain_that_waits_reads_from_the_cache(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")
    member = here.observe().nodes["n0"].member
    assert isinstance(member, Answered)
    port = Behind(here, member.value)
    assert isinstance(here.act("drain", cluster_port=port), Transient)
    assert port.consistent == 0


FINALIZER = "example.com/checkpoint"


def kept(here: World, **options: Any) -> None:
    """Add a pod whose object stays after its end, until some controller removes the finalizer."""
    truth(here).add_pod("default", "kept", "n0", ("Job", "kept"), finalizers=[FINALIZER], **options)


def test_a_drain_says_which_finalizer_keeps_a_pod_and_since_when(world: Worlds) -> None:
    """The kubelet is silent, and the host answers: nobody knows whether the pod has ended, so it counts as work."""
    here = world(nodes=1, drift={"n0": [{"service_stopped": {"name": "kubelet"}}]})
    here.act("mark")
    kept(here)
    said: list[str] = []
    began = here.clock.now()
    outcome = here.act("drain", step=said.append)
    assert isinstance(outcome, Transient)
    found = re.search(rf"default/kept: terminating since (\S+)Z, kept by finalizer {FINALIZER}", outcome.detail)
    assert found is not None, outcome.detail
    assert found[1] in {f"{began + timedelta(seconds=late):%H:%M:%S}" for late in range(5)}
    assert found[0] in said[-1]


def test_a_drain_says_until_when_a_pod_may_take(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    truth(here).add_pod("default", "slow", "n0", ("Job", "slow"), grace_s=7200)
    outcome = here.act("drain")
    assert isinstance(outcome, Transient)
    assert re.search(r"default/slow: terminating since 01:00:\d\dZ, it has until 03:00:\d\dZ", outcome.detail)


def test_a_pod_that_has_ended_is_no_work_though_a_finalizer_keeps_it(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    kept(here)
    assert here.act("drain") == Done("3 pods evicted")
    assert "kept" in {pod.name for pod in truth(here).pods("n0")}


@pytest.mark.parametrize("grace", [None, 5.0])
def test_a_finalizer_on_a_dead_node_is_not_waited_for(world: Worlds, grace: float | None) -> None:
    """The finalizer's controller may wait for this very node: nothing would end the wait."""
    drain = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0, grace_s=grace)
    here = world(nodes=1, profile=replace(PROFILE, digest="dead", drain=drain))
    here.act("mark")
    kept(here)
    here.machine("n0").inject("host_hung")
    here.clock.elapsed += 60
    assert here.act("drain") == Done(f"3 pods deleted; default/kept is kept by finalizer {FINALIZER}")
    assert busy(here) == ["kept"]
    assert here.act("drain") == Done("nothing to evict", changed=False)


@pytest.mark.parametrize("pod", [{"owner": ("", "")}, {"owner": ("Job", "kept"), "local_storage": True}])
def test_a_drain_evicts_nothing_while_something_would_be_lost_for_good(world: Worlds, pod: dict[str, Any]) -> None:
    here = world(nodes=1)
    here.act("mark")
    truth(here).add_pod("default", "kept", "n0", **pod)
    outcome = here.act("drain")
    assert isinstance(outcome, Declined)
    assert "cannot delete Pods" in outcome.detail
    assert "default/kept" in outcome.detail
    assert truth(here).evictions == 0
    drain = DrainPolicy(DrainProvider.KUBERNETES, 300.0, evict_unmanaged=True, delete_empty_dir_data=True)
    profile = replace(PROFILE, digest="allowed", drain=drain)
    desired = replace(here.fleet.nodes["n0"], profile=profile)
    assert here.act("drain", desired=desired) == Done("3 pods evicted")


@pytest.mark.parametrize(("command", "done"), [(("true",), True), (("false",), False)])
def test_a_drain_by_command_ends_as_the_command_does(world: Worlds, command: tuple[str, ...], done: bool) -> None:
    drain = DrainPolicy(DrainProvider.COMMAND, command=command)
    here = world(nodes=1, profile=replace(PROFILE, digest="command", drain=drain))
    assert isinstance(here.act("drain"), Done if done else Transient)


def test_nothing_to_drain_when_the_spec_says_so(world: Worlds) -> None:
    here = world(nodes=1, profile=replace(PROFILE, digest="none", drain=DrainPolicy(DrainProvider.NONE)))
    assert isinstance(here.act("drain"), Done)
    assert busy(here)


def test_a_node_that_is_no_member_has_nothing_to_drain(world: Worlds) -> None:
    """H7."""
    here = world(nodes=1, drift={"n0": ["not_a_member"]})
    assert isinstance(here.act("drain"), Done)


# --- labels and joining ----------------------------------------------------------------------------------------------


def test_labels_and_taints_of_the_spec_are_set_and_others_stay(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["missing_label"]})
    truth(here).update_node("n0", taints=[Taint("theirs", "", "NoSchedule")])
    assert isinstance(here.act("set_labels"), Done)
    node = truth(here).node("n0")
    assert node.labels["workload"] == "training"
    assert node.labels["kubernetes.io/hostname"] == "n0"
    assert {taint.key for taint in node.taints} == {"theirs", "nvidia.com/gpu"}
    assert here.act("set_labels") == Done("nothing to label", changed=False)


def test_a_node_that_joins_is_marked_before_anything_can_run_on_it(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["not_a_member"]})
    assert here.act("join") == Done("a Ready member")
    assert here.marked("n0")
    assert not here.serves("n0")
    assert busy(here) == []
    assert here.act("join") == Done("a Ready member already", changed=False)


def test_a_node_that_was_a_member_is_not_marked_by_joining(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": [{"service_stopped": {"name": "kubelet"}}]})
    assert isinstance(here.act("join"), Done)
    assert here.serves("n0")


def test_a_kubelet_that_never_becomes_ready_is_reported(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"kubelet_not_ready": {}}})
    outcome = here.act("join")
    assert isinstance(outcome, Transient)
    assert "does not become Ready" in outcome.detail


@pytest.mark.parametrize("action", ["mark", "drain", "set_labels", "join", "admit"])
def test_a_cluster_that_is_down_is_a_passing_failure(world: Worlds, action: str) -> None:
    here = world(nodes=1, drift={"n0": ["missing_label"]})
    drift = here.plan().nodes["n0"].drift
    truth(here).down = True
    assert isinstance(here.act(action, drift=drift), Transient)
