"""Take a whole K3s cluster away: every node gives up what K3s made on it, agents first and servers last.

The fleet is held from before the first node until all of them are done, so that nothing puts K3s back meanwhile. Each
step may be repeated, so a teardown that was killed goes on with the same command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler.converge.guarded_ports import known
from reconciler.converge.k3s_birth import server_names
from reconciler.converge.k3s_hosts import K3sHosts, answers_root, k3s_hosts, quiet
from reconciler.converge.lease import held_lease
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, PartlyDone, Refused
from reconciler.model.k3s import NONE, K3sFacts
from reconciler.model.k3s_removal import REMOVAL
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import FLEET, NO_CLUSTER
from reconciler.model.vocab import NodeState

HOLDER: Final = "reconciler cluster teardown"
REMOVAL_S: Final = 900.0
NOTHING: Final = K3sFacts("", {}, {}, (), datastore=False, restart=NONE, renewal=NONE)


class TeardownBroke(PartlyDone):
    """Some nodes still have K3s. The fleet stays held, and the same command goes on."""


@dataclass(frozen=True, slots=True)
class TeardownRequest:
    """`cluster`: its name, for messages. `holder`: as in ApplyRequest."""

    fleet: Fleet
    cluster: str
    holder: str


@dataclass(frozen=True, slots=True)
class TornDown:
    """The end of a cluster. `kept`: node -> what is still there, as its host told: mounts with what is on them.

    `untouched`: nodes that are not active, and may have K3s still. `database`: the one that has the cluster's state
    still; "" = it was in etcd, and is gone. `bucket`: where copies of snapshots of etcd still are; "" = nowhere.
    """

    nodes: tuple[str, ...]
    kept: Mapping[str, tuple[str, ...]]
    untouched: tuple[str, ...]
    database: str = ""
    bucket: str = ""


def concerned(fleet: Fleet) -> tuple[list[str], list[str], list[str]]:
    """Return agents and servers that are active, and the other nodes of the cluster, in order."""
    wanted = sorted(name for name, node in fleet.nodes.items() if node.profile.k3s is not None)
    active = [name for name in wanted if fleet.nodes[name].state is NodeState.ACTIVE]
    servers = server_names(fleet)
    agents = [name for name in active if name not in servers]
    return agents, list(servers), [name for name in wanted if name not in active]


def bucket_of(fleet: Fleet) -> str:
    """Return where snapshots of etcd are copied to, BUCKET/FOLDER; "" = nowhere."""
    found = (node.profile.k3s for node in fleet.nodes.values() if node.profile.k3s is not None)
    return next((one.bucket for one in found if one.bucket), "")


def database_of(fleet: Fleet) -> str:
    """Return where the database of the cluster is, HOST:PORT; "" = its state is in etcd."""
    found = (node.profile.k3s for node in fleet.nodes.values() if node.profile.k3s is not None)
    return next((one.database for one in found if one.external), "")


async def tear_down(
    request: TeardownRequest, *, fabric: Fabric, ledger: Ledger, clock: Clock, tell: Callable[[str], None] = quiet
) -> TornDown:
    """Take the cluster away, or go on with a teardown that died.

    Raise Refused before anything is changed, TeardownBroke after, LeaseHeld and LedgerError as in model.errors.
    """
    fleet = request.fleet
    if any(node.profile.k3s is not None and node.profile.k3s.bootstrap for node in fleet.nodes.values()):
        raise Refused("the spec says `bootstrap: true`, so the next run would begin a new cluster: take it away first")
    agents, servers, untouched = concerned(fleet)
    async with held_lease(ledger, fleet.settings.fleet, request.holder, clock) as lease:
        hosts = replace(k3s_hosts(fleet, [*agents, *servers], fabric, clock, lease), tell=tell)
        _check_holds(ledger, [*agents, *servers])
        off = [name for name in (*agents, *servers) if not await answers_root(hosts, name)]
        if off:
            raise Refused(f"{', '.join(off)}: off, so K3s can't be taken from there: switch on, or quarantine")
        if all(hold.subject != FLEET for hold in ledger.holds()):
            reason = f"cluster {request.cluster} is taken away; {_way_on(request)}"
            ledger.hold(FLEET, reason, HOLDER, None, clock.now())
        work = _Teardown(request, hosts, fabric, ledger)
        kept = await work.all_of(agents)
        for name in reversed(servers):
            kept |= await work.all_of([name])
        names = (*agents, *servers)
        if all(hold.subject != FLEET or hold.owner == HOLDER for hold in ledger.holds()):
            ledger.release(FLEET, HOLDER, clock.now())
        return TornDown(names, kept, tuple(untouched), database_of(fleet), bucket_of(fleet))


def _way_on(request: TeardownRequest) -> str:
    return f"the fleet stays held, and the same command goes on: reconciler cluster teardown {request.cluster}"


def _check_holds(ledger: Ledger, names: Sequence[str]) -> None:
    for hold in ledger.holds():
        if hold.owner != HOLDER and hold.subject in (FLEET, *names):
            what = "stopped" if hold.subject == FLEET else f"{hold.subject} is held"
            raise Refused(f"nothing is done: {what} by {hold.owner}: {hold.reason}")


@dataclass(frozen=True, slots=True)
class _Teardown:
    request: TeardownRequest
    hosts: K3sHosts
    fabric: Fabric
    ledger: Ledger

    async def all_of(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Take K3s from these nodes at once. Raise TeardownBroke with all that failed."""
        limit = asyncio.Semaphore(self.request.fleet.settings.concurrency)

        async def one(name: str) -> tuple[str, ...] | str:
            async with limit:
                try:
                    return await self._take_from(name)
                except DriverError as error:
                    return f"{name}: {error}"

        ends = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
        if broken := [end for end in ends.values() if isinstance(end, str)]:
            raise TeardownBroke(f"{'; '.join(broken)}; {_way_on(self.request)}")
        return {name: kept for name, kept in ends.items() if isinstance(kept, tuple) and kept}

    async def _take_from(self, name: str) -> tuple[str, ...] | str:
        """Return what is still there, or why K3s is.

        The ledger learns of each node by itself, so that a teardown that dies half-way sets no storm brake. Of an agent
        it learns before, as many lose K3s at once; of a server only after, as one of which it knows is believed empty.
        """
        if name not in server_names(self.request.fleet):
            self._expect_no_cluster(name)
        self.hosts.tell(f"taking K3s from {name}")
        result = await self.hosts.ask(name, "sh", "-c", REMOVAL, seconds=REMOVAL_S)
        lines = result.stdout.splitlines()
        if result.timed_out or result.exit_status or lines[-1:] != ["end"]:
            return f"{name}: {result.stderr.strip()[-300:] or f'exit {result.exit_status}'}"
        host = self.fabric.host(self.request.fleet.nodes[name])
        found = None if host is None else known(await host.facts((), ())).k3s
        if found != NOTHING:
            return f"{name}: K3s was removed, and its host still shows {found}"
        self._expect_no_cluster(name)  # of an agent again: a look that saw it Ready meanwhile took that back
        self.ledger.note(name, "teardown", f"of cluster {self.request.cluster}", self.hosts.clock.now())
        return tuple(line for line in lines if line.startswith(("kept ", "left ")))

    def _expect_no_cluster(self, name: str) -> None:
        self.ledger.note_silences([(name, NO_CLUSTER, True)], self.hosts.clock.now())
