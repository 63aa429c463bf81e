"""Pods that depend on each other: how they are told, what a drain costs them, and the budget of each workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.kube import objects
from reconciler.model.desired import BudgetLimit
from reconciler.model.observed import Pod, Workload
from reconciler.model.plan import BlockCode, WorkloadCost
from reconciler.model.pods import unplaced
from reconciler.model.records import Mark, read_mark, write_mark
from reconciler.model.vocab import Reason
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.carried import carried, workload_costs
from tests import builders as b

# --- real metadata: labels and owners as the controllers set them -----------------------------------------------------


def owned(kind: str, name: str, **labels: str) -> dict[str, Any]:
    owners = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}] if kind else []
    return {
        "metadata": {"namespace": "ml", "name": "p", "uid": "1", "ownerReferences": owners, "labels": labels},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }


LWS = {
    "leaderworkerset.sigs.k8s.io/name": "vllm",
    "leaderworkerset.sigs.k8s.io/group-index": "1",
    "leaderworkerset.sigs.k8s.io/worker-index": "2",
    "kueue.x-k8s.io/queue-name": "serving",
}
JOB_SET = {
    "jobset.sigs.k8s.io/jobset-name": "llama",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "batch.kubernetes.io/job-name": "llama-workers-0",
}
TRAINING = {
    "training.kubeflow.org/job-name": "bert",
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
    "training.kubeflow.org/replica-type": "worker",
}


# Of pods that Kueue placed by topology, as its own tests have them (pkg/util/tas, pkg/controller/tas).
ADMITTED = "kueue.x-k8s.io/workload"
PREFERRED = {"kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-rack"}


@pytest.mark.parametrize(
    ("owner", "labels", "annotations", "workload"),
    [
        (
            ("RayCluster", "ranks-ray-raycluster-knqjp"),
            {"kueue.x-k8s.io/tas": "true", "ray.io/is-ray-node": "yes"},
            {**PREFERRED, ADMITTED: "rayjob-ranks-ray-c3e91"},
            Workload("Workload", "ml", "rayjob-ranks-ray-c3e91", placed=True),
        ),
        (
            ("Job", "job-0"),
            {"kueue.x-k8s.io/tas": "true", "workload.codeflare.dev/appwrapper": "appwrapper"},
            {ADMITTED: "appwrapper-appwrapper-5f337"},
            Workload("Workload", "ml", "appwrapper-appwrapper-5f337", placed=True),
        ),
        (
            ("StatefulSet", "lws-1"),
            {"leaderworkerset.sigs.k8s.io/name": "lws-1", "kueue.x-k8s.io/podset": "main"},
            {"kueue.x-k8s.io/podset-required-topology": "block", ADMITTED: "leaderworkerset-lws-1-cf2ee"},
            Workload("LeaderWorkerSet", "ml", "lws-1", placed=True),
        ),
        (("Job", "etl"), {}, {**PREFERRED, ADMITTED: "job-etl-19797"}, Workload("Job", "ml", "etl", placed=True)),
        (("Job", "etl"), {}, {ADMITTED: "job-etl-19797"}, Workload("Job", "ml", "etl")),
        (("Job", "etl"), {}, PREFERRED, Workload("Job", "ml", "etl")),  # Kueue has not admitted it
    ],
)
def test_what_kueue_placed_by_topology_is_one_workload(
    owner: tuple[str, str], labels: dict[str, str], annotations: dict[str, str], workload: Workload
) -> None:
    pod = owned(*owner, **labels)
    pod["metadata"]["annotations"] = annotations
    assert objects.pod(pod)[1].workload == workload


@pytest.mark.parametrize(
    ("pod", "workload", "finite"),
    [
        (owned("StatefulSet", "vllm-1", **LWS), Workload("LeaderWorkerSet", "ml", "vllm", "1", "serving"), False),
        (owned("Job", "llama-workers-0", **JOB_SET), Workload("JobSet", "ml", "llama"), True),
        (owned("PyTorchJob", "bert", **TRAINING), Workload("PyTorchJob", "ml", "bert"), True),
        (owned("Job", "etl"), Workload("Job", "ml", "etl"), True),
        (owned("", "", **{"kueue.x-k8s.io/pod-group-name": "g"}), Workload("PodGroup", "ml", "g"), False),
        (owned("ReplicaSet", "web-1"), None, False),
        (owned("DaemonSet", "exporter"), None, False),
    ],
)
def test_the_outermost_controller_is_the_workload(pod: dict[str, Any], workload: Workload | None, finite: bool) -> None:
    _, found = objects.pod(pod)
    assert (found.workload, found.finite) == (workload, finite)


# --- costs -----------------------------------------------------------------------------------------------------------


def ran(name: str, kind: str, of: str, group: str = "") -> Pod:
    return b.pod(name, workload=Workload(kind, "ml", of, group))


def test_the_plan_says_what_its_drains_cost_each_workload() -> None:
    pods = {
        "n0": (ran("a0", "JobSet", "llama"), ran("s0", "LeaderWorkerSet", "vllm", "0"), b.pod("web")),
        "n1": (ran("a1", "JobSet", "llama"), ran("s1", "LeaderWorkerSet", "vllm", "1")),
        "n2": (ran("c2", "Job", "etl"),),
    }
    nodes = {name: b.node(name) for name in pods}
    fleet: Any = SimpleNamespace(nodes=nodes)
    seen = {name: b.observed(name, member=b.member(name, pods=found)) for name, found in pods.items()}
    observation: Any = SimpleNamespace(nodes=seen)
    drained = b.planner().plan(
        nodes["n0"], replace(seen["n0"], host=b.observed(host=b.facts("n0", driver="1")).host), b.record(nodes["n0"])
    )
    assert "drain" in b.actions(drained)
    found = workload_costs(fleet, observation, {"n0": drained})
    assert found == (
        WorkloadCost("JobSet ml/llama", "", 1, 2, 2),
        WorkloadCost("LeaderWorkerSet ml/vllm", "", 1, 2, 2, 1, 2),
    )


# --- the mark remembers ----------------------------------------------------------------------------------------------


def test_a_mark_keeps_what_ran_there() -> None:
    mark = Mark("l", "p", "r", "2026-01-01T00:00:00+00:00", True, ("JobSet ml/llama",))
    assert read_mark(write_mark(mark)) == mark
    member = b.member("n0", pods=(ran("new", "Job", "etl"),), annotations={"reconciler.dev/owner": write_mark(mark)})
    assert carried(b.observed("n0", member=member)) == {"JobSet ml/llama", "Job ml/etl"}
    old = '{"at":"","cordoned":true,"ledger":"l","plan":"p","reason":"r"}'
    assert write_mark(Mark("l", "p", "r", "", True)) == old, "as before, where nothing ran"
    changed = replace(mark, adjusted=("Deployment/ml/llama/",))
    assert read_mark(write_mark(changed)) == changed


# --- the budget ------------------------------------------------------------------------------------------------------

NAMES = tuple(f"n{number}" for number in range(6))
LIMITS = (BudgetLimit("fleet", "100%"), BudgetLimit("workload", "1"))


def budget(limits: Sequence[BudgetLimit] = LIMITS) -> Budget:
    return Budget(limits, {name: b.node(name) for name in NAMES}, b.NOW)


def test_one_node_of_a_workload_is_out_at_a_time() -> None:
    found = budget()
    for name in NAMES[:3]:
        found.see_workloads(name, frozenset({"JobSet ml/llama"}))
    assert found.allows("n0") is None
    found.charge("n0")
    refused = found.allows("n1")
    assert refused is not None
    assert refused.code is BlockCode.BUDGET
    assert refused.detail == "budget of JobSet ml/llama is used up: 1 of 1 out (n0)"
    assert found.allows("n3") is None, "it carries none of it"
    found.restore("n0")
    assert found.allows("n1") is None
    [line] = [line for line in found.lines() if line.scope == "each workload"]
    assert (line.limit, line.out) == (1, ())


def test_one_node_of_what_kueue_placed_by_topology_is_out_at_a_time_whatever_is_declared() -> None:
    placed = Workload("JobSet", "ml", "llama", placed=True).whole
    found = budget((BudgetLimit("fleet", "100%"), BudgetLimit("workload", "5")))
    for name in NAMES[:3]:
        found.see_workloads(name, frozenset({placed, "Job ml/etl"}))
    found.charge("n0")
    refused = found.allows("n1")
    assert refused is not None
    assert refused.detail == "budget of JobSet ml/llama by topology is used up: 1 of 1 out (n0)"
    assert found.allows("n1", {Reason.REMEDIATION}) is None, "an ill node is not kept out of its repair"
    assert found.allows("n3") is None
    [line] = [line for line in found.lines() if line.scope == "each workload that Kueue placed by topology"]
    assert (line.limit, line.out) == (1, ("n0",))
    found.restore("n0")
    assert found.allows("n1") is None


def test_a_mark_keeps_that_a_workload_was_placed_by_topology() -> None:
    placed = Workload("JobSet", "ml", "llama", placed=True)
    mark = Mark("l", "p", "r", "2026-01-01T00:00:00+00:00", True, (placed.whole,))
    member = b.member("n0", annotations={"reconciler.dev/owner": write_mark(mark)})
    found = budget((BudgetLimit("fleet", "100%"),))
    found.see_workloads("n0", carried(b.observed("n0", member=member)))
    found.see_workloads("n1", carried(b.observed("n1", member=b.member("n1", pods=(b.pod("a", workload=placed),)))))
    found.charge("n0")
    assert found.allows("n1") is not None


def test_a_workload_of_which_only_some_pods_are_placed_by_topology_is_one() -> None:
    some, placed = Workload("JobSet", "ml", "llama").whole, Workload("JobSet", "ml", "llama", placed=True).whole
    found = budget()
    found.see_workloads("n0", frozenset({some}))  # as a mark has it that was written before wholes said it
    found.see_workloads("n1", frozenset({placed}))
    found.see_workloads("n2", frozenset({some, placed}))
    found.charge("n0")
    for name in ("n1", "n2"):
        refused = found.allows(name)
        assert refused is not None
        assert refused.detail == "budget of JobSet ml/llama is used up: 1 of 1 out (n0)"
    found.see_workloads("n2", frozenset({placed}))
    assert found.allows("n2") is not None, "it still carries some of it"
    found.see_workloads("n2", frozenset())
    assert found.allows("n2") is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["charge", "restore", "move", "isolate"]),
        st.sampled_from(NAMES),
        st.frozensets(st.sampled_from(["A", "A by topology", "B", "C"]), max_size=2),
    ),
    max_size=40,
)


@given(STEPS)
def test_budget_never_exceeded(steps: Iterable[tuple[str, str, frozenset[str]]]) -> None:
    """No prefix of any sequence of charges has two nodes of one workload out, but where the work moved there itself."""
    found = budget()
    carries: dict[str, frozenset[str]] = {}
    out: set[str] = set()
    for what, name, workloads in steps:
        match what:
            case "charge" if name not in out:
                allowed = found.allows(name) is None
                taken = {unplaced(workload) for other in out for workload in carries.get(other, ())}
                assert allowed is taken.isdisjoint(map(unplaced, carries.get(name, ())))
                if allowed:
                    found.charge(name)
                    out.add(name)
            case "restore":
                found.restore(name)
                out.discard(name)
            case "move" if name not in out:  # pods come and go on nodes that serve
                carries[name] = workloads
                found.see_workloads(name, workloads)
            case "isolate" if name not in out:
                with found.supposing():
                    found.charge(name)
        assert set(found.out) == out
