"""List the inputs that an approval binds: every value that an action may use, by its path (DESIGN 7.3).

The fields of the dataclasses are walked, so every field is bound unless `EXEMPT` names it with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.gate.exchanged import fabric_of
from reconciler.model.desired import Desired, DesiredFirmware, Fleet, Profile, Settings
from reconciler.model.errors import Position
from reconciler.model.inputs import MACHINE, text_of
from reconciler.model.network import DesiredLink
from reconciler.model.observed import Answered, Observed, Taint
from reconciler.model.records import NodeRecord
from reconciler.planner.node.disks import matching_drives

_WAIT = "decides how long and how often to read: no action does anything else for it"
_LIVE = "checked again before each action, whatever was approved"
EXEMPT: Final[Mapping[type, Mapping[str, str]]] = {
    Desired: {
        "profile": "bound apart, as what equal nodes share",
        "provenance": "lines of the spec: a value on another line is the same value",
        "asked": "whoever asks for a gate confirms its plan; what follows are actions, which are bound",
        "uncut": "follows from the nodes that share its outlets, which are asked again before each cut",
        "domains": "budgets, floors, the storm brake and host_down use their current values; leaves and spines are "
        "bound apart, as a gate chooses its tests by them",
    },
    Profile: {
        "digest": "follows from the other fields",
        "health": "decides which actions are planned, and those are bound",
        "provenance": "lines of the spec: a value on another line is the same value",
    },
    Settings: {
        "concurrency": _WAIT,
        "rotate_after_s": "decides when an action is planned, and that is bound",
        "redfish_deadline_s": _WAIT,
        "ssh_deadline_s": _WAIT,
        "kubernetes_deadline_s": _WAIT,
        "inventory_max_age_s": _WAIT,
        "tolerate": "decides what a report calls incomplete",
        "releases": "bound apart, by the fingerprint of each release's plan: no action on a node uses them",
        "budgets": _LIVE,
        "floors": _LIVE,
        "reserves": _LIVE,
        "windows": _LIVE,
        "break_glass": _LIVE,
        "guards": "the current plan is checked against them",
        "brake": _LIVE,
        "user_ca": "bound with each host that is to have it",
        "notifications": "tell people what happened: no action uses them",
        "tickets": "tell people what to exchange: no action uses them",
        "drift_mode": "governs `run` and schedules, not an apply",
        "drift_forge": "where `run` proposes drift: no action uses it",
        "inventory": "what `run` proposes pull requests from: no action uses it",
        "health": "decides which actions are planned, and those are bound",
        "ignore": "decides which actions are planned, and those are bound",
        "bmc_events": "where `run` hears of nodes to read: no action uses it",
        "insecure": "sentences that follow from the TLS and host-key policy, which are bound",
    },
}

# The names that the spec uses, where those of the fields differ.
_NAMES: Final[Mapping[tuple[type, str], str]] = {
    (Desired, "serial"): "identity.serial",
    (Desired, "uuid"): "identity.uuid",
    (Desired, "hostname"): "host.hostname",
    (Profile, "inventory"): "hardware",
    (Profile, "secure_boot"): "boot.secure_boot",
    (Profile, "boot_order"): "boot.order",
    (Profile, "membership"): "cluster",
    (Settings, "fleet"): "fleet.name",
    (Settings, "bmc_credentials"): "fleet.redfish.credentials",
    (Settings, "pdu_credentials"): "fleet.redfish.pduCredentials",
    (Settings, "ssh_credentials"): "fleet.ssh.credentials",
    (Settings, "ssh_user"): "fleet.ssh.user",
    (Settings, "tls"): "fleet.redfish.tls",
    (Settings, "host_keys"): "fleet.ssh.hostKeys",
    (Settings, "cluster"): "fleet.cluster",
    (Settings, "installer"): "fleet.installer",
}
# The field that identifies an item of a list, whatever its position.
_KEYS: Final[Mapping[type, str]] = {DesiredFirmware: "component", DesiredLink: "name", Taint: "key"}
# Inputs whose position is recorded under another path, and inputs that the node's own line sets if no other does.
_PLACED: Final = (("root_disk", "image.root_disk"), ("image.contents", "image"), ("acceptance", "gate.certificate"))
_OF_NODES: Final = (
    "node",
    "pool",
    "state",
    "endpoints",
    "domains",
    "identity",
    "root_disk",
    "provision",
    "network",
    "erase",
    "outlets",
)


def shared_inputs(profile: Profile, settings: Settings, endpoints: str) -> dict[str, str]:
    """Return the inputs that nodes of one profile share. `endpoints`: digest of the file given with --endpoints."""
    return _walk(settings, "", _walk(profile, "", {"--endpoints": text_of(endpoints or None)}))


def own_inputs(desired: Desired, observed: Observed, record: NodeRecord) -> dict[str, str]:
    """Return the inputs of this node alone, and the identity of its machine as far as it is known."""
    found = _walk(desired, "", {})
    for label, name in fabric_of(desired.domains).items():
        _bind(f"domains.{label}", name, found)
    for path, value in zip(MACHINE, _machine(desired, observed, record), strict=True):
        if value:
            found[path] = text_of(value)
    return found


def _machine(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[str, str, str]:
    """Return serial number and UUID, of the BMC or else the ledger, and the serial number of the root disk."""
    hot = observed.hot.value if isinstance(observed.hot, Answered) else None
    serial = (hot.serial if hot is not None else None) or record.serial
    uuid = (hot.uuid if hot is not None else None) or record.uuid
    image = desired.profile.image
    rule = desired.root_disk or (image.root_disk if image is not None else None)
    drives = observed.inventory.value.drives if isinstance(observed.inventory, Answered) else None
    found = [] if rule is None else matching_drives(rule, drives or ())
    disk = found[0].serial if len(found) == 1 else None
    return normalise.text(serial or ""), normalise.text(uuid or ""), normalise.text(disk or "")


def place_of(path: str, desired: Desired, fleet: Fleet) -> Position | None:
    """Return where the spec sets an input, or else the mapping that contains it; None if it sets neither."""
    if path.startswith("fleet."):
        return _nearest(path.removeprefix("fleet."), fleet.places)
    spellings = [path, *(there + path[len(name) :] for name, there in _PLACED if f"{path}.".startswith(f"{name}."))]
    for spelled in spellings:
        for table in (desired.provenance, desired.profile.provenance):
            if (at := _nearest(spelled, table)) is not None:
                return at
    return desired.provenance.get("node") if path.partition(".")[0] in _OF_NODES else None


def _nearest(path: str, places: Mapping[str, Position]) -> Position | None:
    while path and path not in places:
        path = path.rpartition(".")[0]
    return places.get(path)


# --- the walk -------------------------------------------------------------------------------------------------------


def _walk(value: Any, path: str, found: dict[str, str]) -> dict[str, str]:
    """Add the leaves of a value to `found`. Raise TypeError for a type that JSON lacks: it needs a rule here."""
    if value is None or isinstance(value, str):
        _bind(path, value, found)
    elif is_dataclass(value):
        kind: Any = type(value)
        for name, called in _bound(kind):
            _walk(getattr(value, name), f"{path}.{called}" if path else called, found)
    elif isinstance(value, Mapping) and value:
        for key in sorted(value):
            _walk(value[key], f"{path}.{key}", found)
    elif isinstance(value, tuple | list) and any(map(is_dataclass, value)):
        for key, item in _keyed(value):
            _walk(item, f"{path}.{key}", found)
    else:
        _bind(path, value, found)
    return found


def _bind(path: str, value: Any, found: dict[str, str]) -> None:
    if path in found:
        raise ValueError(f"two inputs are called {path}: one would hide the other")
    found[path] = text_of(value)


@lru_cache
def _bound(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return (field, name in the spec) of all fields that are not exempt."""
    exempt = EXEMPT.get(kind, {})
    return tuple((f.name, _NAMES.get((kind, f.name), f.name)) for f in fields(kind) if f.name not in exempt)


def _keyed(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Key items by name where they have unique names and their order means nothing, else by position."""
    key = _KEYS.get(type(items[0]), "")
    names = [str(getattr(item, key)) for item in items] if key else []
    if len(set(names)) == len(items):
        yield from zip(names, items, strict=True)
    else:
        yield from ((str(at), item) for at, item in enumerate(items))
