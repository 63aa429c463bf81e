"""Charts that tests make and package with the real helm."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.model.errors import Position
from reconciler.model.releases import Chart, CrdPolicy, DesiredRelease, OperatorKind
from tests.drivers.helm.real_helm import helm

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-config"}
data: {size: "{{ .Values.size }}"}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-secret"}
stringData: {password: "{{ .Values.password }}"}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: {{ .Values.size }}
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {scene: "{{ .Values.scene }}"}
      containers: [{name: main, image: "{{ .Values.image }}"}]
"""


def package(folder: Path, version: str, templates: Mapping[str, str], crds: Mapping[str, str] | None = None) -> Path:
    """Return the archive of a chart named `demo`, made by `helm package`."""
    chart = folder / f"demo-{version}"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: demo\nversion: {version}\n")
    (chart / "values.yaml").write_text("size: 1\npassword: none\nscene: none\nimage: registry.k8s.io/pause:3.2\n")
    for name, text in templates.items():
        (chart / "templates" / name).write_text(text)
    for name, text in (crds or {}).items():
        (chart / "crds").mkdir(exist_ok=True)
        (chart / "crds" / name).write_text(text)
    command = [helm(), "package", str(chart), "--destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder / f"demo-{version}.tgz"


def release(archive: Path, name: str, namespace: str, *, source: str = "", **values: Any) -> DesiredRelease:
    """Return a release of an archive. `source`: the repository that serves it; "" = it is a file of the spec."""
    data = archive.read_bytes()
    chart = Chart(
        source or archive.name,
        "demo",
        archive.stem.removeprefix("demo-"),
        hashlib.sha256(data).hexdigest(),
        None if source else base64.b64encode(data).decode(),
    )
    return DesiredRelease(
        name, namespace, OperatorKind.CHART, chart, json.dumps(values), CrdPolicy.CREATE, 60.0, Position("c.yaml", 1)
    )
