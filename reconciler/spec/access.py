"""Turn the Fleet resource into model.desired.Settings, and read the files that it names.

Those files are public: CA certificates and public keys. A private key among them is an error.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from reconciler.model.access import (
    ClusterAccess,
    EventListenerPolicy,
    HostKeyPolicy,
    InstallerPolicy,
    PinnedExtension,
    SlurmAccess,
    TlsPolicy,
)
from reconciler.model.desired import Floor, IgnoreRule, Reserve, Settings
from reconciler.model.errors import Diagnostic, Position
from reconciler.model.forge import SpecForge
from reconciler.model.inventory import InventoryPolicy
from reconciler.model.limits import Brake, Guards
from reconciler.model.units import parse_duration
from reconciler.model.vocab import VerifiedBy
from reconciler.spec import limits
from reconciler.spec.health import health_changes, health_positions, switched_off
from reconciler.spec.kinds.cluster import ClusterSpec, ClusterType, paired
from reconciler.spec.kinds.drift import SpecForge as DeclaredForge
from reconciler.spec.kinds.fleet import FleetSpec, HostKeys, Installer, RedfishAccess, Tls
from reconciler.spec.kinds.inventory import InventorySource
from reconciler.spec.measurements import boot_measurements
from reconciler.spec.notifications import channels
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.tickets import trackers
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.parse import Steps, UnreadableFile

_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-")


def read_settings(declared: Declarations, tree: SpecTree) -> tuple[Settings, list[Diagnostic]]:
    """Return the settings of the first Fleet, and the problems of the files it names. There must be a Fleet."""
    fleet = declared.fleets[0]
    spec, files = fleet.spec, _Files(fleet, tree)
    cluster = declared.clusters.get(spec.cluster) if spec.cluster else None
    tls, host_keys = TlsPolicy(ca=None), HostKeyPolicy(authorities=())
    insecure: list[str] = []
    if spec.redfish is not None:
        tls = files.tls(spec.redfish.tls)
        if tls.insecure:
            insecure.append(f"TLS certificates of BMCs are not verified ({fleet.at('redfish', 'tls', 'insecure')})")
    if spec.ssh is not None:
        host_keys = files.host_keys(spec.ssh.host_keys)
        if host_keys.insecure:
            insecure.append(f"SSH host keys are not verified ({fleet.at('ssh', 'hostKeys', 'insecure')})")
    insecure += _unverified_firmware(declared)
    settings = Settings(
        fleet=fleet.name,
        bmc_credentials=spec.redfish.credentials if spec.redfish else None,
        bmc_events=_event_listener(spec.redfish),
        pdu_credentials=(spec.redfish.pdu_credentials or spec.redfish.credentials) if spec.redfish else None,
        rotate_after_s=_rotate_after_s(spec.redfish),
        ssh_credentials=spec.ssh.credentials if spec.ssh else None,
        ssh_user=spec.ssh.user if spec.ssh else "root",
        tls=tls,
        host_keys=host_keys,
        cluster=_cluster(cluster) if cluster else None,
        installer=_installer(spec.installer) if spec.installer else None,
        concurrency=spec.observation.concurrency,
        redfish_deadline_s=parse_duration(spec.observation.deadlines.redfish),
        ssh_deadline_s=parse_duration(spec.observation.deadlines.ssh),
        kubernetes_deadline_s=parse_duration(spec.observation.deadlines.kubernetes),
        inventory_max_age_s=parse_duration(spec.observation.inventory_max_age),
        tolerate=spec.observation.tolerate,
        budgets=tuple(map(limits.budget, spec.budgets)),
        drift_mode=spec.drift.mode,
        drift_forge=_spec_forge(spec.drift.forge) if spec.drift.forge else None,
        inventory=_inventory(spec.inventory) if spec.inventory else None,
        ignore=(
            *(
                IgnoreRule(rule.path, rule.reason, rule.pools, rule.nodes, rule.owner or "", rule.expires or "")
                for rule in spec.ignore
            ),
            *switched_off(spec),
        ),
        insecure=tuple(insecure),
        floors=tuple(Floor(persona, nodes) for persona, nodes in spec.floor.items()),
        reserves=tuple(Reserve(persona, nodes) for persona, nodes in spec.spares.items()),
        windows=tuple(limits.windows(declared)),
        break_glass=limits.break_glass(spec.break_glass),
        user_ca=files.user_ca(spec.ssh.user_ca) if spec.ssh is not None and spec.ssh.user_ca is not None else (),
        brake=Brake(spec.brake.fleet, spec.brake.domain, parse_duration(spec.brake.within)),
        notifications=channels(declared),
        tickets=trackers(declared),
        guards=Guards(spec.guards.reimage, spec.guards.reboot, spec.guards.forget, spec.guards.fail_gate),
        health=health_changes(spec),
        extensions=tuple(PinnedExtension(one.package, one.version) for one in spec.extensions),
    )
    return settings, files.problems


def _rotate_after_s(found: RedfishAccess | None) -> float | None:
    return None if found is None or found.rotate_after is None else parse_duration(found.rotate_after)


def _event_listener(found: RedfishAccess | None) -> EventListenerPolicy | None:
    if found is None or (given := found.events) is None:
        return None
    return EventListenerPolicy(given.listen, given.url, given.certificate, given.key)


def _spec_forge(found: DeclaredForge) -> SpecForge:
    return SpecForge(found.kind, found.repository, found.token, found.url or "")


def _inventory(found: InventorySource) -> InventoryPolicy:
    return InventoryPolicy(
        kind=found.kind,
        place=found.url or found.file or "",
        secret=found.token or "",
        names=tuple(sorted(found.columns.items())),
        pool=found.pool or "",
        pools=found.pools,
        retire=found.retire,
        change=found.change,
        interval_s=parse_duration(found.interval),
        forge=_spec_forge(found.forge) if found.forge else None,
    )


def _installer(found: Installer) -> InstallerPolicy:
    valid_s = parse_duration(found.host_certificate)
    return InstallerPolicy(
        found.listen,
        found.url,
        found.iso,
        found.certificate,
        found.key,
        found.host_ca,
        valid_s,
        boot_measurements(found.measurements),
        found.via or "",
        found.pxe,
    )


def _unverified_firmware(declared: Declarations) -> Iterator[str]:
    for hardware in declared.hardware.values():
        for index, item in enumerate(hardware.spec.firmware):
            if item.url is not None and item.verified_by is VerifiedBy.BMC:
                where = hardware.at("firmware", index, "verifiedBy")
                yield f"the digest of firmware {item.component} is not verified ({where})"


def access_positions(declared: Declarations) -> Mapping[str, Position]:
    """Return the positions of the Fleet's addresses, credentials and trust anchors, by their path."""
    fleet = declared.fleets[0]
    cluster = declared.clusters.get(fleet.spec.cluster) if fleet.spec.cluster else None
    places = {".".join(steps): fleet.at(*steps) for steps in _ACCESS}
    places["name"] = fleet.position
    places |= health_positions(fleet)
    if cluster is not None:
        places |= {f"cluster.{key}": cluster.at(key) for key in ("kubeconfig", "context", "slurm")}
    return places


_ACCESS: Final = (
    ("redfish", "credentials"), ("redfish", "tls"), ("redfish", "events"),
    ("ssh", "credentials"), ("ssh", "user"), ("ssh", "hostKeys"),
    ("ssh", "userCa"),
    ("cluster",), ("cluster", "kubeconfig"), ("cluster", "context"), ("cluster", "slurm"),
    ("installer", "listen"), ("installer", "url"), ("installer", "iso"),
    ("installer", "certificate"), ("installer", "key"), ("installer", "hostCa"),
)  # fmt: skip


def _cluster(cluster: DeclaredResource[ClusterSpec]) -> ClusterAccess:
    spec = cluster.spec
    slurm = None
    if (given := spec.slurm) is not None:
        names = paired(given.nodes)
        slurm = SlurmAccess(
            given.login, given.user, given.programs or "", names, given.take_over, parse_duration(given.reserve or "0s")
        )
    return ClusterAccess(cluster.name, spec.kubeconfig, spec.context, spec.type is not ClusterType.SLURM, slurm)


class _Files:
    """Reads the files that the Fleet names, and collects their problems."""

    def __init__(self, fleet: DeclaredResource[FleetSpec], tree: SpecTree) -> None:
        self._fleet = fleet
        self._tree = tree
        self.problems: list[Diagnostic] = []

    def tls(self, tls: Tls) -> TlsPolicy:
        if tls.ca is None:
            return TlsPolicy(ca=None, insecure=True)
        return TlsPolicy(ca=self._read(tls.ca, ("redfish", "tls", "ca"), check_certificates))

    def host_keys(self, keys: HostKeys) -> HostKeyPolicy:
        authorities: list[str] = []
        for index, name in enumerate(keys.authorities or ()):
            text = self._read(name, ("ssh", "hostKeys", "authorities", index), check_public_keys)
            authorities += _lines(text)
        return HostKeyPolicy(authorities=tuple(authorities), insecure=keys.authorities is None)

    def user_ca(self, name: str) -> tuple[str, ...]:
        return tuple(_lines(self._read(name, ("ssh", "userCa"), check_public_keys)))

    def _read(self, name: str, steps: Steps, check: Callable[[str], None]) -> str:
        try:
            text = self._tree.text(name)
            check(text)
        except UnreadableFile as problem:
            self.problems.append(self._fleet.problem(steps, f"{name!r}: {problem.diagnostic.problem}"))
        except ValueError as error:
            self.problems.append(self._fleet.problem(steps, f"{name!r}: {error}"))
        else:
            return text
        return ""


def check_certificates(text: str) -> None:
    """Raise ValueError unless this is PEM of certificates alone."""
    _refuse_private_key(text)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("not a PEM file of certificates") from None


def check_public_keys(text: str) -> None:
    """Raise ValueError unless this is a public key of OpenSSH on each line."""
    _refuse_private_key(text)
    lines = _lines(text)
    if not lines:
        raise ValueError("holds no public key")
    for line in lines:
        kind, _, rest = line.partition(" ")
        try:
            blob = base64.b64decode(rest.partition(" ")[0], validate=True)
        except binascii.Error:
            blob = b""
        if not kind.startswith(_KEY_TYPES) or blob[4 : 4 + len(kind)] != kind.encode():
            raise ValueError("not a file of OpenSSH public keys, like `ssh-ed25519 AAAA... comment`")


def _refuse_private_key(text: str) -> None:
    if "PRIVATE KEY-----" in text:
        raise ValueError("holds a private key; take it out of the repository, and consider it leaked")


def _lines(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
