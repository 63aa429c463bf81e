"""Two revisions of a spec: the desired values of the later one, at the endpoints of the earlier one.

If a proposed change could name an address and have the plan connect there, it would be sent our passwords (conventions
S3). So addresses, credentials and trust anchors come from base, node by node; what head says of them is reported. So do
extensions: code that only a proposed change names is never loaded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from reconciler.model.access import EventListenerPolicy, HostKeyPolicy, SlurmAccess, TlsPolicy
from reconciler.model.change import EndpointChange
from reconciler.model.desired import Desired, DesiredHost, Endpoints, Fleet, Profile, RolloutPolicy, Settings, SpecHold
from reconciler.model.releases import DesiredRelease, Review

# Addresses, credentials and trust anchors, the fleet's name, which chooses the ledger, and whose code is run. All else
# is desired state.
TRUSTED: Final = (
    "fleet", "bmc_credentials", "pdu_credentials", "ssh_credentials", "ssh_user", "tls", "host_keys", "cluster",
    "installer", "insecure", "user_ca", "extensions", "bmc_events",
)  # fmt: skip
_NOWHERE: Final = Endpoints(None, None)


def wanted(base: Fleet, head: Fleet) -> Fleet:
    """Return the desired values of head at the endpoints of base. Nodes that only head names have no endpoints."""
    nodes = {name: replace(node, endpoints=_endpoints(base, name)) for name, node in head.nodes.items()}
    trusted: dict[str, Any] = {field: getattr(base.settings, field) for field in TRUSTED}
    return replace(head, settings=replace(head.settings, **trusted), nodes=nodes)


def watched(base: Fleet, head: Fleet) -> Fleet:
    """Return the fleet to observe: base, and what head manages too. Nodes that only head names have no endpoints."""
    nodes = dict(base.nodes)
    known: dict[tuple[str, str], Profile] = {}
    for name, later in head.nodes.items():
        now = base.nodes.get(name)
        if now is None:
            nodes[name] = replace(later, endpoints=_NOWHERE)
            continue
        key = (now.profile.digest, later.profile.digest)
        if key not in known:
            known[key] = replace(now.profile, host=_both(now.profile.host, later.profile.host))
        nodes[name] = replace(now, profile=known[key])
    return replace(base, nodes=nodes, settings=replace(base.settings, releases=tuple(_releases(base, head))))


def _releases(base: Fleet, head: Fleet) -> Iterator[DesiredRelease]:
    """Yield the releases of head, with how far each may be trusted before somebody has merged it."""
    merged = {(one.place, one.inputs, one.chart.source) for one in base.settings.releases}
    sources = {one.chart.source for one in base.settings.releases if one.chart.archive is None}
    for one in head.settings.releases:
        if (one.place, one.inputs, one.chart.source) in merged:
            yield one
        elif one.chart.archive is not None or one.chart.source in sources:
            yield replace(one, review=Review.CHANGED)
        else:
            yield replace(one, review=Review.NEW_SOURCE)


def at_once(fleet: Fleet) -> Fleet:
    """Return the fleet without waves: its plan has all that a change does in the end, not what may begin first."""
    everyone = RolloutPolicy(waves=("100%",), bake_s=0.0)
    return replace(fleet, rollouts=dict.fromkeys({node.pool for node in fleet.nodes.values()}, everyone))


def joining(base: Fleet, head: Fleet) -> tuple[str, ...]:
    return tuple(name for name in head.nodes if name not in base.nodes)


def forgotten(base: Fleet, head: Fleet) -> tuple[str, ...]:
    return tuple(name for name in base.nodes if name not in head.nodes)


def _endpoints(base: Fleet, name: str) -> Endpoints:
    return base.nodes[name].endpoints if name in base.nodes else _NOWHERE


def _both(one: DesiredHost, other: DesiredHost) -> DesiredHost:
    return DesiredHost({**one.sysctls, **other.sysctls}, {**one.services, **other.services})


# --- what head says of it -------------------------------------------------------------------------------------------


def endpoint_changes(base: Fleet, head: Fleet) -> tuple[EndpointChange, ...]:
    """Return every address, key, CA, secret's name and extension that head edits, with its line; the fleet's first."""
    before, after = _access(base.settings), _access(head.settings)
    found = [
        EndpointChange("fleet", what, before[what], after[what], _place(head, what))
        for what in before
        if before[what] != after[what]
    ]
    for name, node in head.nodes.items():
        old = base.nodes.get(name)
        found += _moved(node, _NOWHERE if old is None else old.endpoints)
    return tuple(found)


def settings_edited(base: Fleet, head: Fleet) -> tuple[str, ...]:
    """Return the other fields of the Fleet that head edits, as the spec calls them: they decide how changes proceed."""
    names = (item.name for item in fields(Settings) if item.name not in TRUSTED)
    found = [name for name in names if getattr(base.settings, name) != getattr(head.settings, name)]
    found += ["rollout"] if base.rollouts != head.rollouts else []
    said = [_holds(base), _holds(head)]
    found += ["hold"] if said[0] != said[1] else []
    return tuple(dict.fromkeys(_WORDS.get(name, name) for name in found))


def _holds(fleet: Fleet) -> list[SpecHold]:
    """Return the holds without their line numbers."""
    return [replace(hold, position="") for hold in fleet.holds]


_WORDS: Final = {
    "concurrency": "observation", "redfish_deadline_s": "observation", "ssh_deadline_s": "observation",
    "kubernetes_deadline_s": "observation", "inventory_max_age_s": "observation", "tolerate": "observation",
    "drift_mode": "drift", "drift_forge": "drift", "floors": "floor", "reserves": "spares", "break_glass": "breakGlass",
    "rotate_after_s": "redfish.rotateAfter",
}  # fmt: skip


def _moved(node: Desired, old: Endpoints) -> Iterator[EndpointChange]:
    for what, before, after in (("bmc", old.bmc, node.endpoints.bmc), ("host", old.host, node.endpoints.host)):
        if before != after:
            place = node.provenance.get(f"endpoints.{what}") or node.provenance.get("node")
            yield EndpointChange(node.node, what, before or "", after or "", str(place or ""))


def _access(settings: Settings) -> Mapping[str, str]:
    cluster, installer = settings.cluster, settings.installer
    return {
        "name": settings.fleet,
        "redfish.credentials": settings.bmc_credentials or "",
        "redfish.pduCredentials": settings.pdu_credentials or "",
        "redfish.tls": _tls(settings.tls),
        "redfish.events": _events(settings.bmc_events),
        "ssh.user": settings.ssh_user,
        "ssh.credentials": settings.ssh_credentials or "",
        "ssh.hostKeys": _host_keys(settings.host_keys),
        "ssh.userCa": _digest("\n".join(settings.user_ca)),
        "cluster": cluster.name if cluster else "",
        "cluster.kubeconfig": (cluster.kubeconfig or "") if cluster else "",
        "cluster.context": (cluster.context or "") if cluster else "",
        "cluster.slurm": _slurm(cluster.slurm, settings.ssh_user) if cluster else "",
        "installer.listen": installer.listen if installer else "",
        "installer.url": (installer.url or "") if installer else "",
        "installer.iso": installer.iso if installer else "",
        "installer.certificate": (installer.certificate or "") if installer else "",
        "installer.key": (installer.key or "") if installer else "",
        "extensions": ", ".join(f"{one.package}=={one.version}" for one in settings.extensions),
        "installer.hostCa": (installer.host_ca or "") if installer else "",
    }


def _events(policy: EventListenerPolicy | None) -> str:
    if policy is None:
        return ""
    said = {name: getattr(policy, name) for name in ("listen", "url", "certificate", "key")}
    return ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)


def _slurm(access: SlurmAccess | None, ssh_user: str) -> str:
    return "" if access is None else f"{access.user or ssh_user}@{access.login}"


def _place(head: Fleet, what: str) -> str:
    at = head.places.get(what) or head.places.get(what.partition(".")[0]) or head.places.get("name")
    return str(at or "")


def _digest(authorities: str) -> str:
    return f"CA sha256:{hashlib.sha256(authorities.encode()).hexdigest()[:16]}" if authorities else ""


def _tls(policy: TlsPolicy) -> str:
    if policy.insecure:
        return "not verified"
    return _digest(policy.ca or "")


def _host_keys(policy: HostKeyPolicy) -> str:
    if policy.insecure:
        return "not verified"
    return ", ".join(sorted(map(_fingerprint, policy.authorities)))


def _fingerprint(key: str) -> str:
    """Return the fingerprint of a public key as `ssh-keygen -l` prints it."""
    blob = base64.b64decode(key.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
