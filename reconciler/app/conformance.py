"""The `conformance` use case: a suite on one subject, read-only unless a person consents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.app.clocks import RealClock
from reconciler.app.forge_job import connect_forge
from reconciler.app.runtime import run_async
from reconciler.drivers.endpoints import load_endpoints
from reconciler.drivers.forge.conformance import check_driver
from reconciler.drivers.kube import KubectlCluster, NodeWatch
from reconciler.drivers.kube.conformance import Bench, check_cluster
from reconciler.drivers.kube.process import Kubectl
from reconciler.drivers.ledger.conformance import check_ledger
from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.conformance import WRITE_CHECKS, RedfishSuite, WriteConsent, all_checks
from reconciler.drivers.secrets import Credentials, Secret, SecretStore
from reconciler.drivers.ssh import SshHost
from reconciler.drivers.ssh.conformance import check_host
from reconciler.model.addresses import SSH_PORT, split_authority
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import NoLedger, UsageError, did_you_mean
from reconciler.model.observed import AttributeValue
from reconciler.model.printable import shown_url


@dataclass(frozen=True, slots=True)
class RedfishTarget:
    """One BMC, and how it is reached. `ca`: file of the only certificates to trust; None = what the system trusts.

    `credentials`: a JSON file; None = the secret of that name. `endpoints`: a lab's, which has its own secrets.
    """

    address: str
    ca: Path | None = None
    insecure: bool = False
    credentials: Path | None = None
    secret: str = "bmc"
    endpoints: Path | None = None
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Writes:
    """The consent to write. `ask` has the sentence typed, and raises unless it was. `bios`: the attribute to stage."""

    ask: Callable[[str], None]
    bios: tuple[str, AttributeValue] | None = None
    poll_s: float = 2.0


def chosen_checks(names: tuple[str, ...]) -> frozenset[str]:
    """Return names of checks. Raise UsageError for one that there is not."""
    known = {check.name for check in all_checks()}
    for name in names:
        if name not in known:
            raise UsageError("; ".join(filter(None, (f"there is no check {name!r}", did_you_mean(name, known)))))
    return frozenset(names)


def check_redfish(target: RedfishTarget, names: frozenset[str], writes: Writes | None) -> ConformanceReport:
    """Run the suite. Without `writes` nothing is changed."""

    async def run() -> ConformanceReport:
        bmc = _bmc(target)
        suite = RedfishSuite(bmc, target.address, names)
        try:
            report = await suite.read()
            if writes is not None:
                report = await suite.write(report, _consent(suite, names, writes))
            return report
        finally:
            await bmc.close()

    return run_async(run())


def check_forge(repository: str, pull: int | None, *, writes: bool) -> ConformanceReport:
    """Run the suite of forges, over the driver and the token that `comment` and `forge` would use."""

    async def run() -> ConformanceReport:
        forge = connect_forge(repository)
        try:
            return await check_driver(forge, repository, pull=pull, writes=writes)
        finally:
            await forge.close()

    return run_async(run())


@dataclass(frozen=True, slots=True)
class SshTarget:
    """How hosts are reached. `key`: a file; None = the secret of that name. `ca`: a file of public keys of host CAs."""

    user: str = "root"
    key: Path | None = None
    secret: str = "ssh"
    ca: Path | None = None
    insecure: bool = False
    endpoints: Path | None = None
    timeout_s: float = 30.0


def check_ssh(target: SshTarget, hosts: Sequence[str]) -> list[ConformanceReport]:
    """Run the suite of hosts on each, one after another. Nothing is changed."""

    async def run() -> list[ConformanceReport]:
        named = [(place, _host(target, place)) for place in hosts]  # all, before the first is contacted
        found = []
        for place, host in named:
            try:
                found.append(await check_host(host, place))
            finally:
                await host.close()
        return found

    return run_async(run())


def check_database(where: str, *, writes: bool) -> ConformanceReport:
    """Run the suite of ledgers on a file or URL. Without `writes` nothing is changed."""
    try:
        return run_async(check_ledger(where, RealClock(), writes=writes))
    except NoLedger as missing:
        raise UsageError(
            f"{missing}: name a database that is there, or have `reconciler apply` make the file"
        ) from None


@dataclass(frozen=True, slots=True)
class KubernetesTarget:
    """How an API server is reached: as kubectl does by itself where neither is given.

    `node`, `pod` (NAMESPACE/NAME): what may be written to.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    timeout_s: float = 30.0
    node: str = ""
    pod: str = ""


def check_kubernetes(target: KubernetesTarget, *, writes: bool) -> ConformanceReport:
    """Run the suite of clusters. Without `writes` nothing is changed."""
    kubeconfig, context = target.kubeconfig, target.context

    def watch() -> NodeWatch:
        return NodeWatch(kubeconfig=kubeconfig, context=context, timeout_s=target.timeout_s)

    async def run() -> ConformanceReport:
        now, timeout_s = RealClock().now, target.timeout_s
        cluster = KubectlCluster(kubeconfig=kubeconfig, context=context, timeout_s=timeout_s, now=now, lasting=True)
        kubectl = Kubectl("kubectl", kubeconfig, context, timeout_s)
        bench = Bench(cluster, kubectl, watch, now, timeout_s, target.node, target.pod)
        try:
            await kubectl.keep()
            return await check_cluster(bench, context or "the current context", writes=writes)
        finally:
            await cluster.close()
            await kubectl.close()

    return run_async(run())


def _host(target: SshTarget, place: str) -> SshHost:
    """Return the connection to NODE=ADDRESS:PORT, of which NODE and PORT may be left out. Raise UsageError."""
    node, named, address = place.rpartition("=")
    try:
        host, port = split_authority(address, SSH_PORT)
    except ValueError as error:
        raise UsageError(f"{place}: {error}; HOST is [NODE=]ADDRESS[:PORT], and --user names the user") from None
    lines = () if target.ca is None else map(str.strip, _text(target.ca).splitlines())
    authorities: Sequence[str] = tuple(line for line in lines if line and not line.startswith("#"))
    store = None
    if target.endpoints is not None:
        overlay = load_endpoints(target.endpoints)
        found, store = overlay.ssh(address), overlay.secrets
        host, port, authorities = found.host, found.port, found.authorities
    if not authorities and not target.insecure:
        raise UsageError("name the host CA with --ca FILE; --insecure accepts any host key")
    if target.key is not None:
        key = _text(target.key)
    else:
        key = (store or SecretStore.load()).resolve(target.secret, f"{host}:{port}").reveal()
    return SshHost(
        node if named else host,
        host,
        port=port,
        user=target.user,
        private_key=key,
        authorities=authorities,
        insecure=target.insecure,
        connect_timeout=min(10.0, target.timeout_s),
        facts_timeout=target.timeout_s,
        now=RealClock().now,
    )


def _consent(suite: RedfishSuite, names: frozenset[str], writes: Writes) -> WriteConsent:
    """Ask for the consent, by the serial number that the BMC gave: without one, nothing is written."""
    allowed = [check for check in WRITE_CHECKS if not names or check.name in names]
    if suite.serial is None or not allowed:
        return WriteConsent("", frozenset())
    writes.ask(sentence_for(suite.serial, allowed))
    return WriteConsent(suite.serial, frozenset(check.name for check in allowed), writes.bios, writes.poll_s)


def sentence_for(serial: str, checks: list[Check]) -> str:
    """Return what a person types: the most that will be done, to which machine."""
    return f"{'power' if any(check.name == 'write-power' for check in checks) else 'write to'} {serial}"


def _bmc(target: RedfishTarget) -> RedfishBmc:
    address, ca, store = target.address, None, None
    if target.endpoints is not None:
        overlay = load_endpoints(target.endpoints)
        found = overlay.bmc(target.address)
        address, ca, store = found.url, found.ca, overlay.secrets
    elif target.ca is not None:
        ca = _text(target.ca)
    registry = BmcRegistry(RealClock().now)
    return RedfishBmc(
        address,
        secret=str(target.credentials or target.secret),
        credentials=_credentials(target, address, store),
        ca_pem=ca,
        insecure=target.insecure,
        node=shown_url(target.address),
        read_timeout=target.timeout_s,
        connect_timeout=min(10.0, target.timeout_s),
        bmc_registry=registry,
    )


def _credentials(target: RedfishTarget, address: str, store: SecretStore | None) -> Callable[[], Credentials]:
    if target.credentials is None:
        secrets = store or SecretStore.load()
        found = secrets.credentials(target.secret, address)
        return lambda: found
    try:
        data = json.loads(_text(target.credentials))
    except ValueError:
        data = None
    if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in ("username", "password")):
        raise UsageError(f"{target.credentials}: is not JSON with username and password")
    typed = Credentials(data["username"], Secret(data["password"]))
    return lambda: typed


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
