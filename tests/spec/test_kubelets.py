"""Images whose kubelets are too far apart for one control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.errors import SpecError
from reconciler.spec import load_spec

FLEET = """kind: Fleet
metadata: {name: lab}
spec:
  cluster: main
  ssh: {credentials: ssh, hostKeys: {insecure: true}}
---
kind: Cluster
metadata: {name: main}
spec: {type: kubernetes}
---
kind: HardwareProfile
metadata: {name: hgx}
spec:
  match: {manufacturer: Any, model: X}
---
kind: Persona
metadata: {name: train}
spec:
  drain: {provider: kubernetes}
---
kind: GoldenImage
metadata: {name: ubuntu}
spec:
  versions:
    - {version: "1", url: "https://images.example.com/1.zst", sha256: "%(sha)s", contents: {kubelet: 1.28.4}}
    - {version: "2", url: "https://images.example.com/2.zst", sha256: "%(sha)s", contents: {kubelet: "%(new)s"}}
---
kind: NodePool
metadata: {name: a}
spec:
  hardware: hgx
  persona: train
  image: {name: ubuntu, version: "1"}
  nodes:
    - {name: n1, host: 10.0.0.1}
---
kind: NodePool
metadata: {name: b}
spec:
  hardware: hgx
  persona: train
  image: {name: ubuntu, version: "2"}
  nodes:
    - {name: n2, host: 10.0.0.2}
"""


def problems(tmp_path: Path, new: str, text: str = FLEET) -> list[str]:
    documents = [f"apiVersion: reconciler.dev/v1alpha1\n{one}" for one in text.split("---\n")]
    (tmp_path / "fleet.yaml").write_text("---\n".join(documents) % {"sha": "a" * 64, "new": new})
    try:
        load_spec(tmp_path, directory="")
    except SpecError as error:
        return [str(one) for one in error.diagnostics if "minors apart" in str(one)]
    return []


@pytest.mark.parametrize(("new", "refused"), [("1.31.9", False), ("1.32.0", True), ("2.0", True), ("newest", False)])
def test_kubelets_that_no_api_server_takes_together_are_refused(tmp_path: Path, new: str, refused: bool) -> None:
    found = problems(tmp_path, new)
    assert bool(found) is refused
    if refused:
        assert f"kubelet {new} of image ubuntu 2 and 1.28.4 of image ubuntu 1 are more than 3 minors apart" in found[0]
        assert "fleet.yaml:" in found[0]


def test_a_version_that_no_pool_uses_is_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, "1.40.0", FLEET.replace('version: "2"}\n  nodes', 'version: "1"}\n  nodes')) == []
