"""The part of a K3s cluster that its machines share: members of etcd, tokens and node passwords.

No K3s runs here. A unit that starts reads the files that a real one would read, and joins, goes on or fails as that
would: bootstrap tokens join agents alone and end by themselves, a member of etcd joins only while etcd has its quorum
and no other one is joining, and a node under a known name needs its password (docs.k3s.io: "token", "High Availability
Embedded etcd", "How Agent Node Registration Works").
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from reconciler.model.k3s import (
    BINARY,
    CONFIG,
    DATA,
    DATASTORE,
    ENDPOINT,
    JOIN,
    KUBECONFIG,
    PASSWORD,
    REGISTRIES,
    RESET_FLAG,
    SECRETS,
    SERVER_TOKEN,
    SNAPSHOTS,
    UNIT_FILES,
    DeprecatedApi,
    K3sRole,
    removed_by,
)
from reconciler.model.k3s_datastore import SQLITE

if TYPE_CHECKING:
    from reconciler.lab.hardware.cluster_objects import NodeObject
    from reconciler.lab.hardware.host_side import HostSide
    from reconciler.lab.hardware.state import DiskImage

LEAF: Final = f"{DATA}/agent/client-kubelet.crt"  # the lab keeps the second of its issue in it
VALID_S: Final = 365 * 86400.0
RENEWED_S: Final = 120 * 86400.0  # what ends within is renewed by a start
RENEW_S: Final = 60 * 86400.0  # that the fact of the host asks for, by `openssl x509 -checkend`
K3S_FILES: Final = (CONFIG, REGISTRIES, *(f"{UNIT_FILES}/{role.unit}.service" for role in K3sRole))
ADMIN: Final = "apiVersion: v1\nclusters:\n- cluster: {server: https://127.0.0.1:6443}\n  name: default\n"
JOINS_S: Final = 20.0  # how long a new member of etcd is a learner
_RELEASE = re.compile(r"v\d+\.\d+\.\d+(?:\+|%2B)k3s\d+")
_CHARACTERS = string.ascii_lowercase + string.digits


def release_in(url: str) -> str:
    """Return the version that a URL of a download names; "" if it names none."""
    found = _RELEASE.search(url)
    return "" if found is None else found[0].replace("%2B", "+")


def version_of(disk: DiskImage) -> str:
    """Return the version of the program on a disk; "" without one. Downloads of the lab hold their own URL."""
    return release_in(disk.files.get(BINARY, ""))


def option(disk: DiskImage, key: str) -> str:
    """Return a scalar of the environment, config.yaml and config.yaml.d, each over the one before; "" = not given."""
    value, variable = "", f"K3S_{key.upper().replace('-', '_')}="
    for line in disk.files.get("/etc/default/k3s", "").splitlines():
        value = line.removeprefix(variable).strip("'\"") if line.startswith(variable) else value
    for path in (CONFIG, SECRETS, JOIN):
        for line in disk.files.get(path, "").splitlines():
            name, colon, rest = line.partition(":")
            if colon and name == key:
                value = rest.strip().strip("\"'")
    return value


def location(endpoint: str) -> str:
    """Return which database an endpoint names, whoever logs in. Secrets of the lab say "secret NAME of SERVER"."""
    return re.split(r"[@ ]", endpoint)[-1].partition("?")[0]


@dataclass(slots=True)
class BootstrapToken:
    secret: str
    description: str
    expires: float


@dataclass(slots=True)
class Database:
    """A database beside the machines. `token`: encrypts the keys of the cluster in it; "" = it is empty.

    `up`: it answers.
    """

    token: str = ""
    up: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of etcd: node objects, as the cluster gave them, and the secrets of K3s."""

    nodes: Mapping[str, NodeObject]
    passwords: Mapping[str, str]
    token: str


@dataclass(slots=True)
class K3sSite:
    """`members`: of etcd, in the order in which they joined. `begun`: how many clusters were begun. `fewest`: the least
    spare members of etcd of several, above its quorum; below 0 it was lost. `restores`: of snapshots; a datastore of
    before is another cluster's. `revived`: servers that ran with such a one.
    """

    machines: Mapping[str, HostSide]
    clock: Callable[[], float]
    rng: random.Random
    members: list[str] = field(default_factory=list)
    tokens: dict[str, BootstrapToken] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    snapshots: list[str] = field(default_factory=list)
    saved: dict[str, Snapshot] = field(default_factory=dict)  # by the text of its file
    databases: dict[str, Database] = field(default_factory=dict)  # by their location
    bucket: dict[str, str] = field(default_factory=dict)  # of an object store: name of a snapshot -> its text
    restores: int = 0
    undone: int = 0  # restores that took away what had been written since the one before
    ran: bool = False  # since the last restore
    revived: list[str] = field(default_factory=list)
    issued: int = 0
    begun: int = 0
    fewest: int = 99
    learner_until: float = -1.0
    refused: list[str] = field(default_factory=list)  # why units that started ended again
    said: dict[str, str] = field(default_factory=dict)  # why the last start of a machine's unit ended again
    asked: dict[str, tuple[DeprecatedApi, ...]] = field(default_factory=dict)  # of each API server since its start
    mute: set[str] = field(default_factory=set)  # servers that don't tell it
    unmounted: dict[str, str] = field(default_factory=dict)  # machine -> a line of /etc/fstab that failed to mount
    breaking: set[str] = field(default_factory=set)  # machines whose downloads break off at half
    curl_says: tuple[int, str] | None = None  # exit status and words of each download
    # What is of the cluster, which sets these: whether a node object is there, all of them, what takes one away.
    known: Callable[[str], bool] = lambda _: False
    nodes: Callable[[], Mapping[str, NodeObject]] = dict
    bring_back: Callable[[Mapping[str, NodeObject]], None] = lambda _: None
    forget: Callable[[str], None] = lambda _: None
    begin_anew: Callable[[], None] = lambda: None  # nothing is left of the cluster before

    def deprecated(self, name: str) -> tuple[DeprecatedApi, ...] | None:
        """Return what a server tells of deprecated APIs: of those that its own version has; None: it tells nothing."""
        if name not in self.members:
            return ()
        if name in self.mute or not self.serves(name):
            return None
        asked, version = self.asked.get(name, ()), version_of(self.machines[name].disk())
        return tuple(one for one in asked if one not in removed_by(version, asked))

    @property
    def authority(self) -> str:
        return hashlib.sha256(f"authority {self.begun}".encode()).hexdigest()

    # --- etcd and the API server ---

    def serves(self, name: str) -> bool:
        """Return whether the API server of one server answers."""
        return name in self.members and self._runs(name) and self.healthy()

    def _runs(self, name: str) -> bool:
        machine = self.machines[name]
        machine.catch_up()
        system = machine.state.os
        return system is not None and not system.stopping and bool(system.services_active.get("k3s"))

    def healthy(self) -> bool:
        """Return whether etcd has its quorum."""
        running = sum(self._runs(name) for name in self.members)
        if self.databases:
            return running > 0 and all(database.up for database in self.databases.values())
        if len(self.members) > 1:  # one alone has none to spare, and a restart of it takes nothing from others
            self.fewest = min(self.fewest, running - (len(self.members) // 2 + 1))
        return running > len(self.members) // 2

    def dropped(self, name: str) -> None:
        """Take a node out whose node object was deleted: K3s takes its member out of etcd, too."""
        if name in self.members and not self.databases:
            self.members.remove(name)

    def removed(self, machine: HostSide) -> None:
        """Play the end of K3s on a machine. With its last server the cluster is gone, and all that it knew."""
        disk, name = machine.disk(), machine.state.name
        if name in self.members:  # before it stops: a teardown ends etcd on purpose, and `fewest` tells of accidents
            self.members.remove(name)
        for unit in [role.unit for role in K3sRole if role.unit in disk.services]:
            machine.service_set(unit, active=False)
            del disk.services[unit]
        for path in [path for path in disk.files if "rancher" in path or "/k3s" in path]:
            del disk.files[path]
        if not self.members:
            self.passwords, self.tokens = {}, {}

    # --- tokens ---

    def create_token(self, description: str, ttl_s: float) -> str:
        self.issued += 1
        identity, secret = ("".join(self.rng.choices(_CHARACTERS, k=count)) for count in (6, 16))
        self.tokens[identity] = BootstrapToken(secret, description, self.clock() + ttl_s)
        return f"K10{self.authority}::{identity}.{secret}"

    def valid(self) -> dict[str, BootstrapToken]:
        self.tokens = {name: token for name, token in self.tokens.items() if token.expires > self.clock()}
        return self.tokens

    def _admits(self, text: str) -> bool:
        prefix, _, credentials = text.strip().rpartition("::")
        identity, _, secret = credentials.partition(".")
        token = self.valid().get(identity)
        return prefix == f"K10{self.authority}" and token is not None and token.secret == secret

    # --- units ---

    def started(self, machine: HostSide, unit: str) -> str:
        """Play the start of a unit, and return why it ends again; "" = it runs."""
        disk, name = machine.disk(), machine.state.name
        if not version_of(disk):
            return f"{BINARY}: No such file or directory"
        serves = unit == K3sRole.SERVER.unit
        why = self._server(disk, name) if serves else self._agent(disk, name) or self._password(disk, name)
        self.said.pop(name, None)
        if why:
            self.said[name] = why
            self.refused.append(f"{name}: {why}")
            return why
        if RESET_FLAG in disk.files:  # K3s forgets the password that a snapshot has (pkg/cluster/managed.go, start)
            self.passwords.pop(name, None)
        self.rejects(machine)
        issued = float(disk.files.get(LEAF, "-inf"))
        if issued + VALID_S - self.clock() < RENEWED_S:
            disk.files[LEAF] = str(self.clock())
        machine.system().k3s_version = version_of(disk)
        disk.files.pop(RESET_FLAG, None)
        self.ran = True
        return ""

    def _server(self, disk: DiskImage, name: str) -> str:
        if DATASTORE not in disk.files and (endpoint := option(disk, ENDPOINT)):
            return self._with_database(disk, name, location(endpoint))
        if DATASTORE in disk.files:
            if disk.files[DATASTORE] != self._datastore:
                self.revived.append(name)
                return "etcdserver: mismatched cluster ID"
            return "" if name in self.members else "this server has been removed from the etcd cluster"
        joins = option(disk, "server")
        if not joins and option(disk, "cluster-init") != "true":
            return self._with_sqlite(disk, name)
        if not joins:
            if not disk.files.pop(SQLITE, ""):  # K3s moves what is in it (docs.k3s.io/datastore/ha-embedded)
                self._begin()
            self.members = [name]
            disk.files[SERVER_TOKEN] = f"K10{self.authority}::server:{self.rng.getrandbits(128):032x}\n"
        else:
            if name in self.members:
                return "duplicate node name found, please use a unique name for this node"
            token = disk.files.get(option(disk, "token-file"), "")
            source = next((one for one in self.members if self.serves(one)), None)
            if source is None:
                return "failed to get CA certs: connection refused"
            if token != self.machines[source].disk().files[SERVER_TOKEN]:
                return "failed to validate token: not authorized"
            if self.clock() < self.learner_until:
                return "etcdserver: too many learner members in cluster"
            self.learner_until = self.clock() + JOINS_S
            self.members.append(name)
            disk.files[SERVER_TOKEN] = token
        disk.files |= {DATASTORE: self._datastore, KUBECONFIG: ADMIN}
        return ""

    def _begin(self) -> None:
        if self.begun:
            self.begin_anew()
        self.begun += 1

    def _with_sqlite(self, disk: DiskImage, name: str) -> str:
        """Play a server that is told of no datastore: without one on its disk, it begins a cluster of its own."""
        if SQLITE not in disk.files:
            self._begin()
            self.members = [name]
        token = f"K10{self.authority}::server:{self.rng.getrandbits(128):032x}\n"
        disk.files |= {SQLITE: "K3s", SERVER_TOKEN: disk.files.get(SERVER_TOKEN, token), KUBECONFIG: ADMIN}
        return ""

    def _with_database(self, disk: DiskImage, name: str, where: str) -> str:
        """Play a server whose state is in a database: the first one with its token begins the cluster in it.

        Words and order are those of pkg/cluster/storage.go, getBootstrapKeyFromStorage (v1.31).
        """
        database, token = self.databases.setdefault(where, Database()), disk.files.get(option(disk, "token-file"), "")
        if not database.up:
            return "building kine: dial tcp: connect: connection refused"
        if not database.token:
            self._begin()
            database.token = token
        if not token or token != database.token:
            return "bootstrap data already found and encrypted with different token"
        if name not in self.members:
            self.members.append(name)
        disk.files |= {SERVER_TOKEN: f"K10{self.authority}::server:{token}", KUBECONFIG: ADMIN}
        return ""

    @property
    def _datastore(self) -> str:
        return f"K3s {self.restores}" if self.restores else "K3s"

    # --- snapshots ---

    def save(self, machine: HostSide, name: str) -> str:
        """Write a snapshot on a server, and return its whole name (docs.k3s.io, "etcd-snapshot")."""
        disk, whole = machine.disk(), f"{name}-{machine.state.name}-{int(self.clock())}"
        text = f"{whole} {self.rng.getrandbits(64):016x}\n"
        self.saved[text] = Snapshot(self.nodes(), dict(self.passwords), disk.files[SERVER_TOKEN])
        self.snapshots.append(whole)
        machine.write_file(f"{SNAPSHOTS}/{whole}", text)
        if option(disk, "etcd-s3") == "true":
            self.bucket[whole] = text
        return whole

    def delete(self, machine: HostSide, name: str) -> bool:
        """Delete a snapshot of a server, here and in the store. Return whether there was one."""
        if name not in self.snapshots or machine.disk().files.pop(f"{SNAPSHOTS}/{name}", None) is None:
            return False
        self.snapshots.remove(name)
        self.bucket.pop(name, None)
        return True

    def reset(self, machine: HostSide, path: str, token: str, *, local: bool) -> str:
        """Play `k3s server --cluster-reset --cluster-reset-restore-path`. Return why it fails; "" = it is done.

        `local`: with `--etcd-s3=false`. Otherwise, where config.yaml names an object store, `path` is a name in it.
        """
        disk, name = machine.disk(), machine.state.name
        if option(disk, "server"):
            return "cannot perform cluster-reset while server URL is set - remove server from configuration"
        if self._runs(name):
            return "listen tcp :6443: bind: address already in use"
        if RESET_FLAG in disk.files:
            return f"a cluster reset was performed; to perform another one, first delete the file at {RESET_FLAG}"
        if option(disk, "etcd-s3") == "true" and not local:
            if path not in self.bucket:
                return f"failed to download snapshot from S3: {path}: The specified key does not exist."
            machine.write_file(f"{SNAPSHOTS}/{path}", self.bucket[path])
            path = f"{SNAPSHOTS}/{path}"
        if path not in disk.files:
            return f"etcd: snapshot path does not exist: {path}"
        found = self.saved.get(disk.files[path])
        if found is None or token != found.token:
            return "the snapshot can't be restored: its checksum or its token is another one"
        disk.files[RESET_FLAG] = ""
        if old := disk.files.pop(DATASTORE, ""):
            disk.files[f"{DATASTORE}-old-{int(self.clock())}"] = old
        self.undone += self.ran and self.restores > 0
        self.restores, self.ran = self.restores + 1, False
        self.members, self.passwords, self.tokens = [name], dict(found.passwords), {}
        disk.files[DATASTORE] = self._datastore
        self.bring_back(found.nodes)
        return ""

    def _agent(self, disk: DiskImage, name: str) -> str:
        if not self.members or not self.healthy():
            return "failed to get CA certs: connection refused"
        if LEAF in disk.files and self.known(name):
            return ""  # its own certificate is enough (docs.k3s.io, "token")
        return "" if self._admits(disk.files.get(option(disk, "token-file"), "")) else "not authorized"

    def rejects(self, machine: HostSide) -> bool:
        """Return whether a server's own node is refused. Its API server answers all the same, and K3s asks again.

        It tells systemd that it is ready before its agent has registered (pkg/cli/server/server.go of v1.31, run).
        """
        return bool(self._password(machine.disk(), machine.state.name))

    def _password(self, disk: DiskImage, name: str) -> str:
        own = disk.files.setdefault(PASSWORD, f"{self.rng.getrandbits(128):032x}\n")
        if self.passwords.setdefault(name, own) != own:
            return "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password'"
        return ""


def certificates_last_s(disk: DiskImage, now: float) -> float:
    """Return for how many seconds K3s' certificates on this disk are still valid; infinite where there are none."""
    return float(disk.files.get(LEAF, "inf")) + VALID_S - now


def certificates_end(disk: DiskImage, now: float, date: datetime) -> datetime | None:
    """Return when K3s' certificates on this disk end, to the second; None where there are none. `date`: of `now`."""
    if math.isinf(lasts := certificates_last_s(disk, now)):
        return None
    return datetime.fromtimestamp(math.floor(round(date.timestamp() + lasts, 1)), UTC)  # the same second at each look
