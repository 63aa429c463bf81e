"""Restore a K3s cluster from a snapshot of etcd, in the order of its documents (docs.k3s.io, "etcd-snapshot").

All servers stop. The one with the snapshot becomes the only member of etcd; the others put their datastore away, and
join it anew, which the next run does. From before the first server stops until no server has an old datastore, the
fleet is held: two of those, started by whatever heals nodes, would be the old cluster beside the restored one. A file
on the server with the snapshot tells how far a restore is, so that the next call goes on where one died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from reconciler.converge.k3s_hosts import K3sHosts, answers_root
from reconciler.model.errors import Refused, UsageError
from reconciler.model.k3s import BINARY, RESTORE, SECRETS, SERVER_TOKEN, SNAPSHOTS

STORE: Final = "s3://"
NOT_READ: Final = "-"  # in place of the digest of what is in an object store


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
    """`name`: of a file in K3s' folder of snapshots, or a path. `server`: which has it; "" = the only one that has.

    `bucket`: BUCKET/FOLDER of the object store that has it, from which the server fetches it; "" = it is on its disk.
    """

    name: str
    server: str = ""
    bucket: str = ""

    @property
    def option(self) -> str:
        """How the command is told of it."""
        return _option(self.path)

    @property
    def path(self) -> str:
        if self.bucket:
            return f"{STORE}{self.bucket}/{self.name}"
        return self.name if self.name.startswith("/") else f"{SNAPSHOTS}/{self.name}"


async def look(servers: K3sHosts, wanted: WantedSnapshot) -> Found:
    """Find the snapshot, and a restore that did not end. Nothing is changed.

    Raise Refused for a server that neither answers nor is off: it could go on with the old datastore.
    """
    answering = {name: await answers_root(servers, name) for name in servers.hosts}
    going, off = ([name for name in answering if answering[name] is is_on] for is_on in (True, False))
    begun = [(name, one) for name in going if (one := await _progress(servers, name)) is not None]
    if len(begun) > 1:
        where = " and ".join(name for name, _ in begun)
        raise Refused(f"restores were begun on {where}: remove {RESTORE} where it is the wrong one")
    if begun:
        server, progress = begun[0]
        mistaken = progress.path.startswith(STORE) and progress.phase is RestorePhase.RESETTING
        if mistaken and wanted.server in ("", server):  # nothing says that the store has one of that name
            progress = replace(progress, path=wanted.path, sha256=await _usable(servers, server, wanted))
        if wanted.path != progress.path or wanted.server not in ("", server):
            raise Refused(
                f"a restore from {progress.path} on {server} was begun and did not end: end it first, with "
                f"{_option(progress.path)}"
            )
    else:
        server, progress = await _server_with(servers, going, wanted), None
    if progress is not None and progress.phase is RestorePhase.RESET:
        digest = progress.sha256
    else:
        digest = await _usable(servers, server, wanted)
    return Found(server, wanted.path, digest, tuple(name for name in going if name != server), tuple(off), progress)


def _option(path: str) -> str:
    return f"--snapshot {path.rpartition('/')[2]} --from-store" if path.startswith(STORE) else f"--snapshot {path}"


async def _progress(servers: K3sHosts, server: str) -> RestoreProgress | None:
    if not await servers.is_there(server, RESTORE):
        return None
    words = (await servers.ask(server, "cat", RESTORE)).stdout.split(maxsplit=3)
    if len(words) != 4 or words[1] not in set(RestorePhase):
        raise Refused(f"{server}: {RESTORE} is damaged: see what it is about, and remove it")
    return RestoreProgress(words[0], RestorePhase(words[1]), words[2], words[3].rstrip("\n"))


async def _server_with(servers: K3sHosts, going: Sequence[str], wanted: WantedSnapshot) -> str:
    if wanted.server and wanted.server not in going:
        raise UsageError(f"--server {wanted.server}: servers that answer are {', '.join(going) or 'none'}")
    asked = [wanted.server] if wanted.server else going
    if wanted.bucket and asked:
        return asked[0]
    having = [name for name in asked if await servers.is_there(name, wanted.path)]
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(f"{wanted.path} is on {' and '.join(having)}: say which with --server")
    raise UsageError(
        f"{wanted.path} is on none of {', '.join(asked)}: `k3s etcd-snapshot ls` on a server lists snapshots, and the "
        "path of one that was copied there is given whole"
    )


async def _usable(servers: K3sHosts, server: str, wanted: WantedSnapshot) -> str:
    """Return the SHA-256 of the snapshot; of one in an object store, no digest. Raise Refused where it is of no use."""
    path = wanted.path
    if (await servers.ask(server, BINARY, "--version")).exit_status:
        raise Refused(f"{server}: there is no {BINARY} that could restore a snapshot")
    token = await servers.ask(server, "cat", SERVER_TOKEN)
    if token.exit_status or not token.stdout.startswith("K10"):
        raise Refused(
            f"{server}: {SERVER_TOKEN} is not there. A snapshot is of no use without the server token of its time: "
            "put it there"
        )
    if wanted.bucket:
        if not await servers.is_there(server, SECRETS):
            raise Refused(f"{server}: {SECRETS} is not there, with the keys of the object store: apply the spec first")
        return NOT_READ
    digest = (await servers.ask(server, "sha256sum", path, seconds=1800.0)).stdout.split()[:1]
    if not digest or len(digest[0]) != 64:
        raise Refused(f"{server}: {path} can't be read")
    return digest[0]
