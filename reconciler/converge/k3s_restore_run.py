"""Carry out the restore of a K3s cluster; converge/k3s_restore.py says in which order, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.converge.actions.context import growing_pause_s
from reconciler.converge.actions.k3s import READY, STARTS_S
from reconciler.converge.k3s_birth import endpoint_of, server_names
from reconciler.converge.k3s_hosts import K3sHosts, k3s_hosts, quiet
from reconciler.converge.k3s_restore import STORE, Found, RestorePhase, RestoreProgress, WantedSnapshot, look
from reconciler.converge.lease import held_lease
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, PartlyDone, Refused
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import (
    BINARY,
    DATASTORE,
    DB,
    JOIN,
    PASSWORD,
    RESET_FLAG,
    RESTORE,
    SERVER_TOKEN,
    TOKEN,
    UNIT_FILES,
    K3sRole,
)
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import FLEET, MARK_TAINT

HOLDER: Final = "reconciler cluster restore"
UNIT: Final = K3sRole.SERVER.unit
RESET_S: Final = 1800.0
_WAS_RESET: Final = "cluster membership has been reset"  # of the line that K3s logs when it is done


class RestoreBroke(PartlyDone):
    """A step of a restore failed. The fleet stays held, and the same command goes on."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`cluster`: its name, for messages. `holder`: as in ApplyRequest."""

    fleet: Fleet
    cluster: str
    wanted: WantedSnapshot
    holder: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored cluster. `kept`: server -> where its old datastore is. `strangers`: node objects of no node."""

    server: str
    path: str
    sha256: str
    kept: Mapping[str, str]
    held: tuple[str, ...]
    strangers: tuple[str, ...]
    stays_stopped: bool


async def restore(
    request: RestoreRequest, *, fabric: Fabric, ledger: Ledger, clock: Clock, tell: Callable[[str], None] = quiet
) -> Restored:
    """Restore the cluster, or go on with a restore that died.

    Raise Refused before anything is changed, RestoreBroke after, LeaseHeld and LedgerError as in model.errors.
    """
    async with held_lease(ledger, request.fleet.settings.fleet, request.holder, clock) as lease:
        servers = replace(k3s_hosts(request.fleet, server_names(request.fleet), fabric, clock, lease), tell=tell)
        _check_stop(ledger)
        found = await look(servers, request.wanted)
        work = _Restore(request, servers, ledger, found)
        try:
            return await work.to_the_end()
        except (DriverError, Refused) as error:
            raise RestoreBroke(f"{error}; {work.way_on}") from error


def _check_stop(ledger: Ledger) -> None:
    foreign = [hold for hold in ledger.holds() if hold.subject == FLEET and hold.owner != HOLDER]
    if foreign:
        raise Refused(f"nothing is done: stopped by {foreign[0].owner}: {foreign[0].reason}")


@dataclass(slots=True)
class _Restore:
    request: RestoreRequest
    servers: K3sHosts
    ledger: Ledger
    found: Found
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def way_on(self) -> str:
        return (
            "the fleet stays held, and the same command goes on: "
            f"reconciler cluster restore {self.request.cluster} {self.request.wanted.option}"
        )

    async def to_the_end(self) -> Restored:
        progress = await self._begin()
        if progress.phase is RestorePhase.RESETTING:
            for name in (*self.found.others, self.found.server):
                await self._stop(name)
            await self._reset(progress)
            progress = await self._write(replace(progress, phase=RestorePhase.RESET))
        for name in self.found.others:
            await self._put_away(name, progress.id)
        await self._start()
        await self._begin_no_more()
        await self._forget_others()
        strangers = await self._strangers()
        held = self._hold_those_off(progress.id)
        await self._must(self.found.server, "rm", "-f", RESTORE)
        return Restored(
            self.found.server, self.found.path, self.found.sha256, self.kept, held, strangers, not self._release()
        )

    async def _begin(self) -> RestoreProgress:
        """Hold the fleet, and leave on the server what this is about."""
        found, now = self.found, self.servers.clock.now()
        if all(hold.subject != FLEET for hold in self.ledger.holds()):
            reason = f"cluster {self.request.cluster} is restored from {found.path} on {found.server}; {self.way_on}"
            self.ledger.hold(FLEET, reason, HOLDER, None, now)
        if found.progress is not None:
            if found.progress.sha256 != found.sha256:
                raise Refused(f"{found.path} is not what it was when the restore began: {found.progress.sha256}")
            self.servers.tell(f"going on with the restore that was begun as {found.progress.id}")
            return await self._write(found.progress)
        return await self._write(
            RestoreProgress(f"{now:%Y%m%dT%H%M%SZ}", RestorePhase.RESETTING, found.sha256, found.path)
        )

    async def _write(self, progress: RestoreProgress) -> RestoreProgress:
        await self._file(RESTORE, progress.text)
        return progress

    async def _stop(self, name: str) -> None:
        """Stop K3s, and keep a boot from starting it. Its containers go on. A server without it has nothing to stop."""
        if not await self.servers.is_there(name, f"{UNIT_FILES}/{UNIT}.service"):
            return
        self.servers.tell(f"stopping K3s on {name}")
        await self._must(name, "systemctl", "disable", UNIT)
        await self._must(name, "systemctl", "stop", UNIT, seconds=STARTS_S)
        state = (await self.servers.ask(name, "systemctl", "is-active", UNIT)).stdout.strip()
        if state not in ("inactive", "failed", "unknown"):
            raise RestoreBroke(f"{name}: {UNIT} was stopped and is {state or 'in no known state'}; {self.way_on}")

    async def _reset(self, progress: RestoreProgress) -> None:
        """Let K3s restore the snapshot, with itself as the only member. A dead run may have let it before."""
        server = self.found.server
        # With a URL of another server, K3s refuses a reset (pkg/cli/server/server.go, "cluster-reset").
        await self._join_file({"cluster-init": True})
        await self._must(server, "rm", "-f", RESET_FLAG)
        self.servers.tell(f"restoring {progress.path} on {server}")
        # An object store of config.yaml is asked for the name, unless it is turned off (docs.k3s.io, "etcd-snapshot").
        stored = progress.path.startswith(STORE)
        what = progress.path.rpartition("/")[2] if stored else progress.path
        argv = (BINARY, "server", "--cluster-reset", f"--cluster-reset-restore-path={what}",
                f"--token-file={SERVER_TOKEN}", *(() if stored else ("--etcd-s3=false",)))  # fmt: skip
        result = await self.servers.ask(server, *argv, seconds=RESET_S)
        said = (result.stderr.strip() or result.stdout.strip())[-400:]
        if result.timed_out or result.exit_status or _WAS_RESET not in result.stdout + result.stderr:
            raise RestoreBroke(
                f"{server}: K3s did not restore the snapshot: {said or f'exit {result.exit_status}'}; no server has "
                f"lost its datastore (K3s moves the old one to {DATASTORE}-old-TIME); {self.way_on}"
            )

    async def _put_away(self, name: str, restore_id: str) -> None:
        """Move the datastore of a server away, once. One that has joined again since has a new one, which stays."""
        away = f"{DB}-before-{restore_id}"
        if await self.servers.is_there(name, away):
            self.kept[name] = away
            return
        await self._stop(name)
        if await self.servers.is_there(name, DB):
            self.servers.tell(f"moving the datastore of {name} to {away}")
            await self._must(name, "mv", "-T", DB, away)
            await self._must(name, "sync", away)
            self.kept[name] = away

    async def _start(self) -> None:
        server = self.found.server
        if await self._is_ready():
            return
        self.servers.tell(f"starting K3s on {server}")
        await self._must(server, "systemctl", "enable", UNIT)
        await self._must(server, "systemctl", "restart", UNIT, seconds=STARTS_S)
        began = self.servers.clock.monotonic()
        while not await self._is_ready():
            waited = self.servers.clock.monotonic() - began
            if waited > STARTS_S:
                raise RestoreBroke(f"{server}: its API server does not become ready; {self.way_on}")
            await self.servers.clock.sleep(growing_pause_s(waited, 5.0))

    async def _begin_no_more(self) -> None:
        """Let the server join, and begin no cluster, should it ever start without its datastore (actions/k3s.py)."""
        token = (await self._must(self.found.server, "cat", SERVER_TOKEN)).stdout.strip()
        await self._file(TOKEN, f"{token}\n")
        await self._join_file({"server": endpoint_of(self.request.fleet), "token-file": TOKEN})

    async def _join_file(self, values: Mapping[str, object]) -> None:
        own = {"node-name": self.found.server, "node-taint": [f"{MARK_TAINT}=:NoSchedule"], **values}
        await self._file(JOIN, "".join(f"{key}: {json.dumps(value)}\n" for key, value in own.items()))

    async def _is_ready(self) -> bool:
        result = await self.servers.ask(self.found.server, *READY)
        return result.exit_status == 0 and result.stdout.strip() == "ok"

    async def _forget_others(self) -> None:
        """Delete the node objects of servers that have no datastore: they join as new members of etcd."""
        for name in (*self.found.others, *self.found.off):
            if name in self.found.others and await self.servers.is_there(name, DATASTORE):
                continue  # it has joined again
            await self._kubectl("delete", "node", name, "--ignore-not-found")
            if name in self.found.others and await self.servers.is_there(name, PASSWORD):
                continue
            secret = f"{name}.node-password.k3s"
            await self._kubectl("delete", "secret", secret, "--namespace", "kube-system", "--ignore-not-found")

    async def _strangers(self) -> tuple[str, ...]:
        listed = (await self._kubectl("get", "nodes", "--output", "name")).stdout.split()
        return tuple(sorted({name.removeprefix("node/") for name in listed} - set(self.request.fleet.nodes)))

    def _hold_those_off(self, restore_id: str) -> tuple[str, ...]:
        """Keep servers off that still have the old datastore: two of them would be the old cluster again."""
        reason = (
            f"it was off while cluster {self.request.cluster} was restored ({restore_id}), and its disk may hold the "
            f"old datastore: install it anew, or remove {DB} before K3s starts on it; then release it"
        )
        for name in self.found.off:
            if all(hold.subject != name or hold.owner != HOLDER for hold in self.ledger.holds()):
                self.ledger.hold(name, reason, HOLDER, None, self.servers.clock.now())
        return self.found.off

    def _release(self) -> bool:
        """Release the fleet, unless somebody has stopped it meanwhile. Return whether it was."""
        now = self.servers.clock.now()
        if any(hold.subject == FLEET and hold.owner != HOLDER for hold in self.ledger.holds()):
            return False
        self.ledger.release(FLEET, HOLDER, now)
        self.ledger.note(self.found.server, "restore", f"{self.request.cluster} from {self.found.path}", now)
        return True

    # --- commands ---

    async def _kubectl(self, *words: str) -> CommandResult:
        return await self._must(self.found.server, BINARY, "kubectl", *words)

    async def _file(self, path: str, text: str) -> None:
        """Write a file of the server with the snapshot, whole or not at all."""
        server = self.found.server
        await self._must(server, "mkdir", "-p", path.rpartition("/")[0])
        await self._must(server, "install", "-m", "600", "/dev/stdin", f"{path}.new", stdin=text)
        await self._must(server, "sync", f"{path}.new")
        await self._must(server, "mv", "-f", f"{path}.new", path)

    async def _must(self, server: str, *argv: str, seconds: float = 120.0, stdin: str = "") -> CommandResult:
        result = await self.servers.ask(server, *argv, seconds=seconds, stdin=stdin)
        if result.timed_out or result.exit_status:
            said = "took too long" if result.timed_out else result.stderr.strip()[-200:] or f"exit {result.exit_status}"
            raise RestoreBroke(f"{server}: {' '.join(argv[:4])}: {said}; {self.way_on}")
        return result
