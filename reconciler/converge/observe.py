"""Read everything that plans are made from, from all sources at once, with a result for every node.

A source that fails, hangs or is cut off costs its own answer and nothing else. Redfish is read in two tiers, to spare
BMCs (DESIGN 5): the hot facts in each pass, the inventory when something says that it may have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial

from reconciler.converge.answer import answer as answer
from reconciler.converge.answer import io_seconds as io_seconds
from reconciler.converge.events import NodeObserved, PassEnded, Progress, ignore
from reconciler.converge.node_readings import IN_DOUBT_S as IN_DOUBT_S
from reconciler.converge.node_readings import OFF_GRACE_S as OFF_GRACE_S
from reconciler.converge.node_readings import own_readings
from reconciler.converge.observer import InProcessObserver, shards_of
from reconciler.model.desired import Desired, Fleet, Settings
from reconciler.model.observed import Answered, ClusterState, Member, Observation, Observed, Silent
from reconciler.model.observer_port import Readings
from reconciler.model.ports import Clock, Cluster, Fabric, ReleaseStore
from reconciler.model.releases import ReleaseFacts
from reconciler.model.silences import silences
from reconciler.model.vocab import UnknownReason

OBSERVATION_FORMAT = "1.0"
RELEASE_DEADLINES = 6  # a chart may have to be fetched first


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
    before = {} if fresh_inventory or previous is None else previous.nodes
    shards = shards_of(fleet, nodes, before, clock, over_s)
    observer = fabric.observer() or InProcessObserver(fabric, clock)
    readings: dict[str, Readings] = {}
    logins: dict[str, None] = {}  # sentences of workers, each once

    async def read() -> None:
        async with aclosing(observer.observe(shards)) as parts:
            async for seen in parts:
                logins.update(dict.fromkeys(seen.insecure))
                for name, own in seen.nodes.items():
                    readings[name] = own
                    progress(NodeObserved(name, len(readings), len(nodes)))

    async with asyncio.TaskGroup() as group:
        cluster = group.create_task(_read_cluster(fabric.cluster(), clock, settings, after_s=over_s))
        store = fabric.releases() if settings.releases else None
        releases = group.create_task(read_releases(store, settings, clock))
        group.create_task(read())
    state = cluster.result()
    versions = ("", "") if isinstance(state, Silent) else (state.value.server_version, state.value.client_version)
    read_nodes = {name: Observed(name, *readings[name], _member_of(name, state)) for name in nodes}
    progress(PassEnded(silences(read_nodes, nodes)))
    return Observation(
        format_version=OBSERVATION_FORMAT,
        fleet=settings.fleet,
        spec_commit=fleet.source.commit,
        started_at=started_at,
        finished_at=clock.now(),
        nodes=read_nodes | _memberships(fleet, readings.keys(), state, started_at),
        cluster_version=versions[0],
        kubectl_version=versions[1],
        insecure=(*settings.insecure, *fabric.insecure_logins(), *logins),
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
        own = group.create_task(own_readings(desired, fabric, clock, settings, previous))
        member = group.create_task(_read_member(desired.node, fabric.cluster(), clock, settings))
    return Observed(desired.node, *own.result(), member.result())


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


def _no_cluster(clock: Clock) -> Silent:
    return Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no cluster")
