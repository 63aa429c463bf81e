"""The fabric of real drivers. Each secret is resolved here, for one name and one address at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.app.cluster_access import cluster_access
from reconciler.app.extensions import extended_facts, gate_programs, own_rows
from reconciler.app.k3s_access import ServerKubeconfig
from reconciler.converge import k3s_birth
from reconciler.converge.schedulers import TwoSchedulers
from reconciler.drivers.endpoints import Overlay
from reconciler.drivers.helm import HelmReleases
from reconciler.drivers.kube import KubectlCluster, NodeWatch
from reconciler.drivers.node_login import NodeLogin
from reconciler.drivers.redfish import BmcRegistry, RedfishBmc, RedfishPdu
from reconciler.drivers.redfish.factory_logins import factory_logins
from reconciler.drivers.secrets import SecretError, SecretStore
from reconciler.drivers.slurm import SlurmCluster, SlurmReservations
from reconciler.drivers.ssh import KernelLogWatch, SshHost
from reconciler.model.access import ClusterAccess, TlsPolicy
from reconciler.model.addresses import SSH_PORT, normalise_host, split_authority
from reconciler.model.confined import Confined
from reconciler.model.desired import Desired, Fleet, Settings
from reconciler.model.ledger_ports import InstallLedger
from reconciler.model.observer_port import Observer
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import Bmc, Clock, Cluster, FirmwareFiles, Host, Installer, Watch
from reconciler.model.vocab import NewsSource, NodeState

if TYPE_CHECKING:
    from reconciler.app.acting_ports import ActingPorts

LEAST_REAL_S = 2.0  # the shortest deadline in real time
HURRY_S = 2.0  # for closing, after an interrupt

_Closable = RedfishBmc | RedfishPdu | SshHost | KubectlCluster | SlurmCluster | HelmReleases


class WireFabric(Confined):
    """A Fabric of the real drivers. An `overlay` redirects every address to a lab, and brings the lab's secrets.

    `ledger`: keeps attempts at installations and the TPM of each node; None forgets attempts, attests nobody, and knows
    no revoked host key but those in `revoked`. `observer`: the workers of an engine, which read nodes in passes.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        secrets: SecretStore,
        overlay: Overlay | None,
        *,
        ledger: InstallLedger | None = None,
        revoked: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> None:
        gate_programs(fleet)  # refused before a node is drained for a gate that can't run
        self._observer = observer
        self._ledger = ledger
        self._known_revoked = revoked
        self._fleet = fleet
        self._settings = fleet.settings
        self._clock = clock
        self._secrets = secrets if overlay is None else overlay.secrets_of(fleet.settings)
        self._overlay = overlay
        self._bmc_registry = BmcRegistry(_monotonic_instants(clock), dates=clock.now)
        self._bmcs: dict[str, RedfishBmc] = {}
        self._pdus: dict[str, RedfishPdu] = {}
        self._hosts: dict[str, SshHost] = {}
        self._kubernetes: KubectlCluster | None = None
        self._slurm: SlurmCluster | None = None
        self._releases: HelmReleases | None = None
        self._server_kubeconfig: ServerKubeconfig | None = None
        self._birth = k3s_birth.Birth(ledger)
        self._acting: ActingPorts | None = None
        self._watched = False
        self._own_writes = OwnWrites()
        if ledger is not None:
            self._acting_ports()  # loaded before anything is done: a run may outlive the files of its program

    def bmc(self, desired: Desired) -> Bmc | None:
        address, secret = desired.endpoints.bmc, self._settings.bmc_credentials
        if address is None or secret is None:
            return None
        if desired.node not in self._bmcs:
            tls = self._settings.tls
            if self._overlay is not None:
                target = self._overlay.bmc(address)
                address, tls = target.url, TlsPolicy(target.ca)
            deadline = self._deadline(self._settings.redfish_deadline_s)
            login = NodeLogin(self._secrets, secret, address, desired.node)
            self._bmcs[desired.node] = RedfishBmc(
                address,
                secret=secret,
                credentials=login.read,
                replace=login.replace,
                ca_pem=tls.ca,
                insecure=tls.insecure,
                node=desired.node,
                connect_timeout=min(10.0, deadline),
                read_timeout=max(LEAST_REAL_S, deadline / 3),  # one hanging resource costs its field, not the pass
                bmc_registry=self._bmc_registry,
            )
        return self._bmcs[desired.node]

    def pdu(self, address: str) -> RedfishPdu:
        secret = self._settings.pdu_credentials
        if secret is None:
            raise SecretError("the spec names no credentials for rack PDUs")
        if address not in self._pdus:
            url, tls = address, self._settings.tls
            if self._overlay is not None:
                target = self._overlay.pdu(address)
                url, tls = target.url, TlsPolicy(target.ca)
            self._pdus[address] = RedfishPdu(
                url,
                secret=secret,
                credentials=NodeLogin(self._secrets, secret, url, address).read,
                ca_pem=tls.ca,
                insecure=tls.insecure,
                node=address,
                read_timeout=self._deadline(self._settings.redfish_deadline_s),
                bmc_registry=self._bmc_registry,
            )
        return self._pdus[address]

    def host(self, desired: Desired) -> Host | None:
        address = desired.endpoints.host
        if address is None or self._settings.ssh_credentials is None:
            return None
        if desired.node not in self._hosts:
            self._hosts[desired.node] = self._ssh(desired.node, address, self._settings.ssh_user)
        return self._hosts[desired.node]

    def _ssh(self, name: str, address: str, user: str) -> SshHost:
        """Return a new connection to a machine. `name`: how messages call it. Raise SecretError."""
        secret = self._settings.ssh_credentials
        if secret is None:
            raise SecretError(f"the spec names no credentials for SSH, by which {name} is reached")
        authorities = self._settings.host_keys.authorities
        host, port = split_authority(address, SSH_PORT)
        if self._overlay is not None:
            target = self._overlay.ssh(address)
            host, port, authorities = target.host, target.port, target.authorities
        deadline = self._deadline(self._settings.ssh_deadline_s)
        return SshHost(
            name,
            host,
            port=port,
            user=user,
            private_key=self._secrets.resolve(secret, f"{host}:{port}").reveal(),
            authorities=authorities,
            insecure=self._settings.host_keys.insecure and self._overlay is None,
            connect_timeout=min(10.0, deadline / 3),
            facts_timeout=deadline * 2 / 3,
            revoked=self._revoked,
            now=self._clock.now,
            extended=extended_facts(self._settings),
        )

    def cluster(self) -> Cluster | None:
        kubernetes, slurm = self._kubernetes_port(), self.slurm()
        if kubernetes is not None and slurm is not None:
            return TwoSchedulers(kubernetes, slurm)
        return slurm if kubernetes is None else kubernetes

    def _kubernetes_port(self) -> Cluster | None:
        cluster = self.kubectl_cluster()
        if cluster is None or not k3s_birth.server_names(self._fleet):
            return cluster
        awaited = partial(k3s_birth.is_awaited, self._fleet)
        prepare = self.prepare_cluster
        return k3s_birth.AwaitedCluster(
            cluster, self._servers, self._clock, self._birth, awaited=awaited, prepare=prepare
        )

    def _servers(self) -> list[k3s_birth.K3sServer]:
        return k3s_birth.servers_of(self._fleet, self.host)

    async def prepare_cluster(self) -> None:
        """Fetch the kubeconfig of a K3s cluster for which the spec names none."""
        if self._server_kubeconfig is not None and k3s_birth.server_names(self._fleet):
            await self._server_kubeconfig.fetch(self._servers(), k3s_birth.endpoint_of(self._fleet))

    def kubectl_cluster(self) -> KubectlCluster | None:
        access = self._settings.cluster
        if access is None or not access.kubernetes:
            return None
        if self._kubernetes is None:
            kubeconfig, context = self._cluster_access(access)
            deadline = self._deadline(self._settings.kubernetes_deadline_s)
            self._kubernetes = KubectlCluster(
                kubeconfig=kubeconfig, context=context, timeout_s=deadline, now=self._clock.now, keep=True,
                lasting=self._watched, own=self._own_writes,
            )  # fmt: skip
        return self._kubernetes

    def slurm(self) -> SlurmCluster | None:
        access = None if self._settings.cluster is None else self._settings.cluster.slurm
        if access is None:
            return None
        if self._slurm is None:
            user = access.user or self._settings.ssh_user
            login = self._ssh(access.login, normalise_host(access.login), user)
            deadline = self._deadline(self._settings.kubernetes_deadline_s)
            ledger = "" if self._ledger is None else self._ledger.id
            self._slurm = SlurmCluster(login, access, timeout_s=deadline, now=self._clock.now, ledger=ledger)
        return self._slurm

    def reservations(self) -> SlurmReservations | None:
        slurm = self.slurm()
        return None if slurm is None else slurm.reservations()

    def releases(self) -> HelmReleases | None:
        """Return the Helm releases; None without Kubernetes, and in a lab, whose API server takes no charts."""
        access = self._settings.cluster
        if access is None or not access.kubernetes or self._overlay is not None:
            return None
        if self._releases is None:
            kubeconfig, context = self._cluster_access(access)
            deadline = self._deadline(self._settings.kubernetes_deadline_s)
            self._releases = HelmReleases(
                kubeconfig=kubeconfig, context=context, timeout_s=deadline, now=self._clock.now
            )
        return self._releases

    def observer(self) -> Observer | None:
        return self._observer

    def watches(self) -> Mapping[NewsSource, Watch]:
        """Return the watches on the cluster, all kernel logs and all BMCs, where the spec says how to reach them."""
        found: dict[NewsSource, Watch] = {}
        access = self._settings.cluster
        if access is not None and access.kubernetes:
            self._watched = True  # a process with a watch is long-lived, and keeps its connection
            kubeconfig, context = self._cluster_access(access)
            deadline = self._deadline(self._settings.kubernetes_deadline_s)
            found[NewsSource.CLUSTER] = NodeWatch(
                kubeconfig=kubeconfig, context=context, timeout_s=deadline, own=self._own_writes
            )
        if self._settings.ssh_credentials is not None:
            hosts = partial(self._active, lambda node: node.endpoints.host)
            found[NewsSource.KERNEL_LOGS] = KernelLogWatch(
                hosts, self._host_of, lambda: [text for _, text in own_rows(self._settings)]
            )
        if self._settings.bmc_credentials is not None:
            bmcs = partial(self._active, lambda node: node.endpoints.bmc)
            found[NewsSource.BMC_EVENTS] = self._acting_ports().bmc_events(bmcs)
        return found

    def _active(self, reached: Callable[[Desired], str | None]) -> Collection[str]:
        nodes = self._fleet.nodes
        return {name for name, node in nodes.items() if reached(node) and node.state is NodeState.ACTIVE}

    def _bmc_of(self, name: str) -> RedfishBmc | None:
        self.bmc(self._fleet.nodes[name])
        return self._bmcs.get(name)

    def _host_of(self, name: str) -> SshHost | None:
        self.host(self._fleet.nodes[name])
        return self._hosts.get(name)

    def _cluster_access(self, access: ClusterAccess) -> tuple[Path | None, str | None]:
        if access.kubeconfig is None and self._overlay is None and k3s_birth.server_names(self._fleet):
            self._server_kubeconfig = self._server_kubeconfig or ServerKubeconfig()
            return self._server_kubeconfig.path, None
        return cluster_access(access, self._overlay, self._secrets)

    def _revoked(self) -> Sequence[str]:
        return self._known_revoked if self._ledger is None else self._ledger.revoked_host_keys()

    def _acting_ports(self) -> ActingPorts:
        if self._acting is None:
            from reconciler.app.acting_ports import ActingPorts

            self._acting = ActingPorts(
                self._fleet, self._clock, self._secrets, self._overlay, self._ledger, self._bmc_of
            )
        return self._acting

    def installer(self) -> Installer | None:
        return self._acting_ports().installer()

    def firmware_files(self) -> FirmwareFiles:
        return self._acting_ports().firmware_files

    async def refit(self, fleet: Fleet) -> None:
        """Switch to a new spec. Sessions at addresses that it does not change stay open."""
        before, self._fleet, self._settings = self._fleet, fleet, fleet.settings
        same = connection_settings(before.settings) == connection_settings(fleet.settings)
        moved = {
            name
            for name, node in before.nodes.items()
            if not same or name not in fleet.nodes or fleet.nodes[name].endpoints != node.endpoints
        }
        unfit: list[_Closable] = [] if same else [*self._clusters(), *self._pdus.values()]
        if not same:
            self._kubernetes = self._slurm = self._releases = None
        unfit += self._other_k3s(fleet)
        if self._acting is not None:
            await self._acting.refit(fleet)
        self._pdus = self._pdus if same else {}
        ports = [port for known in (self._bmcs, self._hosts) for name in moved if (port := known.pop(name, None))]
        await self._close([*ports, *unfit])

    def _other_k3s(self, fleet: Fleet) -> list[_Closable]:
        """Forget how K3s was reached where the spec names another endpoint, or consents to a new cluster."""
        known = self._server_kubeconfig
        if known is None or (known.is_for(k3s_birth.endpoint_of(fleet)) and not k3s_birth.is_awaited(fleet)):
            return []
        known.forget()
        client, self._kubernetes = self._kubernetes, None
        return [] if client is None else [client]

    def public_key(self, name: str) -> str | None:
        return self._secrets.public_key(name)

    def host_secret(self, name: str, desired: Desired, server: str | None) -> str:
        address = desired.endpoints.host
        if address is None:
            raise SecretError(f"the spec names no host address for {desired.node}")
        if self._overlay is not None:  # the servers of a lab's machines are in its model
            target = self._overlay.ssh(address)
            return self._secrets.resolve(name, f"{target.host}:{target.port}", fresh=True).reveal()
        if server is not None:
            self._secrets.resolve(name, server)
        return self._secrets.resolve(name, address, fresh=True).reveal()

    def insecure_logins(self) -> tuple[str, ...]:
        makes = {node: bmc.factory_login for node, bmc in self._bmcs.items()}
        read = sum(bmc.answers for bmc in self._bmcs.values())
        return factory_logins(makes, read, self._settings.bmc_credentials or "")

    def conceal(self, text: str) -> str:
        return self._secrets.conceal(text)

    async def close(self) -> None:
        """Delete every BMC session and close every connection. A silent BMC costs its deadline once.

        An interrupted process waits no longer than HURRY_S.
        """
        await self._close([*self._bmcs.values(), *self._pdus.values(), *self._hosts.values(), *self._clusters()])
        if self._acting is not None:
            await self._acting.close()
        if self._observer is not None:
            await self._observer.close()
        if self._server_kubeconfig is not None:
            self._server_kubeconfig.close()

    def _clusters(self) -> list[_Closable]:
        return [port for port in (self._kubernetes, self._slurm, self._releases) if port is not None]

    async def _close(self, ports: Iterable[_Closable]) -> None:
        task = asyncio.current_task()
        interrupted = task is not None and task.cancelling() > 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRY_S if interrupted else None):
                await asyncio.gather(*(port.close() for port in ports))

    def _deadline(self, seconds: float) -> float:
        """Return a deadline in real seconds. The servers of a lab on loopback get no less than 15 of them."""
        return max(LEAST_REAL_S, self._clock.real_seconds(seconds)) if self._overlay is None else max(15.0, seconds)


def _monotonic_instants(clock: Clock) -> Callable[[], datetime]:
    """Return a clock whose differences are elapsed time, so that setting the wall clock changes no pause."""
    start, zero = clock.now(), clock.monotonic()
    return lambda: start + timedelta(seconds=clock.monotonic() - zero)


def connection_settings(settings: Settings) -> tuple[object, ...]:
    """Return the settings that every connection depends on, besides its address."""
    return (
        settings.bmc_credentials, settings.pdu_credentials, settings.tls, settings.redfish_deadline_s,
        settings.ssh_credentials, settings.ssh_user, settings.host_keys, settings.ssh_deadline_s, settings.cluster,
        settings.kubernetes_deadline_s, settings.extensions, own_rows(settings),
    )  # fmt: skip
