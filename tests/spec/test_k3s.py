"""A K3s cluster of the spec: what is refused, and what each node is to run."""

from __future__ import annotations

import re

import pytest
from ruamel.yaml import YAML

from reconciler.model.k3s import CONFIG, REGISTRIES, TOKEN, UNIT_FILES, HostSecret, K3sRole
from tests.conftest import ROOT
from tests.spec.example import FILES, Edit, load, messages

[OLD] = [line for line in FILES["fleet.yaml"].splitlines() if line.startswith("spec: {type: kubernetes")]
PAGE = (ROOT / "docs" / "how-to" / "k3s.md").read_text()
SHOWN = re.search(r"```yaml\n# a Cluster[^\n]*\n(.*?)```", PAGE, re.DOTALL)
assert SHOWN is not None
CLUSTER = SHOWN[1]  # as the guide has it
CONTROL = """
---
apiVersion: reconciler.dev/v1alpha1
kind: NodePool
metadata: {name: control}
spec:
  hardware: hgx-h100
  persona: training
  image: {name: ubuntu-gpu, version: "2026.11.1"}
  nodes:
  - {name: "c[1-3]", bmc: "https://10.20.8.[1-3]", host: "10.20.9.[1-3]", domains: {rack: r1}}
"""


def read(text: str) -> object:
    return YAML(typ="safe").load(text)


def edits(*changes: tuple[str, str]) -> list[Edit]:
    spec = CLUSTER[CLUSTER.index("spec:") :]
    control = CONTROL
    for old, new in changes:
        assert old in spec or old in control, old
        spec, control = spec.replace(old, new), control.replace(old, new)
    return [("fleet.yaml", OLD, spec), ("control.yaml", "", control.removeprefix("\n---\n"))]


def told(*changes: tuple[str, str]) -> list[str]:
    return [line.split(": ", 1)[1] for line in messages(*edits(*changes)) if not line.startswith("warning")]


def test_the_guides_cluster_is_valid_and_gives_each_node_its_role() -> None:
    fleet = load(*edits())
    server, agent = fleet.nodes["c1"].profile.k3s, fleet.nodes["gpu-a001"].profile.k3s
    assert server is not None
    assert agent is not None
    assert (server.role, agent.role, server.version) == (K3sRole.SERVER, K3sRole.AGENT, "v1.31.5+k3s1")
    assert read(server.files[CONFIG]) == {
        "disable": ["servicelb", "traefik"], "tls-san": ["10.0.0.10"], "write-kubeconfig-mode": "0600",
    }  # fmt: skip
    assert read(agent.files[CONFIG]) == {"server": "https://10.0.0.10:6443", "token-file": TOKEN}
    assert read(agent.files[REGISTRIES]) == {"mirrors": {"docker.io": {"endpoint": ["https://mirror.example"]}}}
    assert "ExecStart=/usr/local/bin/k3s agent\n" in agent.files[f"{UNIT_FILES}/k3s-agent.service"]
    assert "Type=notify" in server.files[f"{UNIT_FILES}/k3s.service"]
    at = fleet.nodes["c1"].profile.provenance["cluster.k3s.version"]
    assert at.file == "fleet.yaml"


DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
AGENTS = """    agents: {{version: {version}, binary: {{url: "https://files.example/k3s", sha256: {digest}}}}}
    disable: [traefik, servicelb]
"""


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("v1.31.5+k3s1", ""),
        ("v1.28.15+k3s1", ""),
        ("v1.31.5+k3s2", "would be newer than the servers"),
        ("v1.32.0+k3s1", "would be newer than the servers"),
        ("v1.27.16+k3s1", "more than 3 minors behind the servers"),
    ],
)
def test_agents_are_never_newer_and_at_most_three_minors_older(version: str, why: str) -> None:
    found = told(("    disable: [traefik, servicelb]\n", AGENTS.format(version=version, digest=DIGEST)))
    assert len(found) == bool(why), found
    assert all(why in line for line in found)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("c[1-3]", "c[1-2]"), "it has 2 active nodes, and 1, 3 or 5 can serve"),
        (("servers: control", "servers: contol"), "there is no NodePool 'contol'"),
        (("type: k3s", "type: kubernetes"), "only a cluster of `type: k3s` has it"),
        (("type: k3s", "type: k3s\n  join: {command: [k3s]}"), "nodes join K3s with a token of their own"),
        (("bootstrap: true", "datastore: sqlite"), "'sqlite'"),
        (("v1.31.5+k3s1", "v1.31.5"), "'v1.31.5' is not a version of K3s like v1.31.5+k3s1"),
        (("bootstrap: true", "allowDowntime: true"), "3 servers go one at a time, and the API stays"),
        (("https://10.0.0.10:6443", "10.0.0.10"), "'10.0.0.10' is not a URL like"),
    ],
)
def test_what_cannot_be_is_refused(change: tuple[str, str], why: str) -> None:
    found = told(*[change] if change[0] != "c[1-3]" else [("[1-3]", "[1-2]")])
    assert len(found) == 1, found
    assert why in found[0]


DATABASE = (
    "datastore: external\n    database: {server: 'db.example:5432', endpoint: k3s-database, token: k3s-token, "
    "caFile: /etc/ssl/db.pem, savedBefore: v1.31.5+k3s1}"
)
STORE = (
    "snapshots: {schedule: '0 */6 * * *', keep: 12, s3: {server: 's3.example:9000', bucket: k3s, folder: main, "
    "accessKey: s3-key, secretKey: s3-secret}}"
)


def test_a_database_is_named_and_its_secrets_stay_out_of_every_file_of_the_spec() -> None:
    fleet = load(*edits(("bootstrap: true", DATABASE), ("[1-3]", "[1-2]")))
    server, agent = fleet.nodes["c1"].profile.k3s, fleet.nodes["gpu-a001"].profile.k3s
    assert server is not None
    assert agent is not None
    assert (server.external, server.database) == (True, "db.example:5432")
    assert server.secrets == {"datastore-endpoint": HostSecret("k3s-database", "db.example:5432")}
    assert server.token == HostSecret("k3s-token", "db.example:5432")
    assert (server.saved_before, server.keep) == ("v1.31.5+k3s1", 5)
    assert (agent.secrets, agent.token, agent.external) == ({}, None, False)
    config = server.files[CONFIG]
    assert read(config) == {
        "disable": ["servicelb", "traefik"], "tls-san": ["10.0.0.10"], "write-kubeconfig-mode": "0600",
        "datastore-cafile": "/etc/ssl/db.pem",
    }  # fmt: skip
    assert "k3s-database" in config, "so that another name is a change"
    assert "k3s-database" not in agent.files[CONFIG]


def test_snapshots_go_to_an_object_store() -> None:
    fleet = load(*edits(("bootstrap: true", STORE)))
    server, agent = fleet.nodes["c1"].profile.k3s, fleet.nodes["gpu-a001"].profile.k3s
    assert server is not None
    assert agent is not None
    found = read(server.files[CONFIG])
    assert isinstance(found, dict)
    assert {key: value for key, value in found.items() if key.startswith("etcd")} == {
        "etcd-snapshot-schedule-cron": "0 */6 * * *", "etcd-snapshot-retention": 12, "etcd-s3": True,
        "etcd-s3-endpoint": "s3.example:9000", "etcd-s3-bucket": "k3s", "etcd-s3-folder": "main",
        "etcd-s3-region": "us-east-1",
    }  # fmt: skip
    assert sorted(server.secrets) == ["etcd-s3-access-key", "etcd-s3-secret-key"]
    assert server.keep == 12
    assert (server.bucket, agent.secrets, agent.bucket) == ("k3s/main", {}, "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("bootstrap: true", "datastore: external"), "`external` needs `database`"),
        (("bootstrap: true", DATABASE.partition("\n    ")[2]), "only `datastore: external` has it"),
        (
            ("bootstrap: true", f"{DATABASE}\n    {STORE}"),
            "snapshots are of etcd, and",
        ),
        (("bootstrap: true", DATABASE.replace("caFile", "keyFile")), "K3s takes both or none"),
        (("bootstrap: true", STORE.replace("*/6 * * *", "*/6 * *")), "is not five fields of cron"),
    ],
)
def test_where_the_state_is_kept_is_checked(change: tuple[str, str], why: str) -> None:
    found = told(change)
    assert any(why in line for line in found), found
