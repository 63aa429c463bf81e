"""What the Helm chart renders, taken by a real API server, and its kubeconfig by a real kubectl."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_chart import only, rendered
from tests.drivers.kube.bench import kubectl
from tests.kubernetes.scene import Scene

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]


def test_the_server_takes_each_object(scene: Scene, tmp_path: Path) -> None:
    """All but the PodDisruptionBudget: 1.20 has `policy/v1beta1` alone."""
    scene.plane.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "reconciler"}})
    documents = [one for one in rendered() if one["kind"] != "PodDisruptionBudget"]
    file = tmp_path / "rendered.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    said = scene.plane.kubectl("apply", "--dry-run=server", "--validate=true", "-f", str(file))
    assert len(said.splitlines()) == len(documents)
    scene.plane.delete("/api/v1/namespaces/reconciler")


def test_kubectl_takes_its_kubeconfig(scene: Scene, tmp_path: Path) -> None:
    """With the server's address and its CA in place of those that a pod has."""
    text = only("ConfigMap", rendered())["data"]["kubeconfig"]
    ours = json.loads(scene.plane.kubectl("config", "view", "--raw", "-o", "json"))
    (tmp_path / "token").write_text(ours["users"][0]["user"]["token"])
    server = ours["clusters"][0]["cluster"]
    text = text.replace("https://kubernetes.default.svc", server["server"])
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    text = text.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path))
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    done = subprocess.run([kubectl(), f"--kubeconfig={file}", "get", "namespaces"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "kube-system" in done.stdout
