"""The Helm chart: rendered by real helm, taken by Kubernetes' own schemas, with the rights of deploy/kubernetes/."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from reconciler.cli.main import cli
from tests.conftest import ROOT
from tests.drivers.helm.real_helm import helm

CHART = ROOT / "deploy" / "helm" / "reconciler"
EXAMPLE = CHART / "ci" / "values.yaml"
RIGHTS = [ROOT / "deploy" / "kubernetes" / f"{name}.yaml" for name in ("rbac", "rbac-checkpoint", "rbac-adjust")]
VERSIONS = ("1.25", "1.30", kubernetes_validate.latest_version())
GRANTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

pytestmark = pytest.mark.tool


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *words], capture_output=True, text=True)


def load(text: str) -> list[dict[str, Any]]:
    return [document for document in YAML(typ="safe").load_all(text) if document]


def rendered(*values: str) -> list[dict[str, Any]]:
    sets = [word for value in values for word in ("--set-json", value)]
    done = asked("template", "reconciler", CHART, "--namespace", "reconciler", "--values", EXAMPLE, *sets)
    assert done.returncode == 0, done.stderr
    return load(done.stdout)


def only(kind: str, documents: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def test_helm_has_nothing_to_say_against_it() -> None:
    said = asked("lint", "--strict", CHART, "--values", EXAMPLE)
    assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    documents = [*rendered("networkPolicy.from=[]", "rbac.kubeconfig=false"), *rendered()]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    assert {one["kind"] for one in documents} > {"Deployment", "NetworkPolicy", "PodDisruptionBudget", *GRANTS}
    wrong = only("Deployment", rendered())
    wrong["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRoot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_its_rights_are_those_of_the_role() -> None:
    """What rbac.yaml, rbac-checkpoint.yaml and rbac-adjust.yaml grant and to whom, by the same names."""

    def grants(documents: list[dict[str, Any]]) -> list[Any]:
        keep = ("kind", "rules", "roleRef", "subjects")
        return sorted(
            (
                {key: one[key] for key in keep if key in one}
                | {"name": one["metadata"]["name"], "namespace": one["metadata"].get("namespace")}
                for one in documents
                if one["kind"] in GRANTS
            ),
            key=lambda one: (one["kind"], one["name"]),
        )

    assert grants(rendered()) == grants([one for file in RIGHTS for one in load(file.read_text())])
    least = grants(rendered("rbac.checkpoint=false", "rbac.adjust=false", "rbac.events=false"))
    assert [(one["kind"], one["name"]) for one in least] == [
        ("ClusterRole", "reconciler"), ("ClusterRoleBinding", "reconciler")
    ]  # fmt: skip


def test_the_pod_is_restricted() -> None:
    """As Kubernetes' Pod Security Standard `restricted` asks, and its root is read-only."""
    spec = only("Deployment", rendered())["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} <= {
        "configMap", "emptyDir", "projected", "secret"
    }  # fmt: skip
    (credentials,) = (volume["projected"] for volume in spec["volumes"] if volume["name"] == "credentials")
    assert credentials["defaultMode"] == 0o440, "drivers.secrets takes that of $CREDENTIALS_DIRECTORY, and no other"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["CREDENTIALS_DIRECTORY"] == mounts["credentials"]
    assert variables["RECONCILER_SECRETS"] == f"{mounts['credentials']}/secrets.yaml"
    assert "@sha256:" in container["image"]


def test_run_understands_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda *given: Path(given[1]))
    deployment = only("Deployment", rendered('options=["--interval=5m"]', "ledger.create=true"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *words = container["args"]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    given = command.make_context(name, words).params
    assert given["create_ledger"]
    assert given["repo"] == "https://git.example.com/ops/fleet.git"
    assert given["tokens"].keys() == {"prometheus"}
    assert "--create-ledger" not in json.dumps(rendered())
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert given["listen"] == f"0.0.0.0:{ports['https']}"
    probes = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"/healthz", "/readyz"}


def test_it_reaches_what_is_listed_and_dns_alone() -> None:
    policy = only("NetworkPolicy", rendered())["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    reached = {(peer["ipBlock"]["cidr"], port["port"]) for rule in policy["egress"] for peer in rule["to"]
               if "ipBlock" in peer for port in rule["ports"]}  # fmt: skip
    assert reached == {("10.20.0.0/16", 443), ("10.20.1.0/24", 22)} | {
        ("10.30.0.0/24", one) for one in (443, 5432, 6443)
    }
    assert only("NetworkPolicy", rendered("networkPolicy.from=[]"))["spec"]["ingress"] == []


@pytest.mark.parametrize(
    "value",
    [
        'image.digest="latest"',
        'spec.repo="fleet.git"',
        'spec.allowedSigners=""',
        'ledger.secretName=""',
        "networkPolicy.egress=[]",
        'tokens={"ann": "root"}',
        "replica=3",
        'networkPolicy.egress=[{"cidr": "10.20.0.0", "ports": [443]}]',
    ],
)
def test_values_that_are_wrong_are_refused(value: str) -> None:
    done = asked("template", "reconciler", CHART, "--values", EXAMPLE, "--set-json", value)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
