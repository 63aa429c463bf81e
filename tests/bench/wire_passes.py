"""The observing process: `python -m tests.bench.wire_passes DIR PID` prints JSON, times in seconds.

DIR is the directory of a running lab, PID its process. It measures whole passes, like those of commands and the loop,
and then each source alone with its floor.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observe import observe
from reconciler.drivers.endpoints import load_endpoints
from reconciler.drivers.secrets import SecretStore
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observation, Silent
from reconciler.model.ports import Bmc
from reconciler.spec import load_spec
from tests.bench import measure
from tests.bench.wire_floors import RedfishFloor, SshFloor, kubectl_floor, recorded_gets

_TICK = os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, directory: Path, lab: int) -> None:
        self.directory = directory
        spec = directory / "fleet-spec"
        self.fleet = load_spec(spec, directory=str(spec))
        self.overlay = load_endpoints(directory / "endpoints.json")
        self.lab = lab
        self.at_once = self.fleet.settings.concurrency

    def fabric(self) -> WireFabric:
        return WireFabric(self.fleet, RealClock(), SecretStore.load(), self.overlay)

    async def all(self, work: Callable[[Desired], Awaitable[object]]) -> None:
        """Run `work` on every node, with the concurrency of a pass."""
        limit = asyncio.Semaphore(self.at_once)

        async def limited(node: Desired) -> None:
            async with limit:
                found = await work(node)
                assert not isinstance(found, Silent), found

        await asyncio.gather(*map(limited, self.fleet.nodes.values()))

    @asynccontextmanager
    async def into(self, table: dict[str, Any], name: str) -> AsyncIterator[None]:
        before = _cpu_of(self.lab)
        with measure.spending() as spent:
            yield
        lab = _cpu_of(self.lab) - before
        table[name] = {"wall": spent.wall, "cpu": spent.cpu, "children": spent.children, "lab": lab}

    # --- whole passes ----------------------------------------------------------------------------------------------

    async def passes(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        fabric, names = self.fabric(), list(self.fleet.nodes)
        clock = RealClock()

        async def look(previous: Observation | None) -> Observation:
            found = await observe(self.fleet, names, fabric, clock, previous=previous)
            for node in found.nodes.values():
                for reading in (node.hot, node.inventory, node.host, node.member):
                    assert isinstance(reading, Answered), reading
            return found

        async with self.into(table, "first: log in, hot and inventory"):
            found = await look(None)
        async with self.into(table, "second: hot, sessions kept"):
            found = await look(found)
        async with self.into(table, "third: hot, sessions kept"):
            await look(found)
        async with self.into(table, "fourth: hot and inventory"):
            await look(None)
        async with self.into(table, "end: log out"):
            await fabric.close()
        return table

    # --- source by source ------------------------------------------------------------------------------------------

    async def sources(self) -> dict[str, Any]:
        return await self._redfish() | await self._ssh() | await self._kubectl()

    async def _redfish(self) -> dict[str, Any]:
        fabric, probe = self.fabric(), self.fabric()
        floor = RedfishFloor(self.fleet, self.overlay, self.directory / "pki/bmc-ca.pem")
        table: dict[str, Any] = {}
        floors: dict[str, Any] = {}
        tiers: dict[str, Callable[[Bmc], Awaitable[object]]] = {
            "redfish hot, with login": lambda bmc: bmc.hot(),
            "redfish hot, session kept": lambda bmc: bmc.hot(),
            "redfish inventory, session kept": lambda bmc: bmc.inventory(),
        }
        asked: dict[str, list[str]] = {}
        for name, read in tiers.items():
            with recorded_gets() as asked[name]:
                await read(_bmc(probe, next(iter(self.fleet.nodes.values()))))
            async with self.into(table, name):
                await self.all(lambda node, read=read: read(_bmc(fabric, node)))  # type: ignore[misc]
            async with self.into(floors, name):
                await asyncio.to_thread(floor.get_all, asked[name], self.at_once)
        await probe.close()
        async with self.into(table, "redfish logout"):
            await fabric.close()
        floor.close()
        beside = {name: {"floor": one["cpu"], "gets": len(asked[name])} for name, one in floors.items()}
        return {name: {"ours": one["cpu"]} | beside.get(name, {}) for name, one in table.items()}

    async def _ssh(self) -> dict[str, Any]:
        fabric, floor = self.fabric(), SshFloor(self.fleet, self.overlay)
        table: dict[str, Any] = {}
        floors: dict[str, Any] = {}
        for name in ("ssh facts, with login", "ssh facts, connection kept"):
            async with self.into(table, name):
                await self.all(lambda node: _facts(fabric, node))
            async with self.into(floors, name):
                await floor.ask_all(self.at_once)
        await fabric.close()
        await floor.close()
        return {name: {"ours": table[name]["cpu"], "floor": floors[name]["cpu"]} for name in table}

    async def _kubectl(self) -> dict[str, Any]:
        cluster = self.fabric().cluster()
        access = self.fleet.settings.cluster
        if cluster is None or access is None or shutil.which("kubectl") is None:
            return {}
        table: dict[str, Any] = {}
        for name in ("first", "kept"):
            async with self.into(table, name):
                assert isinstance(await cluster.state(), Answered)
        async with self.into(table, "floor"):
            await asyncio.to_thread(kubectl_floor, self.overlay.kubeconfig(access.name))
        total = {name: one["cpu"] + one["children"] for name, one in table.items()}
        return {
            "kubectl, with version": {"ours": total["first"], "floor": total["floor"]},
            "kubectl, version known": {"ours": total["kept"], "floor": total["floor"]},
        }


def _bmc(fabric: WireFabric, node: Desired) -> Bmc:
    bmc = fabric.bmc(node)
    assert bmc is not None
    return bmc


async def _facts(fabric: WireFabric, node: Desired) -> object:
    host, wanted = fabric.host(node), node.profile.host
    assert host is not None
    return await host.facts(tuple(wanted.sysctls), tuple(wanted.services))


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def _measured(bench: Bench) -> dict[str, Any]:
    return {"passes": await bench.passes(), "sources": await bench.sources()}


if __name__ == "__main__":
    json.dump(asyncio.run(_measured(Bench(Path(sys.argv[1]), int(sys.argv[2])))), sys.stdout)
