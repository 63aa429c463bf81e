"""ports.Fabric and ports.Installer on a lab: endpoints lead to machines as the lab has cabled them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reconciler.lab.fleet import Lab
from reconciler.lab.hardware import commands
from reconciler.lab.hardware.tools.call import Tool
from reconciler.lab.inprocess import bmc, cluster_port
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.lab.inprocess.cluster_port import TruthCluster
from reconciler.lab.inprocess.host import MachineHost
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.lab.inprocess.watch import TruthWatch
from reconciler.model.desired import Desired, Fleet
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import Clock, Fabric, Installer

BASE = "http://installer.lab.invalid"


class LabInstaller:
    """Publishes install documents at the URLs that the lab's machines request."""

    def __init__(self, documents: dict[str, Mapping[str, Any]]) -> None:
        self._documents = documents

    async def publish(self, token: str, document: Mapping[str, Any]) -> str:
        self._documents[f"{BASE}/{token}/install.json"] = document
        return f"{BASE}/{token}/boot.iso"

    async def withdraw(self, token: str) -> None:
        self._documents.pop(f"{BASE}/{token}/install.json", None)


class LabFabric:
    """Makes one port object per node and keeps it. `epoch`: the date at which the machines' clocks read 0.

    `latency` False: answers come at once, which saves most of the event loop's work with thousands of nodes. The
    durations of the machines' own operations stay.
    """

    def __init__(
        self,
        lab: Lab,
        clock: Clock,
        *,
        epoch: datetime = EPOCH,
        tools: Mapping[str, Tool] = commands.TOOLS,
        latency: bool = True,
    ) -> None:
        self._lab = lab
        self._clock = clock
        bmc_s, cluster_s = (bmc.LATENCY_S, cluster_port.LATENCY_S) if latency else (0.0, 0.0)
        self._bmcs = {url: MachineBmc(machine, clock, epoch, latency_s=bmc_s) for url, machine in lab.by_bmc.items()}
        self._hosts = {
            address: MachineHost(machine, clock, tools, latency=latency) for address, machine in lab.by_host.items()
        }
        own = self._own = OwnWrites()
        self._cluster = None if lab.cluster is None else TruthCluster(lab.cluster, clock, latency_s=cluster_s, own=own)
        self._installer = LabInstaller(lab.documents)

    def bmc(self, desired: Desired) -> MachineBmc | None:
        return None if desired.endpoints.bmc is None else self._bmcs[desired.endpoints.bmc]

    def host(self, desired: Desired) -> MachineHost | None:
        return None if desired.endpoints.host is None else self._hosts[desired.endpoints.host]

    def cluster(self) -> TruthCluster | None:
        return self._cluster

    def watch(self) -> TruthWatch | None:
        return None if self._lab.cluster is None else TruthWatch(self._lab.cluster, self._clock, self._own)

    async def refit(self, fleet: Fleet) -> None:
        """Do nothing: machines keep their cables."""

    def installer(self) -> LabInstaller | None:
        return self._installer

    def public_key(self, name: str) -> str | None:
        return self._lab.public_keys.get(name)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


_fabric: type[Fabric] = LabFabric
_installer: type[Installer] = LabInstaller
