"""K3s on a node: what the spec declares of it, what its host shows, and where K3s keeps its files.

Paths and units are those of K3s' own install script and documents (github.com/k3s-io/k3s install.sh; docs.k3s.io).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from reconciler.model.privacy import PublicText, Unpublished

BINARY: Final = "/usr/local/bin/k3s"
DATA: Final = "/var/lib/rancher/k3s"
CONFIG: Final = "/etc/rancher/k3s/config.yaml"
JOIN: Final = "/etc/rancher/k3s/config.yaml.d/50-join.yaml"  # merged after CONFIG: what differs from node to node
SECRETS: Final = "/etc/rancher/k3s/config.yaml.d/40-secrets.yaml"  # options of K3s whose values are secrets
REGISTRIES: Final = "/etc/rancher/k3s/registries.yaml"
TOKEN: Final = "/etc/rancher/k3s/join-token"
KUBECONFIG: Final = "/etc/rancher/k3s/k3s.yaml"
IMAGES: Final = f"{DATA}/agent/images"
OUR_IMAGES: Final = re.compile(r"[0-9a-f]{16}\.tar\.zst")  # files there that we fetched, of any release
DB: Final = f"{DATA}/server/db"
DATASTORE: Final = f"{DB}/etcd"
SNAPSHOTS: Final = f"{DB}/snapshots"
RESET_FLAG: Final = f"{DB}/reset-flag"  # of K3s: keeps it from a second reset before a start
SERVER_TOKEN: Final = f"{DATA}/server/token"
PASSWORD: Final = "/etc/rancher/node/password"
RESTART_DUE: Final = f"{DATA}/reconciler-restart-due"  # ours: written before a file changes, gone after the restart
RESTORE: Final = f"{DATA}/reconciler-restore"  # ours: how far a restore from a snapshot is
UNIT_FILES: Final = "/etc/systemd/system"
ENDPOINT: Final = "datastore-endpoint"  # the option that names a database; without it, K3s keeps its state itself

NONE: Final = "none"
DUE: Final = "due"


class K3sRole(StrEnum):
    SERVER = "server"
    AGENT = "agent"

    @property
    def unit(self) -> str:
        return "k3s" if self is K3sRole.SERVER else "k3s-agent"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that hosts download, and its digest."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class DeprecatedApi:
    """A deprecated API that an API server was asked for since it started. `removed`: by which release, such as 1.32."""

    group: PublicText  # "" = core
    version: PublicText
    resource: PublicText
    removed: PublicText

    @property
    def name(self) -> str:
        """How a spec and reports name it: flowcontrol.apiserver.k8s.io/v1beta3/flowschemas."""
        return "/".join(filter(None, (self.group, self.version, self.resource)))


@dataclass(frozen=True, slots=True)
class HostSecret:
    """A secret by its name, and the server (host:port) at which the host uses it."""

    name: str
    server: str


@dataclass(frozen=True, slots=True)
class DesiredK3s:
    """K3s as a node is to run it. `files`: path -> text of each file that is kept as it is here; "" = no such file.

    `endpoint`: the URL under which servers register and agents join. `bootstrap`: the spec consents to a new cluster
    where none exists. `allow_deprecated`: APIs that may be in use though the version of an upgrade lacks them.
    `allow_downtime`: the only server of the cluster may be taken out of service. `secrets`: options of K3s that hold a
    secret. `token`: the token of all servers, where they keep the cluster's state in a database. `saved_before`: the
    version before which a person has saved that. `bucket`: where snapshots of etcd are copied to, BUCKET/FOLDER; "" =
    nowhere. `keep`: how many of those before upgrades stay on a server.
    """

    role: K3sRole
    version: str  # v1.31.5+k3s1
    endpoint: str
    binary: Artifact
    images: Artifact | None
    files: Mapping[str, str] = field(default_factory=dict)
    bootstrap: bool = False
    allow_deprecated: tuple[str, ...] = ()
    allow_downtime: bool = False
    secrets: Mapping[str, HostSecret] = field(default_factory=dict)
    token: HostSecret | None = None
    bucket: str = ""
    saved_before: str = ""
    keep: int = 5

    @property
    def external(self) -> bool:
        """Return whether the servers keep the cluster's state in a database, and not in etcd of their own."""
        return ENDPOINT in self.secrets

    @property
    def database(self) -> str:
        """Return HOST:PORT of the database; "" = the state is in etcd."""
        return self.secrets[ENDPOINT].server if self.external else ""

    @property
    def begun(self) -> str:
        """Return the file by which a server is known to belong to a cluster."""
        return SERVER_TOKEN if self.external else DATASTORE

    @property
    def image_file(self) -> str:
        """The name of the file with images, which tells its digest; "" = none."""
        return "" if self.images is None else f"{self.images.sha256[:16]}.tar.zst"


@dataclass(frozen=True, slots=True)
class K3sFacts:
    """K3s as a host shows it. `version`: of the binary; "" = there is none.

    `renewal`: whether a certificate ends so soon that K3s renews it when it starts: none | due; None: it can't be read.
    `ends`: when the first of its certificates ends; None where it has none.
    `deprecated`: what its API server was asked for; () on a host without one, None: it did not say.
    `datastore`: of etcd. `secrets`: the options in the file of secrets, which is not read any further.
    `sqlite`, `began`: it has a database of SQLite, or keys of a cluster. `endpoints`, `data_dirs`: where a database, or
    another folder of data, is set. `database`: HOST:PORT of the one that we have set; "" = none.
    """

    version: PublicText
    units: Mapping[PublicText, bool]  # those that have a unit file -> active
    files: Mapping[PublicText, PublicText]  # path -> SHA-256, of those that exist
    images: tuple[PublicText, ...]
    datastore: bool
    restart: PublicText = NONE  # none | due
    renewal: PublicText | None = NONE
    deprecated: tuple[DeprecatedApi, ...] | None = ()
    secrets: Unpublished[tuple[PublicText, ...]] = ()
    sqlite: bool = False
    began: bool = False
    endpoints: Unpublished[tuple[PublicText, ...]] = ()
    data_dirs: Unpublished[tuple[PublicText, ...]] = ()
    database: Unpublished[PublicText] = ""
    ends: datetime | None = None


def servers_away(servers: Mapping[str, bool], node: str) -> list[str]:
    """Return which others of the control plane's members (name -> Ready) are not Ready, in order."""
    return sorted(name for name, ready in servers.items() if not ready and name != node)


def way_without(away: Iterable[str], active: Iterable[str]) -> str:
    """Return how to go on without the first server that is away and that the spec sets aside, or has no more; "" = no.

    `active`: nodes that are to be there.
    """
    lost = next((name for name in away if name not in set(active)), "")
    return f"; if it is gone for good, `reconciler cluster remove-server CLUSTER {lost}` takes it out" if lost else ""


def why_not_away(servers: Mapping[str, bool], node: str, *, external: bool = False) -> str:
    """Return why etcd would lose its quorum, or may, if this node went away now; "" if it keeps it.

    `servers`: members of the control plane -> Ready. Of two members no one may be away: so it is while a cluster
    begins, and after a lost server was taken out of it. One server alone has no quorum to keep. `external`: the state
    is in a database, so that one other server that is Ready is enough.
    """
    if external:
        others = {name: ready for name, ready in servers.items() if name != node}
        return "" if not others or any(others.values()) else f"no other server is Ready: with {node} the API would go"
    if away := servers_away(servers, node):
        return f"server {away[0]} is not Ready: with {node} away as well, etcd may lose its quorum"
    if node in servers and len(servers) == 2:
        return f"etcd has two members, and without {node} no quorum: another server has to join first"
    return ""


def removed_by(version: str, asked: Iterable[DeprecatedApi]) -> tuple[DeprecatedApi, ...]:
    """Return which of these APIs a version of Kubernetes has no more."""
    major, minor = minor_of(version)
    limits = ((one, one.removed.split(".")) for one in asked if one.removed)
    return tuple(sorted((one for one, at in limits if (int(at[0]), int(at[1])) <= (major, minor)), key=_by_name))


def _by_name(api: DeprecatedApi) -> str:
    return api.name


def minor_of(version: str) -> tuple[int, int]:
    """Return major and minor of v1.31.5+k3s1. Raise ValueError for another text."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def release_of(version: str) -> tuple[int, ...]:
    """Return a key that sorts releases of K3s, of v1.31.5+k3s1 1, 31, 5 and 1."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", version.replace("+k3s", ".")))
