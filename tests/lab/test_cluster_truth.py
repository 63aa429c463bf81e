"""The cluster behind both ports: readiness, guarded writes, budgets, evictions, controllers."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.control_plane import (
    ClusterTruth,
    Conflict,
    DisruptionBudget,
    Gone,
    NotFound,
    PodObject,
    TooManyRequests,
)
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.observed import Taint
from reconciler.model.records import MARK_TAINT
from tests.lab.machines import HOUR, Time, after, example_lab

NODE = "gpu-a001"


@pytest.fixture
def truth(clock: Time) -> ClusterTruth:
    lab = example_lab("clean", clock)
    assert lab.cluster is not None
    return lab.cluster


def machine(truth: ClusterTruth, node: str = NODE) -> Machine:
    return truth.machines[node]


def work(truth: ClusterTruth, node: str = NODE) -> list[PodObject]:
    return [pod for pod in truth.pods(node) if pod.evictable]


def drain(truth: ClusterTruth, clock: Time, node: str = NODE) -> None:
    truth.update_node(node, unschedulable=True)
    for pod in work(truth, node):
        truth.evict(pod.namespace, pod.name, uid=pod.uid)
    clock.pass_by(30)


def test_members_are_ready_as_specified_and_work(truth: ClusterTruth) -> None:
    node = truth.node(NODE)
    assert (node.ready, node.unschedulable, node.labels["workload"]) == ("True", False, "training")
    assert node.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert {pod.owner_kind for pod in truth.pods(NODE)} == {"DaemonSet", "Node", "Job", "ReplicaSet"}
    assert truth.has_work(NODE)
    assert truth.node("control-1").control_plane


def test_readiness_follows_the_kubelet_of_the_machine(truth: ClusterTruth, clock: Time) -> None:
    machine(truth).reboot()
    node = truth.node(NODE)
    assert node.ready == "Unknown"
    assert Taint("node.kubernetes.io/unreachable", "", "NoExecute") in node.taints
    clock.pass_by(HOUR)
    assert truth.node(NODE).ready == "True"
    machine(truth).inject("kubelet_not_ready")
    assert truth.node(NODE).ready == "False"


def test_a_write_under_an_old_resource_version_conflicts(truth: ClusterTruth) -> None:
    version = str(truth.node(NODE).resource_version)
    truth.update_node(NODE, resource_version=version, annotations={"a": "1"})
    with pytest.raises(Conflict, match="has been modified"):
        truth.update_node(NODE, resource_version=version, annotations={"a": "2"})
    assert truth.node(NODE).annotations == {"a": "1"}


def test_the_node_controller_answers_a_cordon_with_its_own_taint(truth: ClusterTruth) -> None:
    written = truth.update_node(NODE, unschedulable=True).resource_version
    node = truth.node(NODE)
    assert Taint("node.kubernetes.io/unschedulable", "", "NoSchedule") in node.taints
    assert node.resource_version > written
    truth.update_node(NODE, unschedulable=False)
    assert node.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),) or truth.node(NODE).taints == (
        Taint("nvidia.com/gpu", "present", "NoSchedule"),
    )


def test_a_write_that_changes_nothing_moves_nothing(truth: ClusterTruth) -> None:
    node = truth.node(NODE)
    before = truth.revision
    truth.update_node(NODE, labels=dict(node.labels), unschedulable=False)
    assert truth.revision == before


def test_evicted_pods_take_their_grace_and_come_back_where_there_is_room(truth: ClusterTruth, clock: Time) -> None:
    truth.update_node(NODE, unschedulable=True)
    for pod in work(truth):
        truth.evict(pod.namespace, pod.name, uid=pod.uid)
    clock.pass_by(29)
    assert truth.has_work(NODE)
    clock.pass_by(1)
    assert work(truth) == []
    trainers = {pod.name: pod for pod in truth.pods() if pod.owner_name == f"trainer-{NODE}"}
    [trainer] = trainers.values()
    assert (trainer.node, trainer.phase) == (None, "Pending")  # no other node has free GPUs
    assert sum(pod.owner_name == "router-7c9d8f6b5" and pod.phase == "Running" for pod in truth.pods()) == 12
    truth.update_node(NODE, unschedulable=False)
    assert truth.pod("default", trainer.name).node == NODE


def test_daemonsets_and_mirror_pods_are_not_work(truth: ClusterTruth, clock: Time) -> None:
    drain(truth, clock)
    assert {pod.owner_kind for pod in truth.pods(NODE)} == {"DaemonSet", "Node", "Job"}
    assert not truth.has_work(NODE)


def test_going_down_under_work_is_counted(truth: ClusterTruth, clock: Time) -> None:
    machine(truth).reboot()
    assert after(machine(truth), clock, HOUR).state.counters.killed_work == 1
    drain(truth, clock, "gpu-a002")
    machine(truth, "gpu-a002").reboot()
    assert after(machine(truth, "gpu-a002"), clock, HOUR).state.counters.killed_work == 0


def test_an_eviction_is_of_one_very_pod(truth: ClusterTruth) -> None:
    pod = work(truth)[0]
    with pytest.raises(Conflict, match="Precondition failed"):
        truth.evict(pod.namespace, pod.name, uid="another")
    with pytest.raises(NotFound):
        truth.evict("default", "never-was")


def test_a_budget_keeps_its_least(truth: ClusterTruth, clock: Time) -> None:
    truth.budgets.append(DisruptionBudget("default", "routers", {"app": "router"}, min_available=12))
    [router] = [pod for pod in work(truth) if pod.labels["app"] == "router"]
    with pytest.raises(TooManyRequests, match="budget routers"):
        truth.evict("default", router.name)
    truth.budgets[0].min_available = 11
    truth.evict("default", router.name)
    truth.evict("default", router.name)  # it is already terminating: success
    assert truth.evictions == 1


def test_a_budget_that_never_yields_gives_way_to_force_alone(truth: ClusterTruth, clock: Time) -> None:
    machine(truth).inject("pdb_never_yields")
    pod = work(truth)[0]
    with pytest.raises(TooManyRequests):
        truth.evict(pod.namespace, pod.name)
    truth.delete_pod(pod.namespace, pod.name, grace_s=0)
    assert pod not in truth.pods(NODE)
    other = work(truth, "gpu-a002")[0]
    truth.evict(other.namespace, other.name)


def test_pods_of_a_dead_kubelet_stay_until_they_are_forced(truth: ClusterTruth, clock: Time) -> None:
    machine(truth).inject("host_hung")
    pod = work(truth)[0]
    truth.evict(pod.namespace, pod.name)
    clock.pass_by(HOUR)
    assert pod in truth.pods(NODE)
    truth.delete_pod(pod.namespace, pod.name, grace_s=0)
    assert pod not in truth.pods(NODE)


def test_a_host_that_starts_its_kubelet_joins(clock: Time) -> None:
    lab = example_lab("blank", clock)
    assert lab.cluster is not None
    with pytest.raises(NotFound):
        lab.cluster.node(NODE)
    running = example_lab("clean", clock)
    assert running.cluster is not None
    running.cluster.remove_node("gpu-a002")
    assert running.cluster.pods("gpu-a002") == []
    clock.pass_by(TYPICAL.kubelet_ready_s)
    assert running.cluster.node("gpu-a002").ready == "True"
    assert "workload" not in running.cluster.node("gpu-a002").labels


def test_watchers_see_every_change_once_until_it_is_too_long_ago(truth: ClusterTruth, clock: Time) -> None:
    start = truth.revision
    truth.update_node(NODE, annotations={"a": "1"})
    truth.update_node(NODE, annotations={"a": "2"})
    seen = truth.events_since(start)
    assert [(event.type, event.object.annotations) for event in seen] == [
        ("MODIFIED", {"a": "1"}),
        ("MODIFIED", {"a": "2"}),
    ]
    assert truth.events_since(truth.revision) == []
    for number in range(5000):
        truth.update_node(NODE, annotations={"a": str(number)})
    with pytest.raises(Gone):
        truth.events_since(start)


# --- nodes out of service at once ----------------------------------------------------------------------------------


def out(truth: ClusterTruth, group: str) -> tuple[list[str], int, list[str]]:
    found = truth.dump()["out_of_service"][group]
    return found["now"], found["most"], found["nodes"]


def test_the_most_that_were_out_of_service_at_once_are_kept(truth: ClusterTruth, clock: Time) -> None:
    assert out(truth, "fleet") == ([], 0, [])
    truth.update_node("gpu-a001", unschedulable=True)
    truth.update_node("gpu-a001", annotations={"a": "1"})
    clock.pass_by(60)
    machine(truth, "gpu-a002").reboot()
    assert out(truth, "fleet") == (["gpu-a001", "gpu-a002"], 2, ["gpu-a001", "gpu-a002"])
    clock.pass_by(HOUR)
    assert out(truth, "fleet") == (["gpu-a001"], 2, ["gpu-a001", "gpu-a002"])
    truth.update_node("gpu-a001", unschedulable=False)
    truth.remove_node("gpu-b001")
    assert out(truth, "fleet") == ([], 2, ["gpu-a001", "gpu-a002"]), "its kubelet has registered it again"
    assert out(truth, "pool infer") == ([], 1, ["gpu-b001"])
    assert [out(truth, group)[1] for group in ("pool train", "pool infer", "rack r1", "rack r3")] == [2, 1, 2, 1]
    mark = Taint(MARK_TAINT, "", "NoSchedule")
    truth.update_node("gpu-a003", taints=(mark,))
    assert out(truth, "pool train")[0] == ["gpu-a003"], "marked, it gets no work"


def test_who_never_served_is_not_out_of_service(clock: Time) -> None:
    lab = example_lab("blank", clock)
    assert lab.cluster is not None
    clock.pass_by(HOUR)
    assert out(lab.cluster, "fleet") == ([], 0, [])


# --- conditions of detectors ---


def condition(truth: ClusterTruth) -> tuple[str, str] | None:
    found = truth.node(NODE).conditions.get("GpuUnhealthy")
    return None if found is None else (found.status, found.reason)


def test_a_condition_outlives_the_boot_until_its_detector_runs_again(truth: ClusterTruth, clock: Time) -> None:
    assert condition(truth) is None
    before = truth.revision
    machine(truth).inject("node_condition")
    assert condition(truth) == ("True", "GpuHealthCheckFailed")
    assert [event.type for event in truth.events_since(before)] == ["MODIFIED"]
    machine(truth).reboot()
    clock.pass_by(TYPICAL.shutdown_s + TYPICAL.post_s + TYPICAL.os_boot_s)
    assert truth.node(NODE).ready == "Unknown"
    assert condition(truth) == ("True", "GpuHealthCheckFailed"), "nobody is there to take it back"
    clock.pass_by(TYPICAL.kubelet_ready_s + 1)
    assert truth.node(NODE).ready == "True"
    assert condition(truth) == ("True", "GpuHealthCheckFailed"), "stale: the pod of the detector has not started"
    clock.pass_by(TYPICAL.detector_s)
    assert condition(truth) == ("False", "NoProblem")
    assert [
        c["status"] for e in truth.node_events(NODE) if (c := e["object"].get("conditions", {}).get("GpuUnhealthy"))
    ][-1] == "False"


def test_what_persists_is_found_again(truth: ClusterTruth, clock: Time) -> None:
    machine(truth).inject("node_condition", persistent=True, type="GpuHealthy", status="False")
    machine(truth).reboot()
    clock.pass_by(HOUR)
    assert truth.node(NODE).conditions["GpuHealthy"].status == "False"
    machine(truth).clear()
    assert truth.node(NODE).conditions["GpuHealthy"].status == "True"
