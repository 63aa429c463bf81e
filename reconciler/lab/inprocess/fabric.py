"""ports.Fabric and ports.Installer on a lab: endpoints lead to machines as the lab has cabled them."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import asyncssh

from reconciler.health.table import table_of
from reconciler.lab.fleet import Lab
from reconciler.lab.hardware import commands
from reconciler.lab.hardware.tools.call import Tool
from reconciler.lab.inprocess import bmc, cluster_port
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.lab.inprocess.cluster_port import TruthCluster
from reconciler.lab.inprocess.host import MachineHost
from reconciler.lab.inprocess.pdu import MainsPdu
from reconciler.lab.inprocess.releases import LabReleases
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.lab.inprocess.watch import EventWatch, LogWatch, TruthWatch
from reconciler.lab.install_server import BASE
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import AnyDocument, AttemptCredential, InstallDocument, dump_contract
from reconciler.model.install_progress import InstallProgress, digest_of
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import (
    Clock,
    Cluster,
    Fabric,
    FirmwareFile,
    FirmwareFiles,
    Installer,
    ReservationStore,
    Watch,
)
from reconciler.model.vocab import NewsSource

CERTIFIED_S = 90 * 86400.0  # how long a renewed host certificate is valid


class LabInstaller:
    """Publishes install documents at the URLs that the lab's machines request."""

    def __init__(self, lab: Lab, clock: Clock, epoch: datetime) -> None:
        self._lab = lab
        self._clock = clock
        self._epoch = epoch

    async def publish(
        self, token: str, document: AnyDocument, attempt: AttemptCredential | None, *, pxe: bool = False
    ) -> str:
        self._lab.installs.publish(token, document, mac=(attempt.mac or "") if attempt is not None and pxe else "")
        return f"{BASE}/{token}/boot.iso"

    async def progress(self, token: str) -> InstallProgress:
        server = self._lab.installs
        since = self._instant(server.listening_since)
        found = server.attempts.get(token)
        if found is None:
            return InstallProgress(since)
        machine = self._lab.machines.get(found.document.node)
        if machine is not None:
            machine.catch_up()  # a machine that nobody has looked at has not made its calls yet
        status = found.status
        return InstallProgress(
            since,
            fetched=found.fetched,
            phase=None if status is None else status.phase,
            detail="" if status is None else status.detail,
            percent=None if status is None else status.percent,
            at=None if found.at is None else self._instant(found.at),
            incident=found.incident,
            erasures=found.erasures,
            cause=None if status is None else status.cause,
            certified=found.host_key != "",
        )

    async def token(self, digest: str) -> str:
        return next((token for token in self._lab.installs.attempts if digest_of(token) == digest), "")

    async def withdraw(self, token: str) -> None:
        self._lab.installs.withdraw(token)

    def in_place(self, document: InstallDocument, folder: str, unit: str) -> str:
        files = {"document.json": base64.b64encode(dump_contract(document).encode()).decode()}
        return json.dumps({"folder": folder, "unit": unit, "files": files})

    async def certify(self, document: InstallDocument, key: str) -> str:
        now = self._clock.now().timestamp()
        certificate = asyncssh.generate_private_key("ssh-ed25519").generate_host_certificate(
            asyncssh.import_public_key(key), document.node, principals=[document.node], valid_after=now,
            valid_before=now + CERTIFIED_S,
        )  # fmt: skip
        return certificate.export_certificate("openssh").decode().strip()

    def _instant(self, seconds: float) -> datetime:
        return self._epoch + timedelta(seconds=seconds)


class LabFirmwareFiles:
    """Serves each file with the digest that the spec gives, but for those in `served`, by URL."""

    def __init__(self) -> None:
        self.served: dict[str, str] = {}

    async def fetch(self, url: str, sha256: str) -> FirmwareFile:
        found = self.served.get(url, sha256)
        if found != sha256:
            why = f"{url} serves a file with sha256 {found}, the spec says {sha256}: nothing is flashed from it"
            raise DriverError(Failure.REJECTED, why)
        return FirmwareFile(url)


class LabFabric:
    """Makes one port object per node and keeps it. `epoch`: the date at which the machines' clocks read 0.

    `latency` False: answers come at once, which saves most of the event loop's work with thousands of nodes. The
    durations of the machines' own operations stay. `scheduler`: what places work on the machines, in place of the lab's
    Kubernetes, such as a driver on the lab's Slurm, of which `reservations` are.
    """

    def __init__(
        self,
        lab: Lab,
        clock: Clock,
        *,
        epoch: datetime = EPOCH,
        tools: Mapping[str, Tool] = commands.TOOLS,
        latency: bool = True,
        scheduler: Cluster | None = None,
        reservations: ReservationStore | None = None,
    ) -> None:
        self._lab = lab
        self._clock = clock
        bmc_s, cluster_s = (bmc.LATENCY_S, cluster_port.LATENCY_S) if latency else (0.0, 0.0)
        self._bmcs = {url: MachineBmc(machine, clock, epoch, latency_s=bmc_s) for url, machine in lab.by_bmc.items()}
        self._hosts = {
            address: MachineHost(machine, clock, tools, latency=latency) for address, machine in lab.by_host.items()
        }
        own = self._own = OwnWrites()
        truth = lab.cluster
        self._cluster: Cluster | None = (
            None if truth is None else TruthCluster(truth, clock, latency_s=cluster_s, own=own)
        )
        self._cluster = scheduler or self._cluster
        self._reservations = reservations
        self._installer = LabInstaller(lab, clock, epoch)
        self._files = LabFirmwareFiles()

    def bmc(self, desired: Desired) -> MachineBmc | None:
        image = desired.profile.image
        if image is not None:  # a spec that changes may name it since the lab was built
            self._lab.images.setdefault((image.name, image.version), image.contents)
        return None if desired.endpoints.bmc is None else self._bmcs[desired.endpoints.bmc]

    def pdu(self, address: str) -> MainsPdu:
        return MainsPdu(self._lab.mains, address, self._clock)

    def host(self, desired: Desired) -> MachineHost | None:
        if desired.endpoints.host is None:
            return None
        host = self._hosts[desired.endpoints.host]
        host.texts = table_of(desired.profile).own_lines
        return host

    def cluster(self) -> Cluster | None:
        return self._cluster

    def releases(self) -> LabReleases | None:
        return None if self._lab.cluster is None else LabReleases(self._lab.cluster, self._clock)

    def reservations(self) -> ReservationStore | None:
        return self._reservations

    def watches(self) -> Mapping[NewsSource, Watch]:
        machines, truth = self._lab.machines, self._lab.cluster
        found: dict[NewsSource, Watch] = (
            {} if truth is None else {NewsSource.CLUSTER: TruthWatch(truth, self._clock, self._own)}
        )
        return found | {
            NewsSource.KERNEL_LOGS: LogWatch(machines, self._clock, self._own_lines),
            NewsSource.BMC_EVENTS: EventWatch(machines, self._clock),
        }

    def _own_lines(self) -> Collection[str]:
        return {text for host in self._hosts.values() for text in host.texts.values()}

    async def refit(self, fleet: Fleet) -> None:
        """Do nothing: machines keep their cables."""

    def installer(self) -> LabInstaller | None:
        return self._installer

    def host_secret(self, name: str, desired: Desired, server: str | None) -> str:  # noqa: ARG002 - the port's signature
        """Return a word for the secret: machines in process ask for none. A URL has its server in it."""
        return f"secret {name}" if server is None else f"secret {name} of {server}"

    def observer(self) -> None:
        return None

    def insecure_logins(self) -> tuple[str, ...]:
        """Return nothing: nobody logs in."""
        return ()

    def conceal(self, text: str) -> str:
        """Return the text as it is: nothing in process needs a secret."""
        return text

    def firmware_files(self) -> LabFirmwareFiles:
        return self._files

    def public_key(self, name: str) -> str | None:
        return self._lab.public_keys.get(name)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


_fabric: type[Fabric] = LabFabric
_installer: type[Installer] = LabInstaller
_firmware_files: type[FirmwareFiles] = LabFirmwareFiles
