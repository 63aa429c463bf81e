"""Drains of nodes with workloads whose pods depend on each other, judged by the cluster's own truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.lab.hardware.control_plane import ClusterTruth, DisruptionBudget, NodeObject
from reconciler.model.desired import BudgetLimit, DrainPolicy
from reconciler.model.outcome import Done, Transient
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.vocab import DrainProvider
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
LLAMA = {"jobset.sigs.k8s.io/jobset-name": "llama"}


def truth(here: World) -> ClusterTruth:
    assert here.lab.cluster is not None
    return here.lab.cluster


def member(here: World, node: str, **options: Any) -> Any:
    """A pod of the JobSet ml/llama on a node."""
    return truth(here).add_pod("ml", f"llama-{node}", node, ("Job", "llama-workers"), labels=LLAMA, **options)


def test_workloads_stay_while_a_budget_never_yields(world: Worlds) -> None:
    drain = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0)
    here = world(nodes=1, profile=replace(PROFILE, drain=drain))
    pod = member(here, "n0")
    truth(here).add_pod("serve", "web", "n0", ("ReplicaSet", "web"), labels={"app": "web"})
    truth(here).budgets.append(DisruptionBudget("serve", "guard", {"app": "web"}, 1))
    here.act("mark")
    outcome = here.act("drain")
    assert isinstance(outcome, Transient), outcome
    assert "serve/web: Cannot evict pod" in outcome.detail
    assert pod.deletion_started is None, "the drain fails, and has cost the job nothing"
    truth(here).budgets.clear()
    assert isinstance(here.act("drain"), Done)
    assert pod.deletion_started is not None


def test_the_largest_workload_goes_last_and_its_pods_together(world: Worlds) -> None:
    here = world(nodes=1)
    for name in ("b1", "a1", "c1"):
        truth(here).add_pod("ml", name, "n0", ("Job", "x"), labels=LLAMA)
    truth(here).add_pod("ml", "small", "n0", ("Job", "etl"))
    truth(here).add_pod("serve", "web", "n0", ("ReplicaSet", "web"))
    order: list[str] = []
    evict = truth(here).evict

    def noted(namespace: str, name: str, **options: Any) -> None:
        order.append(name)
        evict(namespace, name, **options)

    truth(here).evict = noted  # type: ignore[method-assign]
    here.act("mark")
    here.act("drain")
    assert set(order[-3:]) == {"a1", "b1", "c1"}
    assert order.index("web") < order.index("small") < order.index("a1")


def test_the_mark_keeps_what_ran_until_the_node_serves_again(world: Worlds) -> None:
    here = world(nodes=1)
    member(here, "n0")
    here.act("mark")
    here.act("drain")
    mark = read_mark(truth(here).node("n0").annotations.get(OWNER_ANNOTATION))
    assert mark is not None
    assert "JobSet ml/llama" in mark.workloads
    here.act("admit")
    assert OWNER_ANNOTATION not in truth(here).node("n0").annotations


def test_one_node_of_a_workload_is_out_at_a_time(world: Worlds) -> None:
    """Three nodes drift, two of them carry one JobSet: these two go one after the other, the third when it likes."""
    limits = (BudgetLimit("fleet", "100%"), BudgetLimit("workload", "1"))
    here = world(nodes=3, settings={"budgets": limits}, drift={"n*": ["old_image"]})
    here.adopt()
    carriers = {"n0", "n1"}
    for name in carriers:
        member(here, name)
    out: set[str] = set()
    most: list[int] = []

    def watch(node: NodeObject, serves: bool) -> None:
        (out.discard if serves else out.add)(node.name)
        most.append(len(out & carriers))

    truth(here).watcher = watch
    report = here.apply()
    assert {name for name in here.fleet.nodes if "drain" in here.did(name)} == {"n0", "n1", "n2"}, report
    assert max(most) == 1
    assert all(map(here.serves, here.fleet.nodes))
