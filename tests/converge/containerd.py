"""A real containerd on a node, and images for it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

from tests.converge.real_nodes import RealNode

ENGINE = "registry.example:5000/engine/vllm:v0.11.0"


def write_archive(path: Path, name: str, layer: bytes) -> str:
    """Write what a registry serves as an image of two platforms, of which a node has one. Return its digest."""
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str, **more: object) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content), **more}

    def document(value: dict[str, object], kind: str, **more: object) -> dict[str, object]:
        return add(json.dumps(value).encode(), kind, **more)

    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo("engine")
            entry.size = len(layer)
            tar.addfile(entry, io.BytesIO(layer))
        content = file.getvalue()
    layers = [add(content, "layer.v1.tar")]
    system = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux"}
    root = {"type": "layers", "diff_ids": [layers[0]["digest"]]}
    config = document({**system, "config": {}, "rootfs": root}, "config.v1+json")
    manifest = document({"schemaVersion": 2, "config": config, "layers": layers}, "manifest.v1+json", platform=system)
    other = {**manifest, "digest": f"sha256:{'0' * 64}", "platform": {"architecture": "s390x", "os": "linux"}}
    index = document({"schemaVersion": 2, "manifests": [other, manifest]}, "index.v1+json")
    told = {**index, "annotations": {"io.containerd.image.name": name}}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
             "index.json": json.dumps({"schemaVersion": 2, "manifests": [told]}).encode(),
             **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()}}  # fmt: skip
    with tarfile.open(path, "w") as tar:
        for file_name, content in files.items():
            entry = tarfile.TarInfo(file_name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return str(index["digest"])


def ctr(node: RealNode, *words: str) -> str:
    return node.run("ctr", "-n", "k8s.io", *words)


def images(node: RealNode) -> dict[str, str]:
    """Return the digest of each image that is whole on a node, by its name. One of Kubernetes has its ID, too."""
    rows = [line.split() for line in ctr(node, "images", "check").splitlines()[1:]]
    named = [row for row in rows if not row[0].startswith("sha256:")]
    return {row[0]: row[2] for row in named if row[3] == "complete" and row[-1] == "true"}


def start_containerd(node: RealNode, logs: Path) -> None:
    log = logs / f"{node.name}.containerd"
    node.start("containerd", log=log)
    until = time.monotonic() + 30
    while subprocess.run(node.inside("ctr", "version"), capture_output=True).returncode:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
