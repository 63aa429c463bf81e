"""`reconciler conformance kubernetes`: on the lab's API server and on a real one; and what servers that err fail."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.lab.wire.kube_writes import Writes
from tests.cli.shell import Done, reconciler
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.worlds import LabWorld, World, granted, node_of, role

pytestmark = pytest.mark.wire
LABELS = {"app": "conformance"}


def conformance(world: World, *words: str) -> Done:
    config = world.bench.kubeconfig if isinstance(world, LabWorld) else world._kubeconfig  # type: ignore[attr-defined]
    return reconciler("conformance", "kubernetes", "--kubeconfig", config, "--output", "json", *words)


def results(done: Done) -> dict[str, str]:
    return {one["name"]: one["result"] for one in done.json["checks"]}


def details(done: Done) -> dict[str, str]:
    return {one["name"]: one["detail"] for one in done.json["checks"]}


def test_an_api_server_passes_and_nothing_changes(world: World) -> None:
    before = node_of(world)
    done = conformance(world)
    assert done.code == 0, done.out + done.err
    read = ("answers", "rights", "eviction-api", "field-selectors", "not-there", "watch")
    assert {results(done)[name] for name in read} == {"pass"}, done.out
    assert {result for name, result in results(done).items() if name.startswith("write")} == {"not tried"}
    assert done.json["about"]["server"].startswith("Kubernetes v1.")
    assert node_of(world) == before


def test_what_writes_is_put_back_and_a_pod_stays_that_its_budget_protects(world: World) -> None:
    for known in world.kubectl("get", "pods", "-A", "-o", "name").split():
        if isinstance(world, LabWorld):
            world.remove_pod(known.rpartition("/")[2])
    before, subject = node_of(world), f"{world.node} and default/kept"
    refused = conformance(world, "--allow-writes", "--node", world.node)
    assert (refused.code, f"--confirm 'write to {world.node}'" in refused.err) == (64, True), refused.err
    done = conformance(world, "--allow-writes", "--node", world.node, "--confirm", f"write to {world.node}")
    assert done.code == 0, done.out + done.err
    assert (results(done)["write-mark"], results(done)["write-watch"]) == ("pass", "pass"), done.out
    assert results(done)["write-eviction"] == "not offered"
    pod = world.add_pod("kept", owner="ReplicaSet", labels=LABELS)
    world.add_budget("kept", LABELS, 1)
    done = conformance(
        world, "--allow-writes", "--node", world.node, "--pod", "default/kept", "--confirm", f"write to {subject}"
    )
    assert (done.code, results(done)["write-eviction"]) == (0, "pass"), done.out + done.err
    assert "runs kept: name a node that nobody uses" in details(done)["write-mark"]
    shown = "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}"
    assert world.kubectl("get", "pod", "kept", "-o", shown).split() == [pod.uid]
    assert node_of(world) == before


@pytest.fixture
def lab(bench: Bench) -> LabWorld:
    return LabWorld(bench)


def test_rights_that_lack_are_named_and_those_of_a_feature_are_no_error(lab: LabWorld) -> None:
    lab.bench.front.rights = granted(role()) - {("create", "pods/eviction")}
    done = conformance(lab)
    assert (done.code, results(done)["rights"], results(done)["surge-rights"]) == (7, "fail", "not offered")
    assert "may not create pods/eviction (draining): grant deploy/kubernetes/rbac.yaml" in details(done)["rights"]


def test_a_server_that_errs_fails_and_the_node_is_put_back(lab: LabWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that compares no resourceVersions, and asks no budgets: here there is none."""
    lab.add_pod("pod-1", owner="ReplicaSet", labels=LABELS)
    right = Writes.replace_node

    def last_wins(self: Any, name: str, wanted: Any, *, dry: bool) -> Any:
        wanted["metadata"].pop("resourceVersion", None)
        return right(self, name, wanted, dry=dry)

    monkeypatch.setattr(Writes, "replace_node", last_wins)
    write = ("--allow-writes", "--node", "gpu-002", "--pod", "default/pod-1")
    done = conformance(lab, *write, "--confirm", "write to gpu-002 and default/pod-1")
    assert done.code == 7, done.out + done.err
    assert "two writers undo each other" in details(done)["write-mark"]
    assert "was evicted" in details(done)["write-eviction"]
    assert lab.kubectl("get", "node", "gpu-002", "-o", "jsonpath={.spec.unschedulable}{.spec.taints}") == ""


def test_a_mark_that_a_server_kept_is_named_and_the_next_run_takes_it_off(
    lab: LabWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that refuses the write that takes the mark off."""
    right = Writes.replace_node

    def keeps(self: Any, name: str, wanted: Any, *, dry: bool) -> Any:
        if not wanted["spec"].get("unschedulable"):
            raise ConnectionError("away")
        return right(self, name, wanted, dry=dry)

    write = ("--allow-writes", "--node", "gpu-002", "--confirm", "write to gpu-002")
    with monkeypatch.context() as broken:
        broken.setattr(Writes, "replace_node", keeps)
        done = conformance(lab, *write)
    assert done.code == 7, done.out + done.err
    assert "kubectl annotate node gpu-002 reconciler.dev/owner-" in details(done)["write-mark"]
    assert lab.kubectl("get", "node", "gpu-002", "-o", "jsonpath={.spec.unschedulable}") == "true"
    done = conformance(lab, *write)
    assert (done.code, results(done)["write-mark"]) == (0, "pass"), done.out + done.err
    assert lab.kubectl("get", "node", "gpu-002", "-o", "jsonpath={.spec.unschedulable}{.spec.taints}") == ""


def test_a_server_that_is_away_is_asked_once(lab: LabWorld) -> None:
    lab.bench.kubeconfig.write_text(lab.bench.kubeconfig.read_text().replace(lab.bench.server, "https://127.0.0.1:9"))
    done = conformance(lab)
    assert (done.code, set(results(done).values())) == (4, {"not tried"}), done.out
