"""What an approval is bound to: every value that an action may use, under a path (DESIGN 7.3).

Walked by the fields of the dataclasses, so that a field is bound unless it stands in `EXEMPT` with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.model.desired import Desired, DesiredFirmware, Fleet, Profile, Settings
from reconciler.model.errors import Position
from reconciler.model.inputs import MACHINE, text_of
from reconciler.model.observed import Answered, Observed, Taint
from reconciler.model.records import NodeRecord
from reconciler.planner.node.disks import matching

_WAIT = "how long and how often is read: no action does anything else for it"
_LIVE = "asked afresh before each action, whatever was approved"
EXEMPT: Final[Mapping[type, Mapping[str, str]]] = {
    Desired: {
        "profile": "bound apart, as what equal nodes share",
        "provenance": "lines of the spec: a value that has moved is the same value",
        "domains": "budgets, floors, the brake and the witnesses of a silent host look at them afresh; no action does",
    },
    Profile: {
        "digest": "follows from the other fields",
        "provenance": "lines of the spec: a value that has moved is the same value",
    },
    Settings: {
        "concurrency": _WAIT,
        "redfish_deadline_s": _WAIT,
        "ssh_deadline_s": _WAIT,
        "kubernetes_deadline_s": _WAIT,
        "inventory_max_age_s": _WAIT,
        "tolerate": "what a report calls incomplete",
        "budgets": _LIVE,
        "floors": _LIVE,
        "windows": _LIVE,
        "break_glass": _LIVE,
        "guards": "the plan of the moment is held against them",
        "brake": _LIVE,
        "drift_mode": "governs `run` and schedules, not an apply",
        "ignore": "decides which actions there are, and they are bound",
        "insecure": "sentences that follow from the TLS and host-key policy, which are bound",
    },
}

# As the spec calls it, where a field is called otherwise.
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
    (Settings, "ssh_credentials"): "fleet.ssh.credentials",
    (Settings, "ssh_user"): "fleet.ssh.user",
    (Settings, "tls"): "fleet.redfish.tls",
    (Settings, "host_keys"): "fleet.ssh.hostKeys",
    (Settings, "cluster"): "fleet.cluster",
    (Settings, "installer"): "fleet.installer",
}
_KEYS: Final[Mapping[type, str]] = {DesiredFirmware: "component", Taint: "key"}  # which one it is, wherever it stands
# Inputs whose place is told under another path, and those that the line of the node sets if no other does.
_PLACED: Final = (("root_disk", "image.root_disk"), ("image.contents", "image"), ("acceptance", "gate.certificate"))
_OF_NODES: Final = ("node", "pool", "state", "endpoints", "identity", "root_disk")


def shared_inputs(profile: Profile, settings: Settings, endpoints: str) -> dict[str, str]:
    """What equal nodes share. `endpoints`: digest of the file given with --endpoints."""
    return _walk(settings, "", _walk(profile, "", {"--endpoints": text_of(endpoints or None)}))


def own_inputs(desired: Desired, observed: Observed, record: NodeRecord) -> dict[str, str]:
    """The inputs of this node alone, and the identity of its machine as far as it is known."""
    found = _walk(desired, "", {})
    for path, value in zip(MACHINE, _machine(desired, observed, record), strict=True):
        if value:
            found[path] = text_of(value)
    return found


def _machine(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[str, str, str]:
    """Serial number and UUID behind the BMC's address, or the ledger's; serial number of the disk for the image."""
    hot = observed.hot.value if isinstance(observed.hot, Answered) else None
    serial = (hot.serial if hot is not None else None) or record.serial
    uuid = (hot.uuid if hot is not None else None) or record.uuid
    image = desired.profile.image
    rule = desired.root_disk or (image.root_disk if image is not None else None)
    drives = observed.inventory.value.drives if isinstance(observed.inventory, Answered) else None
    found = [] if rule is None else matching(rule, drives or ())
    disk = found[0].serial if len(found) == 1 else None
    return normalise.text(serial or ""), normalise.text(uuid or ""), normalise.text(disk or "")


def place_of(path: str, desired: Desired, fleet: Fleet) -> Position | None:
    """Where the spec sets an input, or what encloses it."""
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
    """`found` with the leaves of a value. TypeError for one that JSON does not know: it needs a rule here."""
    if value is None or isinstance(value, str):
        _keep(path, value, found)
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
        _keep(path, value, found)
    return found


def _keep(path: str, value: Any, found: dict[str, str]) -> None:
    if path in found:
        raise ValueError(f"two inputs are called {path}: one would hide the other")
    found[path] = text_of(value)


@lru_cache
def _bound(kind: Any) -> tuple[tuple[str, str], ...]:
    """(field, what it is called) of all fields that are not exempt."""
    exempt = EXEMPT.get(kind, {})
    return tuple((f.name, _NAMES.get((kind, f.name), f.name)) for f in fields(kind) if f.name not in exempt)


def _keyed(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """By name where order says nothing and names are unique, else by place."""
    key = _KEYS.get(type(items[0]), "")
    names = [str(getattr(item, key)) for item in items] if key else []
    if len(set(names)) == len(items):
        yield from zip(names, items, strict=True)
    else:
        yield from ((str(at), item) for at, item in enumerate(items))
