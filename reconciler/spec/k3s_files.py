"""Turn a K3s cluster of the spec into what each node is to run: its files, and the options that hold secrets.

K3s reads config.yaml, then the files of config.yaml.d in order of their names (docs.k3s.io, "Configuration File").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from reconciler.model.k3s import (
    CONFIG,
    DATASTORE,
    ENDPOINT,
    REGISTRIES,
    SECRETS,
    TOKEN,
    UNIT_FILES,
    Artifact,
    DesiredK3s,
    HostSecret,
    K3sRole,
)
from reconciler.spec.kinds.k3s import Database, Download, K3s, Snapshots

# As install.sh writes it, without the network-dependent parts. KillMode=process leaves containers running in a restart.
# A server does not start without the mounts on the way to its datastore (systemd.unit(5)): it would find none there.
_UNIT: Final = """\
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target
{mounts}
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


def k3s_of(spec: K3s, pool: str) -> DesiredK3s:
    """Return what the nodes of a pool are to run."""
    role = K3sRole.SERVER if pool == spec.servers else K3sRole.AGENT
    release = spec.release if role is K3sRole.SERVER or spec.agents is None else spec.agents
    files = {
        CONFIG: _yaml(_config(spec, role), _secrets(spec) if role is K3sRole.SERVER else {}),
        REGISTRIES: _registries(spec.registries),
        f"{UNIT_FILES}/{role.unit}.service": _UNIT.format(
            type="notify" if role is K3sRole.SERVER else "exec",
            role=role.value,
            mounts=f"RequiresMountsFor={DATASTORE}\n" if role is K3sRole.SERVER else "",
        ),
    }
    binary, images = _artifact(release.binary), release.images
    serves = role is K3sRole.SERVER
    store = None if spec.snapshots is None else spec.snapshots.s3
    return DesiredK3s(
        role, release.version, spec.endpoint, binary, None if images is None else _artifact(images), files,
        spec.bootstrap, spec.allow_deprecated, spec.allow_downtime,
        _secrets(spec) if serves else {},
        HostSecret(spec.database.token, spec.database.server) if serves and spec.database is not None else None,
        f"{store.bucket}/{store.folder}" if serves and store is not None else "",
        (spec.database.saved_before or "") if serves and spec.database is not None else "",
        Snapshots().keep if spec.snapshots is None else spec.snapshots.keep,
    )  # fmt: skip


def _secrets(spec: K3s) -> dict[str, HostSecret]:
    """Return the options of a server that hold a secret."""
    found = {}
    if spec.database is not None:
        found[ENDPOINT] = HostSecret(spec.database.endpoint, spec.database.server)
    if spec.snapshots is not None and spec.snapshots.s3 is not None:
        store = spec.snapshots.s3
        found["etcd-s3-access-key"] = HostSecret(store.access_key, store.server)
        found["etcd-s3-secret-key"] = HostSecret(store.secret_key, store.server)
    return found


def _artifact(spec: Download) -> Artifact:
    return Artifact(spec.url, spec.sha256)


def _config(spec: K3s, role: K3sRole) -> dict[str, object]:
    values: dict[str, object] = {"docker": True} if spec.docker else {}
    if role is K3sRole.AGENT:
        return {**values, "server": spec.endpoint, "token-file": TOKEN}
    host = spec.endpoint.removeprefix("https://").rpartition(":")[0] or spec.endpoint.removeprefix("https://")
    if spec.disable:
        values["disable"] = sorted(item.value for item in spec.disable)
    values |= {"tls-san": [host, *spec.server_names], "write-kubeconfig-mode": "0600"}
    if spec.database is not None:
        values |= _database(spec.database)
    return values if spec.snapshots is None else {**values, **_snapshots(spec.snapshots)}


def _database(spec: Database) -> dict[str, object]:
    """Return the options for a database that hold no secret (docs.k3s.io, "Cluster Datastore")."""
    files = {"ca": spec.ca_file, "cert": spec.cert_file, "key": spec.key_file}
    return {f"datastore-{name}file": path for name, path in files.items() if path is not None}


def _snapshots(spec: Snapshots) -> dict[str, object]:
    """Return the options for snapshots that hold no secret (docs.k3s.io, "etcd-snapshot")."""
    values: dict[str, object] = {"etcd-snapshot-schedule-cron": spec.schedule, "etcd-snapshot-retention": spec.keep}
    if (store := spec.s3) is not None:
        s3 = {"endpoint": store.server, "bucket": store.bucket, "folder": store.folder, "region": store.region}
        values |= {"etcd-s3": True, **{f"etcd-s3-{name}": value for name, value in s3.items()}}
        values |= {} if store.ca_file is None else {"etcd-s3-endpoint-ca": store.ca_file}
    return values


def _yaml(values: Mapping[str, object], secrets: Mapping[str, HostSecret]) -> str:
    """Return flat YAML; each scalar is JSON, which is YAML too. The names of secrets make another one a change."""
    lines = ["# Written by the reconciler from the fleet's spec; changes here are overwritten."]
    lines += [f"# {option} is in {SECRETS}, from the secret {secret.name}." for option, secret in secrets.items()]
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
