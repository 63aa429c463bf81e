"""What sets how much runs, read and written as the real definitions of these objects have it."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import ValidationError

from reconciler.drivers.kube.adjustments import KubeAdjustments
from reconciler.model.adjustments import (
    GONE,
    QUEUE,
    RECORD,
    Adjusted,
    AdjustedRef,
    AdjustmentRecord,
    adjusted,
    parse_ref,
    read_record,
    taken_back,
    write_record,
)
from reconciler.model.errors import DriverError, Failure
from reconciler.model.pods import Pod
from tests.drivers.kube.crd_server import Objects
from tests.drivers.kube.test_cluster import run

POD = "/api/v1/namespaces/ml/pods/llama-0"
SETS = "/apis/apps/v1/namespaces/ml/replicasets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ml/deployments"
SCALERS = "/apis/autoscaling/v1/namespaces/ml/horizontalpodautoscalers"
LWS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/leaderworkersets"
SERVICES = "/apis/serving.kserve.io/v1beta1/namespaces/ml/inferenceservices"
QUEUES = "/apis/kueue.x-k8s.io/{}/clusterqueues"
RUNS = Pod("ml", "llama-0", POD, "Running", "ReplicaSet", evictable=True)


def owned(kind: str, name: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


def cluster(**labels: str) -> Objects:
    """A pod of the ReplicaSet of a Deployment, of which two of three are ready."""
    objects = Objects("leaderworkersets", "inferenceservices", "clusterqueues")
    objects.add(POD, "Pod", spec={}, metadata={"labels": labels, **owned("ReplicaSet", "llama-7c")})
    objects.add(f"{SETS}/llama-7c", "ReplicaSet", spec={}, metadata=owned("Deployment", "llama"))
    objects.add(f"{DEPLOYMENTS}/llama", "Deployment", spec={"replicas": 3}, status={"readyReplicas": 2})
    return objects


def port(objects: Objects) -> KubeAdjustments:
    return KubeAdjustments(objects.read, objects.merge)


def found(objects: Objects) -> Adjusted:
    """What sets the number of the pod, as read."""
    ref = run(port(objects).scaled_by(RUNS))
    assert ref is not None
    read = run(port(objects).read(ref))
    assert read is not None
    return read


def test_a_deployment_is_found_by_its_replica_set() -> None:
    read = found(cluster())
    assert read.ref == AdjustedRef("Deployment", "ml", "llama")
    assert (read.value, read.wanted, read.ready, read.most, read.keeper) == (3, 3, 2, None, "")


def test_another_pod_of_that_name_is_not_it() -> None:
    objects = cluster()
    objects[POD]["metadata"]["uid"] = "another"
    assert run(port(objects).scaled_by(RUNS)) == GONE
    del objects[POD]
    assert run(port(objects).scaled_by(RUNS)) == GONE


@pytest.mark.parametrize("owner", [("Job", "train"), ("", ""), ("Node", "gpu-001")])
def test_what_has_no_number_is_not_raised(owner: tuple[str, str]) -> None:
    objects = cluster()
    objects[POD]["metadata"] |= owned(*owner) if owner[0] else {"ownerReferences": []}
    assert run(port(objects).scaled_by(RUNS)) is None


def scaler(objects: Objects, **spec: Any) -> None:
    target = {"kind": "Deployment", "name": "llama", "apiVersion": "apps/v1"}
    objects.add(f"{SCALERS}/by-load", "HorizontalPodAutoscaler", spec={"scaleTargetRef": target, **spec})
    objects[SCALERS] = {"items": [objects[f"{SCALERS}/by-load"]]}


def test_an_autoscaler_stands_for_what_it_scales() -> None:
    objects = cluster()
    scaler(objects, minReplicas=2, maxReplicas=8)
    read = found(objects)
    assert read.ref == AdjustedRef("HorizontalPodAutoscaler", "ml", "by-load")
    assert (read.value, read.wanted, read.ready, read.most) == (2, 3, 2, 8)
    wish = adjusted(read, "gpu-001", "l", 1)
    assert wish.now == 4, "one more than run, whatever its minimum is"
    run(port(objects).write(read, wish.now, wish))
    lowered = found_again(objects, read.ref)
    run(port(objects).write(lowered, *taken_back(lowered, "gpu-001")))
    assert objects[f"{SCALERS}/by-load"]["spec"]["minReplicas"] == 2


def found_again(objects: Objects, ref: AdjustedRef) -> Adjusted:
    read = run(port(objects).read(ref))
    assert read is not None
    return read


def test_a_minimum_that_was_not_said_is_taken_out_again() -> None:
    objects = cluster()
    scaler(objects, maxReplicas=8)
    read = found(objects)
    wish = adjusted(read, "gpu-001", "l", 1)
    run(port(objects).write(read, wish.now, wish))
    assert objects[f"{SCALERS}/by-load"]["spec"]["minReplicas"] == 4
    lowered = found_again(objects, read.ref)
    run(port(objects).write(lowered, *taken_back(lowered, "gpu-001")))
    assert "minReplicas" not in objects[f"{SCALERS}/by-load"]["spec"]
    assert RECORD not in objects[f"{SCALERS}/by-load"]["metadata"]["annotations"]


def test_what_another_controller_owns_is_told() -> None:
    objects = cluster()
    objects[f"{DEPLOYMENTS}/llama"]["metadata"] |= owned("DynamoGraphDeployment", "llama")
    assert found(objects).keeper == "DynamoGraphDeployment llama"


@pytest.mark.parametrize(
    ("manager", "fields", "keeper"),
    [
        ("kustomize-controller", {"f:spec": {"f:replicas": {}}}, "Flux (kustomize-controller)"),
        ("argocd-controller", {"f:spec": {"f:replicas": {}}}, "Argo CD (argocd-controller)"),
        ("argocd-controller", {"f:spec": {"f:template": {}}}, ""),  # git does not say how many
        ("kubectl-client-side-apply", {"f:spec": {"f:replicas": {}}}, ""),  # a person did, once
    ],
)
def test_who_keeps_the_number_as_git_has_it_is_told(manager: str, fields: dict[str, Any], keeper: str) -> None:
    objects = cluster()
    objects[f"{DEPLOYMENTS}/llama"]["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Apply", "fieldsV1": fields},
        {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]
    assert found(objects).keeper == keeper


def test_groups_of_a_leader_worker_set_are_raised_as_its_definition_has_it() -> None:
    objects = cluster(**{"leaderworkerset.sigs.k8s.io/name": "llama", "leaderworkerset.sigs.k8s.io/group-index": "1"})
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 4}}
    objects.add(f"{LWS}/llama", "LeaderWorkerSet", spec=spec, status={"readyReplicas": 2, "replicas": 2})
    read = found(objects)
    assert (read.ref.kind, read.value, read.ready) == ("LeaderWorkerSet", 2, 2)
    assert read.ref.until_admitted
    wish = adjusted(read, "gpu-001", "l", 1)
    run(port(objects).write(read, wish.now, wish))
    assert objects.patches[-1][:2] == ("leaderworkersets.v1.leaderworkerset.x-k8s.io/llama", "ml")
    assert objects[f"{LWS}/llama"]["spec"]["replicas"] == 3


def service(objects: Objects, mode: str = "Standard", more: dict[str, Any] | None = None, **predictor: Any) -> None:
    """`more`: annotations of it, which KServe copies to its Deployment, and more of its spec."""
    status, rest = {"deploymentMode": mode}, dict(more or {})
    annotations = {"annotations": rest.pop("annotations", {})}
    spec = {"predictor": predictor, **rest}
    objects.add(f"{SERVICES}/llama", "InferenceService", spec=spec, status=status, metadata=annotations)
    metadata = owned("InferenceService", "llama") | annotations
    name = "-".join(filter(None, ("llama", predictor.get("name"), "predictor")))
    replicas = {"replicas": 2}
    objects.add(f"{DEPLOYMENTS}/{name}", "Deployment", spec=replicas, metadata=metadata, status={"readyReplicas": 2})


OF_SERVICE = {"serving.kserve.io/inferenceservice": "llama", "component": "predictor"}


def test_an_inference_service_is_raised_where_its_minimum_is() -> None:
    objects = cluster(**OF_SERVICE)
    service(objects, minReplicas=1, maxReplicas=0)
    read = found(objects)
    assert read.ref == AdjustedRef("InferenceService", "ml", "llama", "predictor")
    assert (read.value, read.wanted, read.ready, read.most, read.keeper) == (1, 2, 2, None, "")
    wish = adjusted(read, "gpu-001", "l", 1)
    run(port(objects).write(read, wish.now, wish))
    assert objects[f"{SERVICES}/llama"]["spec"]["predictor"]["minReplicas"] == 3
    assert objects.patches[-1][0] == "inferenceservices.v1beta1.serving.kserve.io/llama"


def test_a_predictor_with_a_name_of_its_own_is_found() -> None:
    """Canaries are told by it, and the one that was promoted keeps it."""
    objects = cluster(**OF_SERVICE)
    service(objects, name="v2", minReplicas=2)
    read = found(objects)
    assert (read.ref.part, read.wanted, read.ready, read.keeper) == ("predictor", 2, 2, "")


@pytest.mark.parametrize(
    ("more", "predictor"),
    [({"canary": [{"predictor": {"name": "v2"}, "trafficPercent": 10}]}, {}), ({}, {"workerSpec": {}})],
    ids=["canary", "workers"],
)
def test_a_service_whose_minimum_does_not_add_what_serves_is_not_raised(
    more: dict[str, Any], predictor: dict[str, Any]
) -> None:
    objects = cluster(**OF_SERVICE)
    service(objects, more=more, minReplicas=2, **predictor)
    read = found(objects)
    wish = adjusted(read, "gpu-001", "l", 1)
    assert (read.most, wish.now) == (2, 3), "none can be added"


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_service_that_others_scale_is_raised_where_they_do(*, by_hand: bool) -> None:
    """Its own minimum means nothing then, and it leaves the replicas of its Deployment alone."""
    objects = cluster(**OF_SERVICE)
    service(objects, more={"annotations": {"serving.kserve.io/autoscalerClass": "external"}}, minReplicas=1)
    if by_hand:
        scaler(objects, minReplicas=2, maxReplicas=8)
        objects[f"{SCALERS}/by-load"]["spec"]["scaleTargetRef"]["name"] = "llama-predictor"
    read = found(objects)
    assert (read.ref.kind, read.ref.name) == (
        ("HorizontalPodAutoscaler", "by-load") if by_hand else ("Deployment", "llama-predictor")
    )
    assert (read.value, read.wanted, read.ready, read.keeper) == (2, 2, 2, "")


@pytest.mark.parametrize("mode", ["Serverless", "Knative"])
def test_a_service_of_knative_is_left_alone(mode: str) -> None:
    """Each change of its minimum is a new revision, which starts all of its pods anew."""
    objects = cluster(**OF_SERVICE)
    service(objects, mode, minReplicas=1)
    assert "Knative" in found(objects).keeper


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_queue_is_stopped_in_the_version_that_the_cluster_serves(version: str) -> None:
    objects, ref = Objects("clusterqueues"), AdjustedRef(QUEUE, "", "training")
    objects.add(f"{QUEUES.format(version)}/training", QUEUE, spec={"stopPolicy": "None"})
    cluster_port = port(objects)
    read = run(cluster_port.read(ref))
    assert read is not None
    assert (read.value, read.record) == ("None", None)
    wish = adjusted(read, "gpu-001", "l", 1, "HoldAndDrain")
    run(cluster_port.write(read, wish.now, wish))
    assert objects.patches[-1][:2] == (f"clusterqueues.{version}.kueue.x-k8s.io/training", "")
    with pytest.raises(ValidationError, match="'Drain' is not one of"):
        run(cluster_port.write(found_again(objects, ref), "Drain", wish))


def test_what_changed_since_it_was_read_is_not_written() -> None:
    objects = cluster()
    read = found(objects)
    objects[f"{DEPLOYMENTS}/llama"]["metadata"]["resourceVersion"] = "2"
    with pytest.raises(DriverError) as caught:
        run(port(objects).write(read, 4, None))
    assert caught.value.kind is Failure.CONFLICT


def test_records_are_read_as_written_and_others_are_nobodys() -> None:
    record = AdjustmentRecord("l", None, 3, {"gpu-001": 1})
    assert read_record(write_record(record)) == record
    assert read_record(None) is None
    for text in ("", "{}", '{"ledger": 1, "was": 1, "now": 1, "by": {}}', '{"ledger":"l","was":[],"now":1,"by":{}}',
                 '{"ledger":"l","was":1,"now":1,"by":{"a":"b"}}', '{"ledger":"l","was":1,"now":1,"by":5}'):  # fmt: skip
        read = read_record(text)
        assert read is not None
        assert read.ledger == "?", text


@pytest.mark.parametrize("ref", [AdjustedRef(QUEUE, "", "q"), AdjustedRef("Deployment", "ml", "llama"),
                                 AdjustedRef("InferenceService", "ml", "llama", "predictor")])  # fmt: skip
def test_references_are_read_as_written(ref: AdjustedRef) -> None:
    assert parse_ref(ref.key) == ref
    assert parse_ref(ref.key + "/more") is None
