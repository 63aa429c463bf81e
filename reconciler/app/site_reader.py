"""The drivers of one site, as a worker of an engine keeps them: for each fleet, by how it reaches its nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler.app.wire_fabric import WireFabric, connection_settings
from reconciler.app.workspace import Workspace
from reconciler.converge.observer import InProcessObserver
from reconciler.model.desired import Desired, Fleet, Settings, SpecSource
from reconciler.model.observer_port import Observer, ObserveShard

# Wall clock: after which nobody comes back under these settings; for a fleet that has come with other ones since, much
# sooner: a BMC has few sessions, and would be left with two of ours.
IDLE_S: Final = 3600.0
REPLACED_S: Final = 600.0


@dataclass(slots=True)
class _Reached:
    """A fleet with its nodes and fabric. `revoked` is the list that the fabric reads at each connection."""

    fleet: Fleet
    nodes: dict[str, Desired]
    fabric: WireFabric
    observer: InProcessObserver
    revoked: list[str]
    used: float


class WireSiteReader:
    """Reads nodes with the secrets and the clock of the workspace that its worker was started with."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._reached: list[_Reached] = []

    async def observer(self, shard: ObserveShard, revoked: Sequence[str]) -> Observer:
        """Return what reads this shard. Sessions stay open, but for nodes at another address than before."""
        one = self._of(shard.settings) or self._reach(shard.settings)
        one.used = time.monotonic()
        one.revoked[:] = revoked
        known, before = one.nodes, one.fleet.settings
        new = {name: node for name, node in shard.nodes.items() if name not in known}
        if before != shard.settings or any(
            name not in new and known[name].endpoints != node.endpoints for name, node in shard.nodes.items()
        ):
            one.nodes = {**known, **shard.nodes}
            one.fleet = replace(one.fleet, settings=shard.settings, nodes=one.nodes)
            if before.concurrency != shard.settings.concurrency:
                one.observer = self._observer(one.fabric, shard.settings)
            await one.fabric.refit(one.fleet)
        else:
            known.update(new)  # nothing of theirs is open, and to refit looks at all nodes: with each shard of a site
        idle = [other for other in self._reached if one.used - other.used > _kept_s(one, other)]
        self._reached = [other for other in self._reached if other not in idle]
        await asyncio.gather(*(other.fabric.close() for other in idle))
        return one.observer

    def insecure_logins(self, shard: ObserveShard) -> tuple[str, ...]:
        one = self._of(shard.settings)
        found = () if one is None else one.fabric.insecure_logins()
        return tuple(f"site {shard.site}: {sentence}" for sentence in found)

    def conceal(self, text: str) -> str:
        return self._workspace.secrets.conceal(text)

    async def close(self) -> None:
        reached, self._reached = self._reached, []
        await asyncio.gather(*(one.fabric.close() for one in reached))

    def _of(self, settings: Settings) -> _Reached | None:
        return next((one for one in self._reached if _reaches_alike(one.fleet.settings, settings)), None)

    def _reach(self, settings: Settings) -> _Reached:
        space, revoked = self._workspace, list[str]()
        nodes: dict[str, Desired] = {}
        fleet = Fleet(settings, SpecSource(""), nodes, "")
        fabric = WireFabric(fleet, space.clock, space.secrets, space.overlay, revoked=revoked)
        made = _Reached(fleet, nodes, fabric, self._observer(fabric, settings), revoked, time.monotonic())
        self._reached.append(made)
        return made

    def _observer(self, fabric: WireFabric, settings: Settings) -> InProcessObserver:
        return InProcessObserver(fabric, self._workspace.clock, asyncio.Semaphore(settings.concurrency))


def _reaches_alike(one: Settings, other: Settings) -> bool:
    return one.fleet == other.fleet and connection_settings(one) == connection_settings(other)


def _kept_s(one: _Reached, other: _Reached) -> float:
    return REPLACED_S if one.fleet.settings.fleet == other.fleet.settings.fleet else IDLE_S
