"""Tell a K3s cluster that does not exist yet from one that is silent.

A silent API server proves nothing, and a second cluster beside the first would split the fleet. So a cluster counts as
unborn only where the spec says `bootstrap: true` and every server was asked and has no datastore: neither etcd, nor
SQLite, nor keys beside the name of a database. A server that does not answer counts as one without a datastore if the
spec says that its machine is `provision: blank`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Final, Protocol

from reconciler.model.adjustment_port import Adjustments
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import K3sRole
from reconciler.model.k3s_datastore import PROBE, is_begun
from reconciler.model.ledger_ports import NodeStore
from reconciler.model.observed import Answered, ClusterState, Member, Pod, Silent, Taint
from reconciler.model.ports import Clock, Cluster
from reconciler.model.records import NO_CLUSTER, Mark
from reconciler.model.vocab import NodeState, Provision, SignalTo

BIRTH_S: Final = 600.0
EMPTY_FOR: Final = timedelta(hours=24)  # what a teardown emptied is believed to be empty while it is silent
_ASK_S: Final = 30.0


class Asked(Protocol):
    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult: ...


@dataclass(frozen=True, slots=True)
class K3sServer:
    """A server of the spec. `host` None: it has no address. `blank`: the spec says that nothing is on its machine.

    `external`: it is to keep the cluster's state in a database.
    """

    name: str
    host: Asked | None
    blank: bool = False
    external: bool = False


def servers_of(fleet: Fleet, host: Callable[[Desired], Asked | None]) -> list[K3sServer]:
    """Return the servers of the fleet's K3s cluster, in order, each of which is asked over its `host`."""
    found = []
    for node in (fleet.nodes[name] for name in server_names(fleet)):
        external = node.profile.k3s is not None and node.profile.k3s.external
        found.append(K3sServer(node.node, host(node), node.provision is Provision.BLANK, external))
    return found


def is_awaited(fleet: Fleet) -> bool:
    """Return whether the spec consents to begin a new cluster."""
    return any(node.profile.k3s is not None and node.profile.k3s.bootstrap for node in fleet.nodes.values())


def server_names(fleet: Fleet) -> tuple[str, ...]:
    """Return the active servers of the fleet's K3s cluster, in order."""
    return tuple(
        name
        for name, node in sorted(fleet.nodes.items())
        if node.profile.k3s is not None and node.profile.k3s.role is K3sRole.SERVER and node.state is NodeState.ACTIVE
    )


def endpoint_of(fleet: Fleet) -> str:
    """Return the URL of the fleet's K3s cluster; "" where it has none."""
    found = (node.profile.k3s for node in fleet.nodes.values())
    return next((one.endpoint for one in found if one is not None), "")


async def is_unborn(servers: Sequence[K3sServer], clock: Clock) -> bool:
    """Return whether it is proved that no server has a datastore."""
    return bool(servers) and all([await _has_none(server, clock) for server in servers])


async def _has_none(server: K3sServer, clock: Clock) -> bool:
    if server.host is None:
        return False
    timeout = max(2.0, clock.real_seconds(_ASK_S))
    try:
        user = await server.host.run(("id", "-u"), timeout=timeout)
        found = await server.host.run(("sh", "-c", PROBE), timeout=timeout)
    except DriverError:
        return server.blank
    # Without root the directory can't be searched, and everything in it seems absent.
    root = user.exit_status == 0 and user.stdout.strip() == "0"
    lines = found.stdout.splitlines()
    return root and not found.timed_out and lines[-1:] == ["end"] and not is_begun(lines, external=server.external)


@dataclass(slots=True)
class Birth:
    """Facts about a cluster that is to begin, whichever port is used.

    `ledger`: knows from which servers a teardown took K3s. `until`: till when, by the monotonic clock, a cluster that
    was proved unborn may be silent, as its first server starts: its datastore is there at once, and its API server only
    minutes later. Meanwhile the other nodes are no more in a cluster than before. `answered`: how often the cluster has
    answered, so that what was proved before it did counts for nothing after.
    """

    ledger: NodeStore | None = None
    until: float = -inf
    answered: int = 0

    def has_answered(self) -> None:
        """From now on, silence is silence."""
        self.answered += 1
        self.until = -inf


class AwaitedCluster:
    """A K3s cluster, which the spec may want to begin: until it answers for the first time, it has no member.

    `servers`: asked each time. `awaited`: whether the spec consents to a new cluster. `prepare`: called before each
    read, so that the cluster can be reached.
    """

    def __init__(
        self,
        cluster: Cluster,
        servers: Callable[[], Sequence[K3sServer]],
        clock: Clock,
        birth: Birth,
        *,
        awaited: Callable[[], bool],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._servers = servers
        self._clock = clock
        self._birth = birth
        self._awaited = awaited
        self._prepare = prepare

    async def _is_unborn(self) -> bool:
        if not self._awaited():
            return False
        answered, began = self._birth.answered, self._clock.monotonic()
        unborn = await is_unborn([self._as_known(server) for server in self._servers()], self._clock)
        if unborn and self._birth.answered == answered:
            self._birth.until = began + BIRTH_S
        return self._clock.monotonic() < self._birth.until

    def _as_known(self, server: K3sServer) -> K3sServer:
        """Say of a server that a teardown emptied, and that no join of ours began since, that nothing is on it.

        It may be silent since its image is being written. To begin the cluster, every server is asked all the same.
        After EMPTY_FOR it has to tell so itself: somebody else may have put something on it.
        """
        if self._birth.ledger is None:
            return server
        since = self._birth.ledger.node(server.name).silent_since.get(NO_CLUSTER)
        emptied = since is not None and self._clock.now() - since < EMPTY_FOR
        return replace(server, blank=server.blank or emptied)

    async def state(self) -> Answered[ClusterState] | Silent:
        if self._prepare is not None:
            await self._prepare()
        found = await self._cluster.state()
        if isinstance(found, Silent) and await self._is_unborn():
            return Answered(found.at, ClusterState("", "", {}))
        if isinstance(found, Answered):
            self._birth.has_answered()
        return found

    async def member(self, node: str, *, cached: bool = False) -> Member | None:
        if self._prepare is not None:
            await self._prepare()
        try:
            found = await self._cluster.member(node, cached=cached)
        except DriverError:
            if await self._is_unborn():
                return None
            raise
        self._birth.has_answered()
        return found

    async def mark(self, member: Member, mark: Mark) -> None:
        await self._cluster.mark(member, mark)

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        await self._cluster.unmark(member, uncordon=uncordon)

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        await self._cluster.set_labels(member, labels, taints)

    async def remove(self, member: Member) -> None:
        await self._cluster.remove(member)

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._cluster.evict(pod, grace_s=grace_s)

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._cluster.delete(pod, grace_s=grace_s)

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        await self._cluster.annotate(pod, annotations)

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:
        await self._cluster.post(pod, port, path, body)

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:
        await self._cluster.signal(pod, name, to)

    async def answers(self, pod: Pod, port: int, path: str) -> bool:
        return await self._cluster.answers(pod, port, path)

    def adjustments(self) -> Adjustments | None:
        return self._cluster.adjustments()


_cluster: type[Cluster] = AwaitedCluster
