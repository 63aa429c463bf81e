"""Restore a K3s cluster from a snapshot of etcd, in the order of its documents (docs.k3s.io, "etcd-snapshot").

All servers stop. The one with the snapshot becomes the only member of etcd; the others put their datastore away, and
join it anew, which the next run does. From before the first server stops until no server has an old datastore, the
fleet is held: two of those, started by whatever heals nodes, would be the old cluster beside the restored one. A file
on the server with the snapshot tells how far a restore is, so that the next call goes on where one died.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler.converge.guarded_ports import TimedBmc, TimedHost
from reconciler.converge.k3s_birth import Asked, server_names
from reconciler.converge.lease import HeldLease
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, Refused, UsageError
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import BINARY, RESTORE, SERVER_TOKEN, SNAPSHOTS
from reconciler.model.observed import Answered
from reconciler.model.ports import Clock, Fabric
from reconciler.model.vocab import Power

COMMAND_S: Final = 120.0


class RestorePhase(StrEnum):
    RESETTING = "resetting"  # K3s may have been told to restore the snapshot, and may be told again
    RESET = "reset"  # it has restored it: once it runs again, a second time would lose what was written since


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """How far a restore is. `id`: of this restore, in the names of what is put away."""

    id: str
    phase: RestorePhase
    sha256: str
    path: str

    @property
    def text(self) -> str:
        return f"{self.id} {self.phase} {self.sha256} {self.path}\n"


@dataclass(frozen=True, slots=True)
class Found:
    """The snapshot and the servers of a restore. `server`: has the snapshot, at `path`.

    `others`: the servers that answer beside it. `off`: those that are off, as their BMCs say. `progress`: of a restore
    that did not end.
    """

    server: str
    path: str
    sha256: str
    others: tuple[str, ...]
    off: tuple[str, ...]
    progress: RestoreProgress | None = None


@dataclass(frozen=True, slots=True)
class WantedSnapshot:
    """`name`: of a file in K3s' folder of snapshots, or a path. `server`: which has it; "" = the only one that has."""

    name: str
    server: str = ""

    @property
    def path(self) -> str:
        return self.name if self.name.startswith("/") else f"{SNAPSHOTS}/{self.name}"


def quiet(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a cluster, asked over SSH, and their BMCs."""

    hosts: Mapping[str, Asked]
    bmcs: Mapping[str, TimedBmc]
    clock: Clock
    tell: Callable[[str], None] = quiet

    async def ask(self, server: str, *argv: str, seconds: float = COMMAND_S, stdin: str = "") -> CommandResult:
        timeout = max(2.0, self.clock.real_seconds(seconds))
        return await self.hosts[server].run(argv, timeout=timeout, stdin=stdin)

    async def is_there(self, server: str, path: str) -> bool:
        """Return whether a file is there. Raise Refused where that can't be read."""
        result = await self.ask(server, "test", "-e", path)
        if result.timed_out or result.exit_status not in (0, 1):
            raise Refused(f"{server}: whether {path} is there can't be read: {result.stderr.strip()[-200:]}")
        return result.exit_status == 0

    async def is_off(self, server: str) -> bool:
        bmc = self.bmcs.get(server)
        hot = None if bmc is None else await bmc.hot()
        return isinstance(hot, Answered) and hot.value.power is Power.OFF


def servers_of(fleet: Fleet, fabric: Fabric, clock: Clock, lease: HeldLease | None) -> Servers:
    """Return the servers of the fleet's K3s cluster. `lease`: proved before each command; None: only to be read."""
    hosts: dict[str, Asked] = {}
    bmcs = {}
    for name in server_names(fleet):
        host, bmc = fabric.host(fleet.nodes[name]), fabric.bmc(fleet.nodes[name])
        if host is not None:
            hosts[name] = host if lease is None else TimedHost(host, clock, fleet.settings, lease)
        if bmc is not None:
            bmcs[name] = TimedBmc(bmc, clock, fleet.settings)
    return Servers(hosts, bmcs, clock)


async def look(servers: Servers, wanted: WantedSnapshot) -> Found:
    """Find the snapshot, and a restore that did not end. Nothing is changed.

    Raise Refused for a server that neither answers nor is off: it could go on with the old datastore.
    """
    answering = {name: await _answers(servers, name) for name in servers.hosts}
    going, off = ([name for name in answering if answering[name] is is_on] for is_on in (True, False))
    begun = [(name, one) for name in going if (one := await _progress(servers, name)) is not None]
    if len(begun) > 1:
        where = " and ".join(name for name, _ in begun)
        raise Refused(f"restores were begun on {where}: remove {RESTORE} where it is the wrong one")
    if begun:
        server, progress = begun[0]
        if wanted.path != progress.path or wanted.server not in ("", server):
            raise Refused(
                f"a restore from {progress.path} on {server} was begun and did not end: end it first, with "
                f"--snapshot {progress.path}"
            )
    else:
        server, progress = await _server_with(servers, going, wanted), None
    if progress is not None and progress.phase is RestorePhase.RESET:
        digest = progress.sha256
    else:
        digest = await _usable(servers, server, wanted.path)
    return Found(server, wanted.path, digest, tuple(name for name in going if name != server), tuple(off), progress)


async def _answers(servers: Servers, server: str) -> bool:
    """Return False for a server that is off. Raise Refused where nothing proves that its K3s can be stopped."""
    try:
        user = await servers.ask(server, "id", "-u")
    except DriverError as error:
        if await servers.is_off(server):
            return False
        raise Refused(
            f"{server} does not answer ({error}), so nothing stops its K3s, and its BMC does not say that it is off: "
            "switch it off, or repair its access"
        ) from error
    if user.exit_status or user.stdout.strip() != "0":
        raise Refused(f"{server}: the user of SSH is not root, who alone may read and stop K3s")
    return True


async def _progress(servers: Servers, server: str) -> RestoreProgress | None:
    if not await servers.is_there(server, RESTORE):
        return None
    words = (await servers.ask(server, "cat", RESTORE)).stdout.split(maxsplit=3)
    if len(words) != 4 or words[1] not in set(RestorePhase):
        raise Refused(f"{server}: {RESTORE} is damaged: see what it is about, and remove it")
    return RestoreProgress(words[0], RestorePhase(words[1]), words[2], words[3].rstrip("\n"))


async def _server_with(servers: Servers, going: Sequence[str], wanted: WantedSnapshot) -> str:
    if wanted.server and wanted.server not in going:
        raise UsageError(f"--server {wanted.server}: servers that answer are {', '.join(going) or 'none'}")
    asked = [wanted.server] if wanted.server else going
    having = [name for name in asked if await servers.is_there(name, wanted.path)]
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(f"{wanted.path} is on {' and '.join(having)}: say which with --server")
    raise UsageError(
        f"{wanted.path} is on none of {', '.join(asked)}: `k3s etcd-snapshot ls` on a server lists snapshots, and the "
        "path of one that was copied there is given whole"
    )


async def _usable(servers: Servers, server: str, path: str) -> str:
    """Return the SHA-256 of the snapshot. Raise Refused where K3s can't restore it."""
    if (await servers.ask(server, BINARY, "--version")).exit_status:
        raise Refused(f"{server}: there is no {BINARY} that could restore a snapshot")
    token = await servers.ask(server, "cat", SERVER_TOKEN)
    if token.exit_status or not token.stdout.startswith("K10"):
        raise Refused(
            f"{server}: {SERVER_TOKEN} is not there. A snapshot is of no use without the server token of its time: "
            "put it there"
        )
    digest = (await servers.ask(server, "sha256sum", path, seconds=1800.0)).stdout.split()[:1]
    if not digest or len(digest[0]) != 64:
        raise Refused(f"{server}: {path} can't be read")
    return digest[0]
