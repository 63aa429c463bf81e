"""Clusters that the driver is tested against, and what others do in them behind its back."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any, Protocol

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.kube import KubectlCluster
from reconciler.lab.hardware.control_plane import DisruptionBudget
from reconciler.model.observed import Pod
from tests.conftest import ROOT
from tests.drivers.kube.bench import NOW, Bench

NAMESPACE = "default"
ROLE = ROOT / "deploy" / "kubernetes" / "rbac.yaml"


class World(Protocol):
    @property
    def node(self) -> str:
        """A node that is there."""

    @property
    def driver(self) -> KubectlCluster: ...

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Somebody else at work. Its stdout; it must succeed."""

    def add_pod(self, name: str, *, owner: str = "", phase: str = "Running", labels: dict[str, str]) -> Pod:
        """Add a pod to the node. `owner`: the kind of its controller."""

    def remove_pod(self, name: str) -> None:
        """Delete it at once."""

    def finalize(self, name: str, finalizer: str) -> None:
        """Set a finalizer, as a controller does that has something to do when the pod goes."""

    def add_budget(self, name: str, labels: dict[str, str], minimum: int) -> None: ...

    def restricted(self, less: tuple[str, str] | None = None) -> KubectlCluster:
        """A driver with the rights of ROLE alone, less one of them (verb, resource)."""


def role() -> list[dict[str, Any]]:
    """The documents of ROLE."""
    return [document for document in YAML(typ="safe").load_all(ROLE.read_text()) if document]


def granted(documents: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """What its ClusterRole grants on Kubernetes' own objects."""
    return {(verb, name) for group, verb, name in granted_anywhere(documents) if not group}


def granted_anywhere(documents: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(group, verb, resource)"""
    (found,) = (document for document in documents if document["kind"] == "ClusterRole")
    return {
        (group, verb, name)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }


def node_of(world: World) -> dict[str, Any]:
    """The node object as the server holds it, less what changes with every write."""
    node: dict[str, Any] = json.loads(world.kubectl("get", "node", world.node, "-o", "json"))
    for field in ("resourceVersion", "managedFields"):
        node["metadata"].pop(field, None)
    return {key: node[key] for key in ("metadata", "spec")}


def names_of_pods(world: World) -> set[str]:
    listed = json.loads(world.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))
    return {item["metadata"]["name"] for item in listed["items"]}


class LabWorld:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.node = "gpu-001"
        self.driver = bench.driver()

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.bench.ok(*arguments, stdin=stdin)

    def add_pod(self, name: str, *, owner: str = "", phase: str = "Running", labels: dict[str, str]) -> Pod:
        truth = self.bench.truth
        pod = self.bench.on_loop(
            lambda: truth.add_pod(
                NAMESPACE, name, self.node, (owner, "owner" if owner else ""), labels=labels, phase=phase
            )
        )
        return Pod(NAMESPACE, name, pod.uid, phase, owner, pod.evictable)

    def remove_pod(self, name: str) -> None:
        self.bench.on_loop(lambda: self.bench.truth.delete_pod(NAMESPACE, name, grace_s=0))

    def finalize(self, name: str, finalizer: str) -> None:
        def work() -> None:
            self.bench.truth.pod(NAMESPACE, name).finalizers = (finalizer,)

        self.bench.on_loop(work)

    def add_budget(self, name: str, labels: dict[str, str], minimum: int) -> None:
        self.bench.truth.budgets.append(DisruptionBudget(NAMESPACE, name, labels, minimum))

    def restricted(self, less: tuple[str, str] | None = None) -> KubectlCluster:
        self.bench.front.rights = granted(role()) - {less}
        return self.bench.driver()


class RealWorld:
    def __init__(self, program: str, kubeconfig: Path, home: Path) -> None:
        self._program = program
        self._kubeconfig = kubeconfig
        self._home = home
        self._created: list[str] = []
        self.driver = KubectlCluster(
            kubeconfig=kubeconfig, context=None, kubectl=program, timeout_s=30, now=lambda: NOW
        )
        items = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        plain = [item for item in items if "node-role.kubernetes.io/control-plane" not in item["metadata"]["labels"]]
        self.node: str = (plain or items)[0]["metadata"]["name"]
        self._before = node_of(self)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        done = self._run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, f"--kubeconfig={self._kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
        )

    def add_pod(self, name: str, *, owner: str = "", phase: str = "Running", labels: dict[str, str]) -> Pod:
        reference = {"apiVersion": "v1", "kind": owner, "name": "owner", "uid": str(uuid.uuid4()), "controller": True}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [reference] if owner else []},
            "spec": {
                "nodeName": self.node,
                "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.9"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        pod = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(document)))
        self._created.append(f"{path}/{name}")
        ready = [{"type": "Ready", "status": "True"}] if phase == "Running" else []
        self._report(f"{path}/{name}", {"phase": phase, "conditions": ready})
        return Pod(NAMESPACE, name, pod["metadata"]["uid"], phase, owner, owner != "DaemonSet")

    def remove_pod(self, name: str) -> None:
        self.kubectl("delete", "pod", "-n", NAMESPACE, name, "--grace-period=0", "--force")

    def finalize(self, name: str, *finalizers: str) -> None:
        patch = json.dumps({"metadata": {"finalizers": list(finalizers)}})
        self.kubectl("patch", "pod", "-n", NAMESPACE, name, "--type=merge", f"--patch={patch}")

    def add_budget(self, name: str, labels: dict[str, str], minimum: int) -> None:
        versions = self.kubectl("api-versions").split()
        version = "policy/v1" if "policy/v1" in versions else "policy/v1beta1"
        path = f"/apis/{version}/namespaces/{NAMESPACE}/poddisruptionbudgets"
        document = {
            "apiVersion": version,
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": labels}},
        }
        made = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(document)))
        self._created.append(f"{path}/{name}")
        counts = {
            "currentHealthy": minimum,
            "desiredHealthy": minimum,
            "expectedPods": minimum,
            "disruptionsAllowed": 0,
        }
        self._report(f"{path}/{name}", counts | {"observedGeneration": made["metadata"]["generation"]})

    def restricted(self, less: tuple[str, str] | None = None) -> KubectlCluster:
        documents = role()
        (found,) = (document for document in documents if document["kind"] == "ClusterRole")
        found["rules"] = [
            {"apiGroups": [""], "resources": [resource], "verbs": [verb]}
            for verb, resource in sorted(granted(documents) - {less})
        ]
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        config = json.loads(self.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        for user in config["users"]:
            user["user"]["as"] = "system:serviceaccount:reconciler:reconciler"
        (self._home / "restricted").write_text(json.dumps(config))
        return KubectlCluster(
            kubeconfig=self._home / "restricted", context=None, kubectl=self._program, timeout_s=30, now=lambda: NOW
        )

    def _report(self, path: str, status: dict[str, Any]) -> None:
        """Write as a kubelet or a controller may at the same time."""
        for _ in range(5):
            thing = json.loads(self.kubectl("get", "--raw", path)) | {"status": status}
            done = self._run("replace", "--raw", f"{path}/status", "-f", "-", stdin=json.dumps(thing))
            if done.returncode == 0:
                return
            assert "Conflict" in done.stderr, done.stderr
        pytest.fail(f"{path} changes all the time")

    def clean(self) -> None:
        options = json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        for path in self._created:
            found = self._run("get", "--raw", path)
            if found.returncode == 0:
                if json.loads(found.stdout)["metadata"].get("finalizers"):
                    self.finalize(path.rpartition("/")[2])
                self.kubectl("delete", "--raw", path, "-f", "-", stdin=options)
        node = json.loads(self.kubectl("get", "node", self.node, "-o", "json"))
        node["spec"] = self._before["spec"]
        for field in ("labels", "annotations"):
            node["metadata"][field] = self._before["metadata"].get(field, {})
        self.kubectl("replace", "--raw", f"/api/v1/nodes/{self.node}", "-f", "-", stdin=json.dumps(node))
