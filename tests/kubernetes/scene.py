"""A namespace and nodes of its own for one test, and the reconciler's actions on them through the real driver."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from reconciler.app.clocks import RealClock
from reconciler.converge.actions.context import FUNCTIONS, ActionContext, carry_out
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.lease import HeldLease
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.kube import KubectlCluster
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.inprocess.fabric import LabFirmwareFiles
from reconciler.model.desired import DrainPolicy
from reconciler.model.outcome import Outcome
from reconciler.model.plan import PlannedAction
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Certainty, Concern, Disruption, DrainProvider
from tests import builders as b
from tests.converge.world import QuickGate
from tests.drivers.kube.bench import kubectl
from tests.kubernetes.control_plane import ControlPlane, Json

T = TypeVar("T")

_NUMBERS = itertools.count(1)
_TTL_S = 3600.0


@dataclass
class Scene:
    """`name`: of the namespace; only pods of this namespace come to its nodes, by their node selector."""

    plane: ControlPlane
    ledger: SqlLedger
    home: Path
    name: str = field(default_factory=lambda: f"scene-{next(_NUMBERS)}")
    nodes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)  # what the latest action told

    def __post_init__(self) -> None:
        self.clock = RealClock()
        self.kubeconfig = self.plane.kubeconfig  # of the account that the reconciler has
        self.driver = self.driver_of(self.kubeconfig)
        self._created: list[str] = []
        self._owned: list[str] = []
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        self.plane.create("/api/v1/namespaces", namespace)

    def driver_of(self, kubeconfig: Path, **more: Any) -> KubectlCluster:
        settings: dict[str, Any] = {"context": None, "kubectl": kubectl(), "timeout_s": 10, "now": self.clock.now}
        return KubectlCluster(kubeconfig=kubeconfig, **(settings | more))

    # --- what is there -------------------------------------------------------------------------------------------

    def add_node(self, name: str = "", **more: Any) -> str:
        name = name or f"{self.name}-n{len(self.nodes)}"
        self.plane.kubelets.register(name, {"scene": self.name}, **more)
        self.nodes.append(name)
        return name

    def add_pod(
        self, name: str, node: str, *, owner: str = "Job", labels: Mapping[str, str] | None = None, grace_s: int = 5,
        **metadata: Any,
    ) -> str:  # fmt: skip
        """Add a pod to a node and return its UID. `owner`: the kind of its controller, "" = bare."""
        owners = []
        if owner:  # of a group that nobody serves, or the garbage collector would miss the owner and delete the pod
            reference = {"apiVersion": "example.com/v1", "kind": owner, "name": "owner", "uid": str(uuid.uuid4())}
            owners.append(reference | {"controller": True})
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": dict(labels or {}), "ownerReferences": owners, **metadata},
            "spec": {**self.pod_spec(grace_s), "nodeName": node},
        }
        made = self.plane.create(self.path("pods"), document)
        return str(made["metadata"]["uid"])

    def add_replicas(self, name: str, number: int, labels: Mapping[str, str], grace_s: int = 1) -> None:
        """Add a ReplicaSet, whose pods the real controller creates and the real scheduler places on our nodes."""
        document = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": number,
                "selector": {"matchLabels": dict(labels)},
                "template": {"metadata": {"labels": dict(labels)}, "spec": self.pod_spec(grace_s)},
            },
        }
        path = f"/apis/apps/v1/namespaces/{self.name}/replicasets"
        self.plane.create(path, document)
        self._created.append(f"{path}/{name}")

    def pod_spec(self, grace_s: int) -> Json:
        return {
            "nodeSelector": {"scene": self.name},
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.2"}],
        }

    def add_budget(self, name: str, labels: Mapping[str, str], minimum: int) -> None:
        document = {
            "apiVersion": "policy/v1beta1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": dict(labels)}},
        }
        self.plane.create(self._budgets, document)
        self._created.append(f"{self._budgets}/{name}")

    def budget(self, name: str) -> Json:
        """Return what the disruption controller has counted."""
        return dict(self.plane.get(f"{self._budgets}/{name}")["status"])

    @property
    def _budgets(self) -> str:
        return f"/apis/policy/v1beta1/namespaces/{self.name}/poddisruptionbudgets"

    def path(self, resource: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.name}/{resource}" + (f"/{name}" if name else "")

    def group_path(self, group: str, resource: str) -> str:
        """Return the path of a collection of the namespace. `group`: with its version."""
        return f"/apis/{group}/namespaces/{self.name}/{resource}"

    def create(self, path: str, document: Json) -> None:
        """Create an object, which goes with the scene, and all that is its."""
        self.plane.create(path, document)
        self._owned.append(f"{path}/{document['metadata']['name']}")

    def pods(self, node: str | None = None) -> list[Json]:
        items = self.plane.get(self.path("pods"))["items"]
        return [item for item in items if node is None or item["spec"].get("nodeName") == node]

    def names(self, node: str | None = None) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods(node))

    def running(self, node: str | None = None) -> list[str]:
        """Return the names of the pods that run and are not ending."""
        found = [pod for pod in self.pods(node) if pod["status"]["phase"] == "Running"]
        return sorted(pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"])

    def condition(self, node: str) -> str:
        conditions = self.plane.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
        return next(str(found["status"]) for found in conditions if found["type"] == "Ready")

    def clean(self) -> None:
        for path in self._owned:
            self.plane.delete(path, propagationPolicy="Background")
        for path in self._created:
            self.plane.delete(path, propagationPolicy="Orphan")
        for pod in self.pods():
            if pod["metadata"].get("finalizers"):
                self.plane.patch(self.path("pods", pod["metadata"]["name"]), {"metadata": {"finalizers": None}})
        self.plane.delete(self.path("pods"), gracePeriodSeconds=0)
        for name in self.nodes:
            self.plane.kubelets.remove(name)

    # --- the reconciler ------------------------------------------------------------------------------------------

    async def act(self, action: str, node: str, *, timeout_s: float = 30.0, **changes: Any) -> Outcome:
        """Run an action. `changes`: to the drain policy, and with `host` what was observed of the host."""
        host = changes.pop("host", b.facts(node))
        policy = replace(DrainPolicy(DrainProvider.KUBERNETES, timeout_s=timeout_s), **changes)
        desired = b.node(node, profile=b.profile(drain=policy))
        observed = b.observed(node, host=host)
        now, settings = self.clock.now(), b.SETTINGS
        held = self.ledger.acquire(f"test {node}", "test", _TTL_S, now)
        lease = HeldLease(held, self.ledger, self.clock, _TTL_S, self.clock.monotonic() + _TTL_S)
        comparer = Comparer(IgnoreRules((), now))
        planned = PlannedAction(action, "", Concern.HOST, ("a test",), Disruption.NONE, 1.0, Certainty.EXACT, (), ())
        self.steps = []
        ctx = ActionContext(
            action=planned, desired=desired, observed=observed, record=NodeRecord(node),
            drift=(), comparer=comparer, settings=settings, bmc_port=None, host_port=None,
            cluster_port=TimedCluster(self.driver, self.clock, settings, lease), installer_port=None,
            firmware_files=LabFirmwareFiles(), gate=QuickGate(), ledger=self.ledger, clock=self.clock,
            attempt=self.ledger.begin("test", node, action, "", "", {}, lease.token(), now), intent={}, resumed={},
            plan="plan", step=self.steps.append,
        )  # fmt: skip
        try:
            return await carry_out(FUNCTIONS[action], ctx)
        finally:
            self.ledger.drop(held)


def until(wanted: Callable[[], T], seconds: float = 30.0) -> T:
    """Return what `wanted` returns as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := wanted()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.1)
    return found
