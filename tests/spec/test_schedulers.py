"""What a spec says of Slurm, alone and beside Kubernetes, and where it can't be so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.model.access import ClusterAccess, SlurmAccess
from reconciler.model.errors import SpecError
from reconciler.spec import load_spec
from reconciler.spec.kinds.cluster import paired

SLURM = """  slurm:
    login: login.example.com
    nodes: {"gpu-[1-2]": "n[01-02]"}
"""
FLEET = f"""kind: Fleet
metadata: {{name: lab}}
spec:
  cluster: main
  ssh: {{credentials: ssh, hostKeys: {{insecure: true}}}}
---
kind: Cluster
metadata: {{name: main}}
spec:
  type: slurm
{SLURM}---
kind: HardwareProfile
metadata: {{name: hgx}}
spec:
  match: {{manufacturer: Any, model: X}}
---
kind: Persona
metadata: {{name: train}}
spec:
  drain:
    provider: slurm
    waitForJobs: 6h
    checkpoint: {{signal: {{name: USR1}}}}
---
kind: NodePool
metadata: {{name: gpus}}
spec:
  hardware: hgx
  persona: train
  nodes:
    - {{name: "gpu-[1-3]", host: "10.0.0.[1-3]"}}
"""


def problems(tmp_path: Path, *changes: tuple[str, str]) -> list[str]:
    text = FLEET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    documents = [f"apiVersion: reconciler.dev/v1alpha1\n{one}" for one in text.split("---\n")]
    (tmp_path / "fleet.yaml").write_text("---\n".join(documents))
    try:
        load_spec(tmp_path, directory="")
    except SpecError as error:
        return [str(diagnostic) for diagnostic in error.diagnostics]
    return []


def settings_of(tmp_path: Path, *changes: tuple[str, str]) -> Any:
    assert problems(tmp_path, *changes) == []
    return load_spec(tmp_path, directory="").settings


def test_slurm_alone_is_resolved(tmp_path: Path) -> None:
    slurm = SlurmAccess("login.example.com", names={"gpu-1": "n01", "gpu-2": "n02"}, take_over=("NHC",))
    assert settings_of(tmp_path).cluster == ClusterAccess("main", None, None, kubernetes=False, slurm=slurm)


def test_slurm_beside_kubernetes_is_resolved(tmp_path: Path) -> None:
    beside = ("type: slurm", "kubeconfig: main")
    found = settings_of(tmp_path, beside, ("signal: {name: USR1}", "annotation: true")).cluster
    assert (found.kubernetes, found.kubeconfig) == (True, "main")
    assert found.slurm.login == "login.example.com"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (SLURM, "", "type slurm needs `slurm`"),
        ("type: slurm\n", "type: slurm\n  kubeconfig: x\n", "type slurm has no kubeconfig"),
        ("login.example.com", "https://login", "is not an address"),
        ("login.example.com\n", "login.example.com\n    reserve: 24h\n", "the Fleet has none"),
        ("n[01-02]", "n[01-03]", "differ in length"),
        ("n[01-02]", "gpu-[3-4]", "'gpu-1' and 'gpu-3' would both be node 'gpu-3' of Slurm"),
        ("gpu-[1-2]", "gpu-[4-5]", "fleet.yaml:15:26 spec.slurm.nodes.gpu-[4-5]: there is no node 'gpu-4'"),
        ("  ssh: {credentials: ssh, hostKeys: {insecure: true}}\n", "", "is reached over SSH"),
        ("    waitForJobs: 6h\n", "", "jobs of Slurm would be requeued at once"),
        ("provider: slurm", "provider: kubernetes", "the fleet's cluster is a Slurm (use provider slurm)"),
        ("    waitForJobs: 6h\n", "    waitForJobs: 6h\n    surge: {}\n", "a Slurm, which has none of this"),
        ("signal: {name: USR1}", "annotation: true", "jobs of Slurm are no pods"),
        ("  drain:\n    provider", "  labels: {a: b}\n  drain:\n    provider", "whose nodes have no labels"),
        (f"  type: slurm\n{SLURM}",
         "  kubeconfig: x\n", "the fleet's cluster has no Slurm"),
    ],
)  # fmt: skip
def test_what_slurm_cant_do_is_refused_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    found = problems(tmp_path, (old, new))
    assert any(expected in problem for problem in found), found
    assert all("fleet.yaml:" in problem for problem in found)


def test_two_nodes_have_no_name_in_common() -> None:
    with pytest.raises(ValueError, match="two nodes have one name"):
        paired({"a": "n1", "b": "n1"})
    with pytest.raises(ValueError, match="'a1' is named twice"):
        paired({"a[1-2]": "n[1-2]", "a1": "n7"})


def test_reservations_before_windows_are_resolved(tmp_path: Path) -> None:
    windows = "  cluster: main\n  windows: [{kind: allow, from: '22:00', to: '06:00', timezone: UTC}]\n"
    found = settings_of(
        tmp_path,
        ("  cluster: main\n", windows),
        ("login.example.com\n", "login.example.com\n    reserve: 24h\n"),
    )
    assert found.cluster.slurm.reserve_s == 86400
