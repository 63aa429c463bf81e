"""Parse what kubectl prints, on both of its streams."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import pytest

from reconciler.drivers.kube import failures, objects
from reconciler.drivers.kube.failures import KubeFailure
from reconciler.model.errors import Failure

# Recorded from kubectl 1.20.2 and 1.33.1 with -v=4: they word the log line differently.
STATUS = """{
  "metadata": {},
  "status": "Failure",
  "message": "Cannot evict pod as it would violate the pod's disruption budget.",
  "reason": "TooManyRequests",
  "details": {
    "causes": [
      {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently"
      }
    ],
    "retryAfterSeconds": 10
  },
  "code": 429
}"""
SAID = "Error from server (TooManyRequests): Cannot evict pod as it would violate the pod's disruption budget.\n"
NOISE = 'I1121 08:48:42.204212    8321 envvar.go:172] "Feature gate default state" feature="CBOR" enabled=false\n'


@pytest.mark.parametrize(
    "wording", ["helpers.go:216] server response object: [", "helpers.go:246] server response object: %s["]
)
def test_the_servers_status_is_found_in_the_log(wording: str) -> None:
    problem = failures.from_stderr(
        f"{NOISE}I1121 08:48:41.66    8272 helpers.go:216] {wording}{STATUS}]\n{SAID}"
    ).problem
    assert problem.kind is Failure.BUSY
    assert problem.detail == SAID.strip()
    assert problem.causes == ("The disruption budget web needs 2 healthy pods and has 2 currently",)
    assert problem.of_write().retry_after == 10


@pytest.mark.parametrize(
    ("stderr", "read", "write"),
    [
        ("Unable to connect to the server: dial tcp: lookup api.x: no such host", "unreachable", "unreachable"),
        ("Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout", "timeout", "timeout"),
        ("Unable to connect to the server: net/http: TLS handshake timeout", "timeout", "timeout"),
        ("Unable to connect to the server: EOF", "unreachable", "ambiguous"),
        ("Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
         "timeout", "ambiguous"),
        ("error: client rate limiter Wait returned an error: context deadline exceeded - error from a previous "
         "attempt: EOF", "timeout", "ambiguous"),
        ("The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?",
         "unreachable", "unreachable"),
        ("Unable to connect to the server: x509: certificate signed by unknown authority", "auth", "auth"),
        ("Unable to connect to the server: tls: failed to verify certificate: x509: it has expired", "auth", "auth"),
        ("error: You must be logged in to the server (Unauthorized)", "auth", "auth"),
        ("Unable to connect to the server: getting credentials: exec: executable aws not found", "auth", "auth"),
        ('error: context "x" does not exist', "auth", "auth"),
        ("error: stat /nowhere/kubeconfig: no such file or directory", "auth", "auth"),
        ("error: serializer for text/html; charset=utf-8 doesn't exist", "malformed", "ambiguous"),
        ("error: unknown flag: --raw", "unsupported", "unsupported"),
        ('The Node "a" is invalid: metadata.labels: Invalid value', "rejected", "rejected"),
        ("", "rejected", "rejected"),
    ],
)  # fmt: skip
def test_kubectls_own_words(stderr: str, read: str, write: str) -> None:
    problem = failures.from_stderr(NOISE + stderr).problem
    assert (problem.of_read().kind.value, problem.of_write().kind.value) == (read, write)
    assert problem.detail == (stderr or "kubectl failed without a message")


def test_a_long_message_is_cut() -> None:
    assert len(failures.from_stderr("x" * 5000).problem.detail) == 300


NODE: dict[str, Any] = {"kind": "Node", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}}


def node(**parts: Any) -> dict[str, Any]:
    return NODE | parts


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "Node"},
        {"kind": "Node", "metadata": {"name": "a", "uid": "u"}},
        {"kind": "Node", "metadata": "a"},
        node(spec=[]),
        node(spec={"taints": {"key": "x"}}),
        node(status={"conditions": ["Ready"]}),
        node(metadata=NODE["metadata"] | {"labels": {"a": 1}}),
    ],
)
def test_an_object_of_another_shape_is_malformed(item: dict[str, Any]) -> None:
    with pytest.raises(KubeFailure) as caught:
        objects.member(item)
    assert caught.value.problem.kind is Failure.MALFORMED


@pytest.mark.parametrize("text", [b"", b"[]", b"<html>", b"\xff\xfe", b'{"kind":"Status"}', b'"Node"', b"null"])
def test_another_document_is_malformed(text: bytes) -> None:
    with pytest.raises(KubeFailure):
        objects.document(text, "Node")


def test_a_node_that_says_little_is_known_as_little() -> None:
    member = objects.member(NODE)
    assert (member.ready, member.unschedulable, member.taints, member.pods) == (None, False, (), ())
    assert not member.control_plane


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_silent_kubelet_is_not_ready(status: str, ready: bool) -> None:
    member = objects.member(node(status={"conditions": [{"type": "Ready", "status": status}]}))
    assert member.ready is ready
    assert member.conditions == {"Ready": status}


def test_conditions_of_kubelet_come_with_their_reasons_where_they_are_bad() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"},
        {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure"},
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
    ]
    member = objects.member(node(status={"conditions": conditions}))
    assert member.reasons == {
        "Ready": "KubeletNotReady: container runtime is down",
        "DiskPressure": "KubeletHasDiskPressure",
    }


def test_conditions_of_detectors_come_with_their_reasons() -> None:
    found = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
        {"type": "GpuUnhealthy", "status": "True", "reason": "Xid", "message": "GPU 3 " + "x" * 1000},
        {"type": "example.com/Fan", "status": "False"},
    ]
    member = objects.member(node(status={"conditions": found}))
    assert member.conditions == {"Ready": "True", "GpuUnhealthy": "True", "example.com/Fan": "False"}
    assert member.reasons.keys() == {"GpuUnhealthy", "example.com/Fan"}
    assert member.reasons["GpuUnhealthy"].startswith("Xid: GPU 3 xx")
    assert len(member.reasons["GpuUnhealthy"]) == 300
    assert member.reasons["example.com/Fan"] == ""


@pytest.mark.parametrize("role", ["control-plane", "master"])
def test_control_planes_are_known_by_their_role(role: str) -> None:
    labels = {f"node-role.kubernetes.io/{role}": ""}
    assert objects.member(node(metadata=NODE["metadata"] | {"labels": labels})).control_plane


@pytest.mark.parametrize(
    ("metadata", "phase", "owner", "evictable"),
    [
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "Running", "Node", False),
        ({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}, "Running", "DaemonSet", False),
        ({"ownerReferences": [{"kind": "DaemonSet"}, {"kind": "Job", "controller": True}]}, "Running", "Job", True),
        ({"ownerReferences": [{"kind": "Workflow"}]}, "Pending", "", True),
        ({}, "Succeeded", "", False),
        ({}, "Failed", "", False),
    ],
)
def test_pods_that_a_drain_evicts(metadata: dict[str, Any], phase: str, owner: str, evictable: bool) -> None:
    names = {"namespace": "default", "name": "p", "uid": "u"}
    found = objects.pod({"metadata": names | metadata, "spec": {"nodeName": "a"}, "status": {"phase": phase}})
    assert found[0] == "a"
    assert (found[1].owner_kind, found[1].evictable) == (owner, evictable)


DELETED = {"deletionTimestamp": "2026-11-21T12:00:30Z", "deletionGracePeriodSeconds": 30}
ENDED: dict[str, Any] = {"state": {"terminated": {"exitCode": 0}}}
RUNS: dict[str, Any] = {"state": {"running": {}}}


@pytest.mark.parametrize(
    ("metadata", "containers", "evictable"),
    [
        ({}, [ENDED], True),  # between two starts
        (DELETED, [RUNS, ENDED], True),
        (DELETED, [], True),
        (DELETED, [ENDED, ENDED], False),  # a kubelet before 1.27 leaves the phase as it was
    ],
)
def test_a_deleted_pod_is_work_until_its_containers_have_ended(
    metadata: dict[str, Any], containers: list[Any], evictable: bool
) -> None:
    names = {"namespace": "x", "name": "p", "uid": "1"}
    status = {"phase": "Running", "containerStatuses": containers}
    assert objects.pod({"metadata": names | metadata, "status": status})[1].evictable is evictable


def test_what_keeps_a_pod_and_what_it_loses() -> None:
    names = {"namespace": "x", "name": "p", "uid": "1", "finalizers": ["example.com/checkpoint"]}
    volumes = [{"name": "token", "projected": {}}, {"name": "scratch", "emptyDir": {}}]
    _, found = objects.pod({"metadata": names | DELETED, "spec": {"volumes": volumes}, "status": {}})
    assert found.local_storage
    assert found.finalizers == ("example.com/checkpoint",)
    assert str(found.terminating_since) == "2026-11-21 12:00:00+00:00"
    assert str(found.ends_at) == "2026-11-21 12:00:30+00:00"
    _, plain = objects.pod({"metadata": names, "spec": {"volumes": volumes[:1]}, "status": {}})
    assert (plain.local_storage, plain.terminating_since, plain.ends_at) == (False, None, None)


@pytest.mark.parametrize(
    ("spec", "phase", "on_gpus"),
    [
        ({"containers": [{"resources": {"limits": {"cpu": "4"}}}, {"name": "plain"}]}, "Running", False),
        ({"containers": [{}, {"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, "Running", True),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]}, "Running", True),
        ({"containers": [{"resources": {"limits": {"amd.com/gpu": "1"}}}]}, "Pending", True),
        ({"containers": [{"resources": {"limits": {"rdma/hca": "1"}}}]}, "Running", False),
        ({"containers": [{}], "resourceClaims": [{"name": "gpus"}]}, "Running", True),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}, "Succeeded", False),  # of the validator
        ({}, "Running", False),
    ],
)
def test_pods_that_are_on_gpus_whoever_owns_them(spec: dict[str, Any], phase: str, on_gpus: bool) -> None:
    names = {"namespace": "x", "name": "p", "uid": "1"}
    _, found = objects.pod({"metadata": names, "spec": spec, "status": {"phase": phase}})
    assert found.on_gpus is on_gpus


@pytest.mark.parametrize(
    "metadata",
    [
        {"deletionTimestamp": "soon"},
        {"deletionTimestamp": "2026-11-21T12:00:30"},
        {"deletionTimestamp": 7},
        {"finalizers": "x"},
        {"finalizers": [7]},
    ],
)
def test_a_pod_of_another_shape_is_malformed(metadata: dict[str, Any]) -> None:
    names = {"namespace": "x", "name": "p", "uid": "1"}
    with pytest.raises(KubeFailure):
        objects.pod({"metadata": names | metadata})


@pytest.mark.parametrize("text", [b'{"kind":"PodList","items":[]}', b"garbage"])
@pytest.mark.parametrize("collecting", [True, False])
def test_the_cycle_collector_is_left_as_it_was(text: bytes, collecting: bool) -> None:
    (gc.enable if collecting else gc.disable)()
    try:
        with suppress(KubeFailure):
            objects.page(text, "PodList", objects.pod)
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


@pytest.mark.parametrize("items", ["null", '{"a":1}', '["a"]', "7"])
def test_a_list_without_items_is_malformed(items: str) -> None:
    with pytest.raises(KubeFailure):
        objects.page(f'{{"kind":"PodList","items":{items}}}'.encode(), "PodList", objects.pod)


@pytest.mark.parametrize(
    "stderr",
    [
        'error: failed to parse Location header "https://h:1/a"SECRET": parse "https://h:1/a"SECRET": invalid',
        'Unable to connect to the server: Get "https://h:1/a\\"SECRET?x=1": dial tcp 127.0.0.1:1: connect: refused',
    ],
)
def test_where_a_server_redirects_to_is_not_told(stderr: str) -> None:
    assert "SECRET" not in failures.from_stderr(stderr).problem.detail


def test_resources_of_device_plugins_are_counted() -> None:
    """As of a node of a DGX with NVIDIA's operators: 1k is how a server writes 1000 shared RDMA devices."""
    allocatable = {
        "cpu": "223500m", "ephemeral-storage": "1632375898Ki", "hugepages-2Mi": "0", "memory": "2113398920Ki",
        "nvidia.com/gpu": "8", "pods": "110", "rdma/rdma_shared_device_a": "1k", "nvidia.com/resibp24s0": "16",
        "attachable-volumes.kubernetes.io/x": "5", "example.com/half": "500m", "example.com/many": "2M",
    }  # fmt: skip
    assert objects.member(node(status={"allocatable": allocatable})).allocatable == {
        "nvidia.com/gpu": 8, "rdma/rdma_shared_device_a": 1000, "nvidia.com/resibp24s0": 16,
        "example.com/many": 2000000,
    }  # fmt: skip
    assert objects.member(node()).allocatable == {}


@pytest.mark.parametrize(
    ("owner", "status", "more", "expected"),
    [
        ("nvidia-operator-validator", "True", {}, ("nvidia-operator-validator", True)),
        ("nvidia-operator-validator", "False", {}, ("nvidia-operator-validator", False)),
        ("nvidia-operator-validator", "True", {"deletionTimestamp": "2026-11-27T08:00:00Z"},
         ("nvidia-operator-validator", False)),
        ("nvidia-device-plugin-daemonset", None, {}, ("nvidia-device-plugin-daemonset", False)),
        ("node-exporter", "True", {}, ("", False)),
    ],
)  # fmt: skip
def test_pods_of_nvidias_operator_say_whether_they_are_ready(
    owner: str, status: str | None, more: dict[str, str], expected: tuple[str, bool]
) -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "controller": True}]
    conditions = [{"type": "PodScheduled", "status": "True"}]
    conditions += [] if status is None else [{"type": "Ready", "status": status}]
    item = {
        "metadata": {"name": "x", "namespace": "gpu-operator", "uid": "u", "ownerReferences": owners} | more,
        "spec": {"nodeName": "a"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    _, pod = objects.pod(item)
    assert (pod.operand, pod.ready) == expected
