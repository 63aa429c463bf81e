"""Check a K3s cluster of the spec, and turn it into what each node is to run.

K3s reads config.yaml, then the files of config.yaml.d in order of their names (docs.k3s.io, "Configuration File").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from reconciler.model.errors import Diagnostic
from reconciler.model.k3s import (
    CONFIG,
    KUBECONFIG,
    REGISTRIES,
    TOKEN,
    UNIT_FILES,
    Artifact,
    DesiredK3s,
    K3sRole,
    minor_of,
)
from reconciler.model.kubelets import OLDER
from reconciler.model.vocab import NodeState
from reconciler.spec.kinds.cluster import ClusterSpec, ClusterType
from reconciler.spec.kinds.k3s import Download, K3s
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource

SERVERS: Final = (1, 3, 5)  # etcd of an even count survives no more failures than one member less

# As install.sh writes it, without the network-dependent parts. KillMode=process leaves containers running in a restart.
_UNIT: Final = """\
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type={type}
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
KillMode=process
Delegate=yes
User=root
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s {role}
"""


def check_k3s(declared: Declarations, nodes: Sequence[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problems of each Cluster of type k3s, and of those that say what only K3s has."""
    for cluster in declared.clusters.values():
        spec = cluster.spec
        if spec.type is not ClusterType.K3S:
            if spec.k3s is not None:
                yield cluster.problem(("k3s",), "only a cluster of `type: k3s` has it")
        elif spec.k3s is None:
            yield cluster.problem(("type",), "a cluster of `type: k3s` says in `k3s` what it is to be")
        else:
            yield from _checked(cluster, spec.k3s, declared, nodes)


def _checked(
    cluster: DeclaredResource[ClusterSpec], k3s: K3s, declared: Declarations, nodes: Sequence[NodeSource]
) -> Iterator[Diagnostic]:
    if cluster.spec.join is not None:
        yield cluster.problem(("join",), "nodes join K3s with a token of their own, and with no command")
    if k3s.servers not in declared.pools:
        yield cluster.problem(("k3s", "servers"), f"there is no NodePool {k3s.servers!r}")
        return
    ours = declared.fleets and declared.fleets[0].spec.cluster == cluster.name
    servers = [node for node in nodes if node.pool == k3s.servers and node.state is NodeState.ACTIVE]
    if ours and len(servers) not in SERVERS:
        hint = "etcd keeps its quorum best with 3, or 5; 1 survives no failure"
        yield cluster.problem(("k3s", "servers"), f"it has {len(servers)} active nodes, and 1, 3 or 5 can serve", hint)
    if ours and k3s.allow_downtime and len(servers) > 1:
        problem = f"{len(servers)} servers go one at a time, and the API stays: nothing has to be allowed"
        yield cluster.problem(("k3s", "allowDowntime"), problem, "take it away")
    for node in nodes if ours else ():
        if node.endpoints.host is None:
            yield cluster.problem(("type",), f"node {node.name} has no `host`: K3s is installed over SSH")
            break
    for persona in declared.personas.values() if ours else ():
        if persona.spec.backup is not None and persona.spec.backup.images:
            problem = "K3s starts after a node's data was restored, and nothing could load its container images"
            yield persona.problem(("backup", "images"), problem, "let nodes pull them, from a mirror that stays")
    tells = ours and any(one.kubernetes for one in declared.fleets[0].spec.notifications)
    if tells and cluster.spec.kubeconfig is None:
        hint = f"name a secret with the {KUBECONFIG} of a server, which has the address 127.0.0.1 in it"
        yield cluster.problem(("type",), "Events are written in it, for which it needs a `kubeconfig`", hint)
    yield from _skew(cluster, k3s)


def _skew(cluster: DeclaredResource[ClusterSpec], k3s: K3s) -> Iterator[Diagnostic]:
    if k3s.agents is None:
        return
    newest, agents = k3s.release.version, k3s.agents.version
    where = ("k3s", "agents", "version")
    if _order(agents) > _order(newest):
        yield cluster.problem(where, f"agents of {agents} would be newer than the servers, which run {newest}")
    elif minor_of(agents)[1] < minor_of(newest)[1] - OLDER:
        problem = f"agents of {agents} are more than {OLDER} minors behind the servers, which run {newest}"
        yield cluster.problem(where, problem, "upgrade the agents first, as far as the servers are now")


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").replace("+k3s", ".").split("."))


def k3s_of(spec: K3s, pool: str) -> DesiredK3s:
    """Return what the nodes of a pool are to run."""
    role = K3sRole.SERVER if pool == spec.servers else K3sRole.AGENT
    release = spec.release if role is K3sRole.SERVER or spec.agents is None else spec.agents
    files = {
        CONFIG: _yaml(_config(spec, role)),
        REGISTRIES: _registries(spec.registries),
        f"{UNIT_FILES}/{role.unit}.service": _UNIT.format(
            type="notify" if role is K3sRole.SERVER else "exec", role=role.value
        ),
    }
    binary, images = _artifact(release.binary), release.images
    return DesiredK3s(
        role, release.version, spec.endpoint, binary, None if images is None else _artifact(images), files,
        spec.bootstrap, spec.allow_deprecated, spec.allow_downtime,
    )  # fmt: skip


def _artifact(spec: Download) -> Artifact:
    return Artifact(spec.url, spec.sha256)


def _config(spec: K3s, role: K3sRole) -> dict[str, object]:
    values: dict[str, object] = {"docker": True} if spec.docker else {}
    if role is K3sRole.AGENT:
        return {**values, "server": spec.endpoint, "token-file": TOKEN}
    host = spec.endpoint.removeprefix("https://").rpartition(":")[0] or spec.endpoint.removeprefix("https://")
    if spec.disable:
        values["disable"] = sorted(item.value for item in spec.disable)
    return {**values, "tls-san": [host, *spec.server_names], "write-kubeconfig-mode": "0600"}


def _yaml(values: Mapping[str, object]) -> str:
    """Return flat YAML; each scalar is JSON, which is YAML too."""
    lines = ["# Written by the reconciler from the fleet's spec; changes here are overwritten."]
    for key, value in values.items():
        if isinstance(value, list):
            lines += [f"{key}:", *(f"  - {json.dumps(item)}" for item in value)]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _registries(mirrors: Mapping[str, Sequence[str]]) -> str:
    """Return registries.yaml (docs.k3s.io, "Private Registry Configuration"); "" = none."""
    if not mirrors:
        return ""
    lines = ["mirrors:"]
    for name, urls in sorted(mirrors.items()):
        lines += [f"  {json.dumps(name)}:", "    endpoint:", *(f"      - {json.dumps(url)}" for url in urls)]
    return "\n".join(lines) + "\n"
