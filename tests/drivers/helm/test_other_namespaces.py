"""Readiness of a chart that has objects in other namespaces, as cert-manager has in kube-system: by real kubectl."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.drivers.helm.releases import HelmReleases
from reconciler.model.releases import OperatorKind
from tests.converge.test_release_work import GPU, release

pytestmark = pytest.mark.tool

MANIFEST = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leader, namespace: kube-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: own}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: kube-system}
"""


def _resources(group: str, kind: str, plural: str) -> dict[str, object]:
    one = {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
    return {"kind": "APIResourceList", "groupVersion": group, "resources": [one]}


def _deployment(namespace: str, name: str, ready: int) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 2, "readyReplicas": ready},
    }  # fmt: skip


GROUPS = [
    {"name": name, "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}],
     "preferredVersion": {"groupVersion": f"{name}/v1", "version": "v1"}}
    for name in ("apps", "rbac.authorization.k8s.io")
]  # fmt: skip
ANSWERS: dict[str, dict[str, object]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS},
    "/api/v1": _resources("v1", "Pod", "pods"),
    "/apis/apps/v1": _resources("apps/v1", "Deployment", "deployments"),
    "/apis/rbac.authorization.k8s.io/v1": _resources("rbac.authorization.k8s.io/v1", "Role", "roles"),
    f"/apis/apps/v1/namespaces/{GPU}/deployments/own": _deployment(GPU, "own", 2),
    "/apis/apps/v1/namespaces/kube-system/deployments/other": _deployment("kube-system", "other", 1),
}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = ANSWERS.get(self.path.partition("?")[0])
        body = json.dumps(found or {"kind": "Status", "reason": "NotFound", "code": 404, "details": {}}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path / "kubeconfig"
    named = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    file.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "clusters": [named], "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}], "current-context": "x",
    }))  # fmt: skip
    yield file
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_release_with_objects_in_other_namespaces_is_judged_by_all_its_workloads(kubeconfig: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")

    async def look() -> tuple[str, ...] | None:
        store = HelmReleases(kubeconfig=kubeconfig, context=None, timeout_s=30, now=lambda: datetime.now(UTC))
        try:
            return await store._not_ready(replace(release(GPU), kind=OperatorKind.CHART), MANIFEST)
        finally:
            await store.close()

    assert asyncio.run(look()) == ("Deployment kube-system/other: 1 of 2 ready",)
