"""The lab's Kubernetes API, used by the real kubectl."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconciler.lab.fleet import add_default_pods
from reconciler.lab.hardware.control_plane import DisruptionBudget
from tests.drivers.kube.bench import Bench, Pki, make_pki, running

pytestmark = [pytest.mark.wire, pytest.mark.tool]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def lab(pki: Pki, tmp_path: Path) -> Iterator[Bench]:
    """Three nodes, each with the default pods of a GPU node."""
    with running(pki, tmp_path) as bench:
        for name in bench.truth.machines:
            bench.on_loop(lambda name=name: add_default_pods(bench.truth, name, gpus=0, busy=True))  # type: ignore[misc]
        yield bench


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def node(lab: Bench, name: str = "gpu-001") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.ok("get", "node", name, "-o", "json"))
    return found


def refused(lab: Bench, *arguments: str, stdin: str = "") -> str:
    done = lab.kubectl(*arguments, stdin=stdin)
    assert done.returncode != 0, done.stdout
    return done.stderr


# --- reading ----------------------------------------------------------------------------------------------------------


def test_version(lab: Bench) -> None:
    assert json.loads(lab.ok("version", "-o", "json"))["serverVersion"]["gitVersion"] == "v1.31.4"


@pytest.mark.parametrize("version", ["v1.20.2", "v1.28.0", "v1.33.0"])
def test_api_resources_in_every_form_of_discovery(pki: Pki, tmp_path: Path, version: str) -> None:
    with running(pki, tmp_path, version=version) as lab:
        found = rows(lab.ok("api-resources", "--no-headers"))
        policy = {row[-3] for row in found if row[-1] == "PodDisruptionBudget"}
        assert {"Node", "Pod", "Namespace", "DaemonSet", "Event"} <= {row[-1] for row in found}
        assert policy <= ({"policy/v1beta1"} if version == "v1.20.2" else {"policy/v1"})
        assert "v1" in lab.ok("api-versions").split()


def test_get_prints_the_servers_table(lab: Bench) -> None:
    lab.ok("cordon", "gpu-002")
    found = rows(lab.ok("get", "nodes"))
    assert found[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row[:3] for row in found[1:]] == [
        ["gpu-001", "Ready", "<none>"],
        ["gpu-002", "Ready,SchedulingDisabled", "<none>"],
        ["gpu-003", "Ready", "<none>"],
    ]
    assert "6.8.0-48-generic" in lab.ok("get", "nodes", "-o", "wide")


def test_get_pods_of_a_namespace_and_of_all(lab: Bench) -> None:
    assert {row[0] for row in rows(lab.ok("get", "pods", "-n", "monitoring", "--no-headers"))} == {
        f"node-exporter-{name}" for name in lab.truth.machines
    }
    everything = rows(lab.ok("get", "pods", "-A", "--no-headers"))
    assert len(everything) == 21
    assert ["default", "prepare-gpu-001", "0/1", "Completed"] in [row[:4] for row in everything]


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("--field-selector=spec.nodeName=gpu-001", 7),
        ("--field-selector=spec.nodeName=gpu-001,status.phase!=Succeeded", 6),
        ("--field-selector=metadata.name=router-gpu-002", 1),
        ("--field-selector=status.phase=Succeeded", 3),
        ("--selector=app=trainer", 3),
        ("--selector=app in (trainer, router),app!=router", 3),
        ("--selector=app notin (trainer,router)", 15),
        ("--selector=!app", 6),
        ("--selector=component", 3),
    ],
)
def test_selectors(lab: Bench, selector: str, count: int) -> None:
    assert len(lab.ok("get", "pods", "-A", selector, "-o", "name").split()) == count


def test_an_unknown_field_is_refused(lab: Bench) -> None:
    assert "field label not supported" in refused(lab, "get", "pods", "--field-selector=spec.colour=red")


def test_lists_come_in_pages(lab: Bench) -> None:
    first = json.loads(lab.ok("get", "--raw", "/api/v1/nodes?limit=2"))
    assert [item["metadata"]["name"] for item in first["items"]] == ["gpu-001", "gpu-002"]
    assert first["metadata"]["remainingItemCount"] == 1
    token = first["metadata"]["continue"]
    second = json.loads(lab.ok("get", "--raw", f"/api/v1/nodes?limit=2&continue={token}"))
    assert [item["metadata"]["name"] for item in second["items"]] == ["gpu-003"]
    assert "continue" not in second["metadata"]
    assert lab.ok("get", "nodes", "-o", "name", "--chunk-size=1").split() == [f"node/gpu-00{n}" for n in (1, 2, 3)]
    assert "continue key is not valid" in refused(lab, "get", "--raw", "/api/v1/nodes?limit=2&continue=abc")


def test_a_page_whose_moment_is_forgotten_has_expired(lab: Bench) -> None:
    token = json.loads(lab.ok("get", "--raw", "/api/v1/nodes?limit=2"))["metadata"]["continue"]
    for turn in range(5000):
        lab.truth.update_node("gpu-001", annotations={"turn": str(turn)})
    assert "(Expired)" in refused(lab, "get", "--raw", f"/api/v1/nodes?limit=2&continue={token}")


def test_describe_and_the_rest_that_people_look_at(lab: Bench) -> None:
    told = lab.ok("describe", "node", "gpu-001")
    assert "KubeletReady" in told
    assert "trainer-gpu-001-0" in told
    assert len(rows(lab.ok("get", "namespaces", "--no-headers"))) == 6
    assert ["kube-system", "kube-proxy", "3"] in [
        row[:3] for row in rows(lab.ok("get", "daemonsets", "-A", "--no-headers"))
    ]
    assert lab.ok("auth", "can-i", "patch", "nodes").strip() == "yes"
    assert lab.ok("get", "--raw", "/readyz") == "ok"


def test_budgets_show_what_they_allow(lab: Bench) -> None:
    lab.truth.budgets.append(DisruptionBudget("default", "trainers", {"app": "trainer"}, 2))
    (row,) = rows(lab.ok("get", "pdb", "-n", "default", "--no-headers"))
    assert row[:4] == ["trainers", "2", "N/A", "1"]


def test_a_node_is_as_ready_as_its_kubelet(lab: Bench) -> None:
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].service_set("kubelet", active=False))
    assert ["gpu-001", "NotReady"] in [row[:2] for row in rows(lab.ok("get", "nodes"))]
    conditions = {each["type"]: each for each in node(lab)["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "Unknown"
    assert conditions["Ready"]["lastTransitionTime"] == "2026-11-01T00:16:40Z"


def test_what_a_detector_found_is_shown(lab: Bench) -> None:
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].inject("node_condition"))
    told = lab.ok("describe", "node", "gpu-001")
    assert "GPU 3: the health check failed" in told
    conditions = {each["type"]: each for each in node(lab)["status"]["conditions"]}
    assert (conditions["GpuUnhealthy"]["status"], conditions["Ready"]["status"]) == ("True", "True")
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].clear("node_condition"))
    lab.ok("wait", "node/gpu-001", "--for=condition=GpuUnhealthy=False", "--timeout=5s")


def test_what_is_not_there(lab: Bench) -> None:
    assert '(NotFound): nodes "gpu-999" not found' in refused(lab, "get", "node", "gpu-999")
    assert '(NotFound): pods "x" not found' in refused(lab, "get", "pod", "x")
    assert "doesn't have a resource type" in refused(lab, "get", "spaceships")


# --- authorization -----------------------------------------------------------------------------------------------


def test_a_client_certificate_will_do(lab: Bench, pki: Pki) -> None:
    document = json.loads(lab.kubeconfig.read_text())
    document["users"][0]["user"] = {
        "client-certificate": str(pki.client_certificate),
        "client-key": str(pki.client_key),
    }
    lab.kubeconfig.write_text(json.dumps(document))
    assert len(lab.ok("get", "nodes", "-o", "name").split()) == 3


def test_nobody_else_gets_in(lab: Bench, pki: Pki) -> None:
    """A wrong token is refused everywhere, as by a real server; none at all will do for what is public."""
    right = lab.kubeconfig.read_text()
    lab.kubeconfig.write_text(right.replace("t0ken", "other"))
    for path in ("/api/v1/nodes", "/livez", "/version"):
        assert "Unauthorized" in refused(lab, "get", "--raw", path)
    trusted = ssl.create_default_context(cadata=pki.ca_pem)
    assert httpx.get(f"{lab.server}/livez", verify=trusted).text == "ok"


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["strategic", "merge", "json"])
def test_three_kinds_of_patch(lab: Bench, kind: str) -> None:
    patch: Any = {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}, "spec": {"unschedulable": True}}
    if kind == "json":
        patch = [
            {"op": "add", "path": "/metadata/labels/a", "value": "1"},
            {"op": "add", "path": "/metadata/annotations", "value": {"b": "2"}},
            {"op": "add", "path": "/spec/unschedulable", "value": True},
        ]
    lab.ok("patch", "node", "gpu-001", f"--type={kind}", "-p", json.dumps(patch))
    found = node(lab)
    assert found["metadata"]["labels"]["a"] == "1"
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-001"
    assert found["metadata"]["annotations"] == {"b": "2"}
    assert found["spec"]["unschedulable"] is True


@pytest.mark.parametrize("kind", ["strategic", "merge", "json"])
def test_an_old_resource_version_conflicts(lab: Bench, kind: str) -> None:
    patch: Any = {"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}}
    if kind == "json":
        patch = [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]
    told = refused(lab, "patch", "node", "gpu-001", f"--type={kind}", "-p", json.dumps(patch))
    assert "(Conflict)" in told
    assert "the object has been modified" in told
    assert "a" not in node(lab)["metadata"]["labels"]


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}],
        [{"op": "remove", "path": "/spec/taints/0"}],
        [{"op": "add", "path": "/spec/podCIDR", "value": "10.0.0.0/24"}],
        [{"op": "add", "path": "/metadata/labels/a", "value": "not a label value"}],
        [{"op": "add", "path": "/spec/taints", "value": [{"key": "a", "effect": "Never"}]}],
        [{"op": "add", "path": "/spec/taints", "value": [{"key": "a", "effect": "NoSchedule"}] * 2}],
    ],
)
def test_what_can_not_be_patched_is_invalid(lab: Bench, patch: list[Any]) -> None:
    before = node(lab)
    assert "is invalid" in refused(lab, "patch", "node", "gpu-001", "--type=json", "-p", json.dumps(patch))
    assert node(lab) == before


def test_label_annotate_and_taint(lab: Bench) -> None:
    lab.ok("label", "node", "gpu-001", "role=training")
    lab.ok("annotate", "node", "gpu-001", "note=hello")
    lab.ok("taint", "node", "gpu-001", "a=b:NoSchedule", "a=b:NoExecute", "c:NoSchedule")
    lab.ok("taint", "node", "gpu-001", "a=new:NoSchedule", "--overwrite")
    lab.ok("taint", "node", "gpu-001", "c-")
    found = node(lab)
    assert found["metadata"]["labels"]["role"] == "training"
    assert found["metadata"]["annotations"] == {"note": "hello"}
    assert {(t["key"], t.get("value"), t["effect"]) for t in found["spec"]["taints"]} == {
        ("a", "new", "NoSchedule"),
        ("a", "b", "NoExecute"),
    }
    lab.ok("label", "node", "gpu-001", "role-")
    assert "role" not in node(lab)["metadata"]["labels"]


def test_replace_honours_the_version_that_was_read(lab: Bench) -> None:
    first = node(lab)
    lab.ok("label", "node", "gpu-001", "a=1")
    first["spec"]["unschedulable"] = True
    path = "/api/v1/nodes/gpu-001"
    assert "(Conflict)" in refused(lab, "replace", "--raw", path, "-f", "-", stdin=json.dumps(first))
    second = node(lab)
    second["spec"]["unschedulable"] = True
    lab.ok("replace", "--raw", path, "-f", "-", stdin=json.dumps(second))
    assert node(lab)["spec"]["unschedulable"] is True


def test_a_dry_run_changes_nothing(lab: Bench) -> None:
    """Older clients look in the OpenAPI document for support of dry runs, which the lab's does not declare."""
    before = node(lab)
    done = lab.kubectl("label", "node", "gpu-001", "a=1", "--dry-run=server")
    assert done.returncode == 0 or "doesn't support dry-run" in done.stderr, done.stderr
    assert node(lab) == before


def test_deleting_a_node_takes_its_pods(lab: Bench) -> None:
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].service_set("kubelet", active=False))
    lab.ok("delete", "node", "gpu-001")
    assert '"gpu-001" not found' in refused(lab, "get", "node", "gpu-001")
    assert not lab.ok("get", "pods", "-A", "--field-selector=spec.nodeName=gpu-001", "-o", "name")


# --- drain ------------------------------------------------------------------------------------------------------------


class Ticking:
    """Advances the lab's clock, so that pods end."""

    def __init__(self, lab: Bench) -> None:
        self._lab = lab
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self._lab.seconds += 10

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_cordon_drain_and_uncordon(lab: Bench) -> None:
    with Ticking(lab):
        told = lab.ok("drain", "gpu-001", "--ignore-daemonsets", "--force", "--timeout=20s")
    assert "drained" in told or "evicted" in told
    left = lab.ok("get", "pods", "-A", "--field-selector=spec.nodeName=gpu-001", "-o", "name")
    assert sorted(name.split("/")[1].removesuffix("-gpu-001") for name in left.split()) == [
        "haproxy",
        "kube-proxy",
        "node-exporter",
        "nvidia-device-plugin-daemonset",
    ]
    assert node(lab)["spec"]["unschedulable"] is True
    lab.ok("uncordon", "gpu-001")
    assert "unschedulable" not in node(lab)["spec"]
    assert "taints" not in node(lab)["spec"]


def test_drain_names_the_daemon_sets_that_stand_in_its_way(lab: Bench) -> None:
    assert "DaemonSet-managed" in refused(lab, "drain", "gpu-001", "--timeout=2s")


def test_drain_waits_for_a_budget_that_never_yields(lab: Bench) -> None:
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].inject("pdb_never_yields"))
    with Ticking(lab):
        told = refused(lab, "drain", "gpu-001", "--ignore-daemonsets", "--force", "--timeout=2s")
    assert "disruption budget" in told
    assert "trainer-gpu-001-0" in lab.ok("get", "pods", "-o", "name")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_eviction_that_a_budget_forbids_names_it(lab: Bench, version: str) -> None:
    lab.truth.budgets.append(DisruptionBudget("default", "trainers", {"app": "trainer"}, 3))
    body = {"kind": "Eviction", "apiVersion": f"policy/{version}", "metadata": {"name": "trainer-gpu-001-0"}}
    path = "/api/v1/namespaces/default/pods/trainer-gpu-001-0/eviction"
    told = refused(lab, "create", "--raw", path, "-f", "-", "-v=4", stdin=json.dumps(body))
    assert "TooManyRequests" in told
    assert "The disruption budget trainers needs 3 healthy pods and has 3 currently" in told


def test_an_old_server_takes_the_old_eviction_alone(pki: Pki, tmp_path: Path) -> None:
    with running(pki, tmp_path, version="v1.20.2") as lab:
        lab.on_loop(lambda: lab.truth.add_pod("default", "victim", "gpu-001", ("", "")))
        path = "/api/v1/namespaces/default/pods/victim/eviction"
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "victim"}}
        assert "(BadRequest)" in refused(lab, "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        lab.ok("create", "--raw", path, "-f", "-", stdin=json.dumps(body | {"apiVersion": "policy/v1beta1"}))


def test_delete_pod_now_or_gracefully(lab: Bench) -> None:
    with Ticking(lab):
        lab.ok("delete", "pod", "router-gpu-001", "--timeout=20s")
    lab.ok("delete", "pod", "trainer-gpu-001-0", "--grace-period=0", "--force")
    names = lab.ok("get", "pods", "-o", "name")
    assert "pod/router-gpu-001" not in names
    assert "pod/trainer-gpu-001-0" not in names
    lab.ok("delete", "pod", "trainer-gpu-002-0", "--wait=false")
    assert ["trainer-gpu-002-0", "1/1", "Terminating"] in [row[:3] for row in rows(lab.ok("get", "pods"))]


# --- watch ------------------------------------------------------------------------------------------------------------


def watched(lab: Bench, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [lab.program, f"--kubeconfig={lab.kubeconfig}", *arguments], stdout=subprocess.PIPE, text=True
    )


def test_watch_shows_each_change(lab: Bench) -> None:
    child = watched(lab, "get", "nodes", "--watch", "--no-headers")
    try:
        assert child.stdout is not None
        first = [child.stdout.readline().split()[:2] for _ in range(3)]
        assert first == [[f"gpu-00{n}", "Ready"] for n in (1, 2, 3)]
        lab.ok("cordon", "gpu-002")
        assert child.stdout.readline().split()[:2] == ["gpu-002", "Ready,SchedulingDisabled"]
        lab.on_loop(lambda: lab.truth.machines["gpu-003"].service_set("kubelet", active=False))
        while (line := child.stdout.readline().split()[:2])[0] == "gpu-002":
            pass  # the taint that follows a cordon
        assert line == ["gpu-003", "NotReady"]
    finally:
        child.kill()
        child.communicate()


def test_wait_sees_a_condition_come_true(lab: Bench) -> None:
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].service_set("kubelet", active=False))
    assert "NotReady" in lab.ok("get", "node", "gpu-001")
    child = watched(lab, "wait", "--for=condition=Ready", "node/gpu-001", "--timeout=20s")
    time.sleep(0.5)
    assert child.poll() is None, "it waits"
    lab.on_loop(lambda: lab.truth.machines["gpu-001"].service_set("kubelet", active=True))
    with Ticking(lab):
        out, _ = child.communicate(timeout=25)
    assert "condition met" in out


def events_of(lab: Bench, query: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lab.ok("get", "--raw", query).splitlines()]


def test_a_raw_watch_ends_when_asked_to(lab: Bench) -> None:
    events = events_of(lab, "/api/v1/nodes?watch=1&timeoutSeconds=1")
    assert [event["type"] for event in events] == ["ADDED"] * 3


def test_a_watch_from_a_version_begins_after_it(lab: Bench) -> None:
    version = json.loads(lab.ok("get", "--raw", "/api/v1/pods"))["metadata"]["resourceVersion"]
    lab.ok("label", "node", "gpu-001", "a=1")
    lab.ok("delete", "pod", "router-gpu-001", "--grace-period=0", "--force")
    nodes = events_of(lab, f"/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}")
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in nodes] == [("MODIFIED", "gpu-001")]
    selector = "fieldSelector=spec.nodeName%3Dgpu-001"
    pods = events_of(lab, f"/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion={version}&{selector}")
    assert ("DELETED", "router-gpu-001") in [(event["type"], event["object"]["metadata"]["name"]) for event in pods]


def test_a_watch_from_too_long_ago_is_gone(lab: Bench) -> None:
    for turn in range(5000):
        lab.truth.update_node("gpu-001", annotations={"turn": str(turn)})
    (event,) = events_of(lab, "/api/v1/nodes?watch=1&timeoutSeconds=5&resourceVersion=1")
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_initial_events_end_with_a_bookmark(lab: Bench) -> None:
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    *added, mark = events_of(lab, f"/api/v1/nodes?watch=1&{query}")
    assert [event["type"] for event in added] == ["ADDED"] * 3
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


# --- Deployments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"paused": True}}, "this server keeps only replicas"),
        ({"metadata": {"annotations": {"other": "x"}}}, "this server keeps only replicas"),
        ({"spec": {"replicas": -1}}, "spec.replicas: Invalid value: -1"),
        ({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 3}}, "the object has been modified"),
    ],
)
def test_a_deployment_is_scaled_and_nothing_else_is_lost(lab: Bench, change: dict[str, Any], why: str) -> None:
    made = lab.on_loop(lambda: lab.truth.add_replicated("Deployment", "ml", "llama", 2))
    lab.ok("patch", "deployment", "-n", "ml", "llama", "--type=merge", "-p", '{"spec": {"replicas": 3}}')
    told = lab.kubectl("patch", "deployment", "-n", "ml", "llama", "--type=merge", "-p", json.dumps(change))
    assert told.returncode != 0
    assert why in told.stderr
    assert lab.ok("get", "deployments,replicasets", "-n", "ml", "--no-headers").split()[1] == "3/3"
    assert (made.replicas, made.note) == (3, None)
