"""The Helm chart: rendered by real helm, taken by Kubernetes' own schemas, with the rights of deploy/kubernetes/."""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from reconciler.cli.main import cli
from reconciler.drivers.kube.own_pod import ROLE_LABEL
from reconciler.model.status import Role
from tests.conftest import ROOT
from tests.drivers.helm.real_helm import helm

CHART = ROOT / "deploy" / "helm" / "reconciler"
EXAMPLE = CHART / "ci" / "values.yaml"
ENGINE_TLS = "RECONCILER_ENGINE_TLS"
ENGINE = CHART / "ci" / "engine-values.yaml"
RIGHTS = [ROOT / "deploy" / "kubernetes" / f"{name}.yaml" for name in ("rbac", "rbac-checkpoint", "rbac-adjust")]
VERSIONS = ("1.25", "1.30", kubernetes_validate.latest_version())
GRANTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

pytestmark = pytest.mark.tool


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *words], capture_output=True, text=True)


def load(text: str) -> list[dict[str, Any]]:
    return [document for document in YAML(typ="safe").load_all(text) if document]


def rendered(*values: str, more: Sequence[Path] = ()) -> list[dict[str, Any]]:
    sets = [word for value in values for word in ("--set-json", value)]
    files = [word for file in (EXAMPLE, *more) for word in ("--values", file)]
    done = asked("template", "reconciler", CHART, "--namespace", "reconciler", *files, *sets)
    assert done.returncode == 0, done.stderr
    return load(done.stdout)


def only(kind: str, documents: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def deployments(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods of all Deployments by name."""
    found = [one for one in documents if one["kind"] == "Deployment"]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found}


def test_helm_has_nothing_to_say_against_it() -> None:
    for more in ((), ("--values", ENGINE)):
        said = asked("lint", "--strict", CHART, "--values", EXAMPLE, *more)
        assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    documents = [*rendered("networkPolicy.from=[]", "rbac.kubeconfig=false"), *rendered(more=[ENGINE])]
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

    own = {"Role", "RoleBinding"}, "reconciler-role"  # of a pod for its label: who runs elsewhere has no pod

    def of_clusters(documents: list[dict[str, Any]]) -> list[Any]:
        return [one for one in grants(documents) if one["kind"] not in own[0] or one["name"] != own[1]]

    assert of_clusters(rendered()) == grants([one for file in RIGHTS for one in load(file.read_text())])
    least = grants(rendered("rbac.checkpoint=false", "rbac.adjust=false", "rbac.events=false"))
    assert [(one["kind"], one["name"]) for one in least] == [
        ("ClusterRole", "reconciler"), ("ClusterRoleBinding", "reconciler"),
        ("Role", "reconciler-role"), ("RoleBinding", "reconciler-role"),
    ]  # fmt: skip
    [role] = [one for one in least if one["kind"] == "Role"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}]
    assert role["namespace"] == "reconciler"


@pytest.mark.parametrize("name", ["reconciler", "reconciler-engine-scheduler", "reconciler-engine-fra"])
def test_the_pod_is_restricted(name: str) -> None:
    """As Kubernetes' Pod Security Standard `restricted` asks, and its root is read-only."""
    spec = deployments(rendered(more=[ENGINE]))[name]
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


def test_the_service_chooses_who_leads_and_each_pod_says_which_it_is() -> None:
    """By the label that OwnPod writes; no pod has it before it has said so. tests/deploy/test_two_pods.py tries it."""
    documents = rendered()
    template = only("Deployment", documents)["spec"]["template"]
    selector = only("Service", documents)["spec"]["selector"]
    assert selector.pop(ROLE_LABEL) == Role.LEADER.value
    assert selector.items() <= template["metadata"]["labels"].items()
    assert ROLE_LABEL not in template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    assert "--pod=$(POD_NAMESPACE)/$(POD_NAME)" in container["args"]
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]
              if "fieldRef" in one.get("valueFrom", {})}  # fmt: skip
    assert fields == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    for kubeconfig in ("true", "false"):
        assert deployments(rendered(f"rbac.kubeconfig={kubeconfig}"))["reconciler"]["automountServiceAccountToken"]


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


# --- an engine ------------------------------------------------------------------------------------------------------


def test_no_engine_is_there_unless_it_is_asked_for() -> None:
    plain = rendered()
    assert deployments(plain).keys() == {"reconciler"}
    assert "engine" not in json.dumps(plain)
    assert deployments(rendered(more=[ENGINE])).keys() == {
        "reconciler", "reconciler-engine-scheduler", "reconciler-engine-fra", "reconciler-engine-ams"
    }  # fmt: skip


@pytest.mark.parametrize(("given", "replicas"), [({"replicas": 0}, 0), ({}, 1), ({"replicas": 3}, 3)])
def test_a_site_may_have_no_worker_for_a_while(given: dict[str, int], replicas: int) -> None:
    one = {"site": "fra", "credentials": {"secretName": "x"}, "egress": [{"cidr": "10.0.0.0/8", "ports": [443]}]}
    documents = rendered(f"engine.workers={json.dumps([one | given])}", more=[ENGINE])
    [worker] = [
        each
        for each in documents
        if each["metadata"]["name"] == "reconciler-engine-fra" and each["kind"] == "Deployment"
    ]
    assert worker["spec"]["replicas"] == replicas


def test_each_worker_has_the_secrets_of_its_own_site_and_all_have_certificates() -> None:
    pods = deployments(rendered(more=[ENGINE]))
    held = {}
    for name, pod in pods.items():
        (sources,) = (one["projected"]["sources"] for one in pod["volumes"] if one["name"] == "credentials")
        held[name.removeprefix("reconciler-engine-")] = {
            one["secret"]["name"]: [item["path"] for item in one["secret"].get("items", ())]
            for one in sources
            if "secret" in one
        }
    certificates = ["engine/ca.pem", "engine/cert.pem", "engine/key.pem"]  # apart: no key of a Secret has a slash
    assert held == {
        "reconciler": {"reconciler-credentials": [], "reconciler-engine": certificates},
        "scheduler": {"reconciler-engine": certificates},
        "fra": {"reconciler-fra": [], "reconciler-engine": certificates},
        "ams": {"reconciler-ams": [], "reconciler-engine": certificates},
    }
    assert not any(pod["automountServiceAccountToken"] for name, pod in pods.items() if name != "reconciler")


def test_leader_scheduler_and_workers_understand_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda *given: Path(given[1]))
    documents = rendered(more=[ENGINE])
    pods = {name: pod["containers"][0] for name, pod in deployments(documents).items()}
    service = next(one for one in documents if one["kind"] == "Service" and "engine" in one["metadata"]["name"])
    url = f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    context = click.Context(cli)
    for name, option in (("reconciler", "engine"), ("reconciler-engine-fra", "scheduler")):
        word, *words = pods[name]["args"]
        command = cli.get_command(context, word)
        assert command is not None
        given = command.make_context(word, words).params
        assert given[option] == url
        tls = given.get("engine_tls") or {one["name"]: one.get("value") for one in pods[name]["env"]}[ENGINE_TLS]
        assert str(tls) == "/run/credentials/engine"
        if word == "worker":
            assert (given["site"], given["listen"]) == ("fra", "$(POD_IP)")
    program, dash, module = pods["reconciler-engine-scheduler"]["command"]
    assert (program, dash) == ("python3", "-m")
    scheduler = importlib.import_module(module).main
    given = scheduler.make_context("scheduler", list(pods["reconciler-engine-scheduler"]["args"])).params
    assert (given["host"], given["dashboard"]) == ("tls://$(POD_IP):8786", False)
    assert {str(given[f"tls_{one}"]) for one in ("ca_file", "cert", "key")} == {
        f"/run/credentials/engine/{one}.pem" for one in ("ca", "cert", "key")
    }


def test_only_the_engine_reaches_the_engine() -> None:
    documents = rendered(more=[ENGINE])
    policies = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "NetworkPolicy"}
    scheduler, worker = policies["reconciler-engine-scheduler"], policies["reconciler-engine-fra"]
    (entry,) = scheduler["ingress"]
    assert entry["ports"] == [{"port": "tls", "protocol": "TCP"}]
    peers = [one.get("podSelector", one).get("matchLabels", one) for one in entry["from"]]
    assert [one.get("app.kubernetes.io/component", one.get("app.kubernetes.io/name")) for one in peers] == [
        "reconciler", "worker", None
    ]  # fmt: skip
    assert entry["from"][2] == {"ipBlock": {"cidr": "10.40.0.7/32"}}
    (caller,) = worker["ingress"][0]["from"]
    assert caller["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "scheduler"
    reached = {(one["ipBlock"]["cidr"], port["port"]) for rule in worker["egress"] for one in rule["to"]
               if "ipBlock" in one for port in rule["ports"]}  # fmt: skip
    assert reached == {("10.20.0.0/16", 443), ("10.20.1.0/24", 22)}
    for name, spec in policies.items():  # each selects the pods of one Deployment
        wanted = spec["podSelector"]["matchLabels"].items()
        chosen = [
            one["metadata"]["name"]
            for one in documents
            if one["kind"] == "Deployment" and wanted <= one["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert chosen == [name], spec


@pytest.mark.parametrize(
    "value",
    [
        'engine.tls.secretName=""',
        'engine={"enabled": true}',
        'engine.workers=[{"site": "fra", "egress": []}]',
        'engine.workers=[{"site": "scheduler", "credentials": {"secretName": "x"}, "egress": []}]',
    ],
)
def test_an_engine_without_certificates_or_secrets_is_refused(value: str) -> None:
    more = () if "enabled" in value else ("--values", ENGINE)
    done = asked("template", "reconciler", CHART, "--values", EXAMPLE, *more, "--set-json", value)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
