"""Read everything that plans are made from, from all sources at once, with a result for every node.

A source that fails, hangs or is cut off costs its own answer and nothing else. Redfish is read in two tiers, to spare
BMCs (DESIGN 5): the hot facts in each pass, the inventory when something says that it may have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from reconciler.converge.deadline import within
from reconciler.converge.events import NodeObserved, Progress, ignore
from reconciler.health import bmc as bmc_health
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.desired import Desired, Fleet, Settings
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import (
    Answered,
    ClusterState,
    HostFacts,
    Member,
    Observation,
    Observed,
    RedfishHot,
    RedfishInventory,
    Silent,
)
from reconciler.model.ports import Bmc, Clock, Cluster, Fabric, Host, ReleaseStore
from reconciler.model.releases import ReleaseFacts
from reconciler.model.units import format_duration
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason

T = TypeVar("T")

OBSERVATION_FORMAT = "1.0"
INVENTORY_DEADLINES = 4  # a BMC that can't expand collections is asked a hundred times and more
RELEASE_DEADLINES = 6  # a chart may have to be fetched first
IN_DOUBT_S = 900.0  # how old an inventory gets while the BMC says that something is wrong
UNHURRIED_READS = 16  # nodes at once in a pass that leaves time for others: a read that has begun is not put off
OFF_GRACE_S = 1.0  # wall clock: what a host has to accept a connection once its BMC said that it is off; BMCs lie
LEAST_REAL_S = 5.0  # a scaled clock shortens deadlines; loopback servers, kubectl and threads stay as slow as they are

_REASONS = {
    Failure.UNREACHABLE: UnknownReason.UNREACHABLE,
    Failure.AUTH: UnknownReason.AUTH,
    Failure.TIMEOUT: UnknownReason.TIMEOUT,
    Failure.MALFORMED: UnknownReason.MALFORMED,
    Failure.UNSUPPORTED: UnknownReason.UNSUPPORTED,
    Failure.REJECTED: UnknownReason.UNSUPPORTED,
    Failure.BUSY: UnknownReason.BUSY,
    Failure.CONFLICT: UnknownReason.UNREACHABLE,
    Failure.AMBIGUOUS: UnknownReason.TIMEOUT,
}
_EXPLAINING = frozenset({BootPhase.OFF, BootPhase.POST, BootPhase.OS_BOOTING})


async def observe(
    fleet: Fleet,
    nodes: Sequence[str],
    fabric: Fabric,
    clock: Clock,
    *,
    previous: Observation | None = None,
    fresh_inventory: bool = False,
    progress: Progress = ignore,
    time_scale: float = 1.0,
    over_s: float = 0.0,
) -> Observation:
    """Read `nodes` from all sources at once, and the cluster in one bulk read.

    The observation also has the membership of the fleet's other nodes, or why it is unknown: they count against the
    budget. `fresh_inventory`: read the inventory whatever its age. `over_s`: seconds of fleet time over which to spread
    the reads of nodes; the cluster is then read last.
    """
    settings = fleet.settings
    started_at = clock.now()
    limit = asyncio.Semaphore(min(settings.concurrency, UNHURRIED_READS) if over_s else settings.concurrency)
    readings: dict[str, _Own] = {}

    async def read(name: str, after_s: float) -> None:
        if after_s:
            await clock.sleep(after_s)
        before = None if fresh_inventory or previous is None else previous.nodes.get(name)
        async with limit:
            readings[name] = await _own_readings(fleet.nodes[name], fabric, clock, settings, before)
        progress(NodeObserved(name, len(readings), len(nodes)))

    async with asyncio.TaskGroup() as group:
        cluster = group.create_task(_read_cluster(fabric.cluster(), clock, settings, after_s=over_s))
        store = fabric.releases() if settings.releases else None
        releases = group.create_task(read_releases(store, settings, clock))
        for at, name in enumerate(nodes):
            group.create_task(read(name, over_s * at / len(nodes)))
    state = cluster.result()
    versions = ("", "") if isinstance(state, Silent) else (state.value.server_version, state.value.client_version)
    return Observation(
        format_version=OBSERVATION_FORMAT,
        fleet=settings.fleet,
        spec_commit=fleet.source.commit,
        started_at=started_at,
        finished_at=clock.now(),
        nodes={name: Observed(name, *readings[name], _member_of(name, state)) for name in nodes}
        | _memberships(fleet, readings.keys(), state, started_at),
        cluster_version=versions[0],
        kubectl_version=versions[1],
        insecure=(*settings.insecure, *fabric.insecure_logins()),
        time_scale=time_scale,
        control_plane=control_plane(state),
        releases=releases.result(),
    )


async def read_releases(
    store: ReleaseStore | None, settings: Settings, clock: Clock
) -> dict[str, Answered[ReleaseFacts] | Silent]:
    """Read each declared Helm release, one after the other: each costs a few children."""
    found: dict[str, Answered[ReleaseFacts] | Silent] = {}
    for wanted in settings.releases:
        if store is None:
            found[wanted.name] = Silent(clock.now(), UnknownReason.UNSUPPORTED, "this cluster takes no Helm releases")
            continue
        look = partial(store.look, wanted)
        found[wanted.name] = await answer(
            look, RELEASE_DEADLINES * settings.kubernetes_deadline_s, clock, node=wanted.name
        )
    return found


async def observe_node(
    desired: Desired,
    fabric: Fabric,
    clock: Clock,
    settings: Settings,
    *,
    previous: Observed | None = None,
) -> Observed:
    """Read one node for a decision, with its node object. `previous`: None = read its inventory anew as well."""
    async with asyncio.TaskGroup() as group:
        own = group.create_task(_own_readings(desired, fabric, clock, settings, previous))
        member = group.create_task(_read_member(desired.node, fabric.cluster(), clock, settings))
    return Observed(desired.node, *own.result(), member.result())


def io_seconds(clock: Clock, seconds: float) -> float:
    """Return the wall-clock seconds of an I/O deadline that is given in fleet time."""
    return max(LEAST_REAL_S, clock.real_seconds(seconds))


_Host = Answered[HostFacts] | Silent
_Own = tuple[Answered[RedfishHot] | Silent, Answered[RedfishInventory] | Silent, _Host]


async def _own_readings(
    desired: Desired, fabric: Fabric, clock: Clock, settings: Settings, before: Observed | None
) -> _Own:
    """Read the BMC and the host. A bug while reading costs this node its readings and no other node (invariant 22)."""

    def nothing(crash: Crash) -> _Own:
        silent = _crashed(clock, crash)
        return silent, silent, silent

    return await of_its_own_async(
        desired.node, "reading it", lambda: _read_node(desired, fabric, clock, settings, before), nothing
    )


async def _read_node(
    desired: Desired, fabric: Fabric, clock: Clock, settings: Settings, before: Observed | None
) -> _Own:
    bmc, answers = fabric.bmc(desired), fabric.host(desired)
    async with asyncio.TaskGroup() as group:
        ssh = group.create_task(_read_host(answers, desired, clock, settings))

        def powered_off() -> None:
            if answers is not None:
                group.create_task(_end_unless_reached(ssh, answers))

        redfish = group.create_task(_read_redfish(desired, bmc, clock, settings, before, powered_off))
    hot, inventory = redfish.result()
    host = Silent(clock.now(), UnknownReason.UNREACHABLE, "no connection") if ssh.cancelled() else ssh.result()
    if bmc is not None and before is not None and inventory is before.inventory and _rebooted(before, host):
        inventory = await _read_inventory(bmc, clock, settings, desired.node)
    return hot, inventory, _explain(host, hot)


async def _end_unless_reached(ssh: asyncio.Task[_Host], host: Host) -> None:
    """Wait no longer for a host of which its BMC says that it is off. One that accepts connections has all its time."""
    await asyncio.wait({ssh}, timeout=OFF_GRACE_S)
    if not host.reached:
        ssh.cancel()


async def _read_redfish(
    desired: Desired,
    bmc: Bmc | None,
    clock: Clock,
    settings: Settings,
    before: Observed | None,
    powered_off: Callable[[], None],
) -> tuple[Answered[RedfishHot] | Silent, Answered[RedfishInventory] | Silent]:
    if bmc is None:
        silent = Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no BMC for this node")
        return silent, silent
    hot = await answer(bmc.hot, settings.redfish_deadline_s, clock, node=desired.node)
    if isinstance(hot, Silent):
        return hot, Silent(hot.at, hot.reason, hot.detail)
    if hot.value.power is Power.OFF:
        powered_off()
    kept = _still_good(desired, before, hot, clock, settings)
    return hot, kept or await _read_inventory(bmc, clock, settings, desired.node)


async def _read_inventory(bmc: Bmc, clock: Clock, settings: Settings, node: str) -> Answered[RedfishInventory] | Silent:
    return await answer(bmc.inventory, INVENTORY_DEADLINES * settings.redfish_deadline_s, clock, node=node)


def _rebooted(before: Observed, host: _Host) -> bool:
    """Return whether the host restarted since, which may bring staged settings and firmware into force."""
    if isinstance(host, Silent) or isinstance(before.host, Silent):
        return False
    return before.host.value.boot_id != host.value.boot_id


def _still_good(
    desired: Desired, before: Observed | None, hot: Answered[RedfishHot], clock: Clock, settings: Settings
) -> Answered[RedfishInventory] | None:
    """Return the inventory of an earlier pass, with its own time, unless something says that it changed since."""
    if before is None or isinstance(before.inventory, Silent) or isinstance(before.hot, Silent):
        return None
    if _moved(before.hot.value, hot.value):
        return None
    ill = hot.value.health not in (None, Health.OK) or any(bmc_health.bmc_signals(desired.profile, before))
    oldest = min(IN_DOUBT_S, settings.inventory_max_age_s) if ill else settings.inventory_max_age_s
    age = (clock.now() - before.inventory.at).total_seconds()  # below 0: the clock was set back, so its age is unknown
    return before.inventory if 0 <= age <= oldest else None


def _moved(before: RedfishHot, now: RedfishHot) -> bool:
    """Return whether the BMC reports a change of the machine. During a boot it does not see all parts."""
    up = now.boot_phase is BootPhase.OS_RUNNING and before.boot_phase in _EXPLAINING
    return up or (before.etag, before.health, before.power) != (now.etag, now.health, now.power)


async def _read_host(host: Host | None, desired: Desired, clock: Clock, settings: Settings) -> _Host:
    if host is None:
        return Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no host address for this node")
    wanted = desired.profile.host
    return await answer(
        lambda: host.facts(tuple(wanted.sysctls), tuple(wanted.services)),
        settings.ssh_deadline_s,
        clock,
        node=desired.node,
    )


def _explain(host: _Host, hot: Answered[RedfishHot] | Silent) -> _Host:
    """Explain a silent host by its BMC, which may say that it is off or still booting. That explains no bug of ours."""
    if isinstance(host, Answered) or isinstance(hot, Silent):
        return host
    if host.reason in (UnknownReason.NOT_ASKED, UnknownReason.CRASHED):
        return host
    if hot.value.power is Power.OFF:
        return Silent(host.at, UnknownReason.EXPLAINED, "powered off")
    if hot.value.boot_phase in _EXPLAINING:
        return Silent(host.at, UnknownReason.EXPLAINED, f"in {hot.value.boot_phase}")
    return host


async def _read_cluster(
    cluster: Cluster | None, clock: Clock, settings: Settings, *, after_s: float
) -> Answered[ClusterState] | Silent:
    if cluster is None:
        return _no_cluster(clock)
    if after_s:
        await clock.sleep(after_s)
    return await answer(cluster.state, settings.kubernetes_deadline_s, clock)


def control_plane(state: Answered[ClusterState] | Silent) -> dict[str, bool]:
    """Return the members of the cluster's control plane: name -> Ready."""
    members = {} if isinstance(state, Silent) else state.value.members
    return {name: bool(member.ready) for name, member in members.items() if member.control_plane}


def _member_of(name: str, state: Answered[ClusterState] | Silent) -> Answered[Member | None] | Silent:
    return state if isinstance(state, Silent) else Answered(state.at, state.value.members.get(name))


def _memberships(
    fleet: Fleet, read: Container[str], state: Answered[ClusterState] | Silent, at: datetime
) -> dict[str, Observed]:
    """Return an entry for each node that is not read, whether the cluster knows the node or not."""
    skipped = Silent(at, UnknownReason.NOT_ASKED, "not selected")
    return {
        name: Observed(name, skipped, skipped, skipped, _member_of(name, state))
        for name in fleet.nodes
        if name not in read
    }


async def _read_member(
    name: str, cluster: Cluster | None, clock: Clock, settings: Settings
) -> Answered[Member | None] | Silent:
    if cluster is None:
        return _no_cluster(clock)

    async def read() -> Answered[Member | None] | Silent:
        return Answered(clock.now(), await cluster.member(name))

    return await answer(read, settings.kubernetes_deadline_s, clock, node=name)


def _crashed(clock: Clock, crash: Crash) -> Silent:
    return Silent(clock.now(), UnknownReason.CRASHED, crash.sentence)


def _no_cluster(clock: Clock) -> Silent:
    return Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no cluster")


async def answer(
    read: Callable[[], Awaitable[Answered[T] | Silent]], deadline_s: float, clock: Clock, *, node: str = "the cluster"
) -> Answered[T] | Silent:
    """Return what one source answers within its deadline, or Silent with the reason.

    A read that somebody else cancels is silence too, and so is one that crashes in our own code: the other sources are
    read all the same (invariant 22).
    """

    async def told() -> Answered[T] | Silent:
        try:
            return await read()
        except DriverError as error:
            return Silent(clock.now(), _REASONS[error.kind], error.detail)
        except TimeoutError:
            return late()

    def late() -> Silent:
        return Silent(clock.now(), UnknownReason.TIMEOUT, f"no answer within {format_duration(deadline_s)}")

    understood = of_its_own_async(node, "reading it", told, lambda crash: _crashed(clock, crash))
    try:
        return await within(io_seconds(clock, deadline_s), understood)
    except TimeoutError:
        return late()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Silent(clock.now(), UnknownReason.UNREACHABLE, "the read was cut off")
