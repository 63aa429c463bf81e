"""What a spec mentions of a node, and how to read each of it out of an observation.

`managed(profile)` compiles a profile into a table once; reading a node is one call per row. A reader returns a
hashable, normalised value, or `Missing` when the fact is not known. It never raises and never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reconciler.diff import normalise
from reconciler.model.desired import DesiredFirmware, Profile
from reconciler.model.observed import (
    FirmwareItem,
    HostFacts,
    Member,
    Observed,
    RedfishHot,
    Silent,
)
from reconciler.model.vocab import Concern, Source, UnknownReason


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that is not known. Equal reasons are equal, so that equal nodes share one comparison."""

    reason: UnknownReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """One path that the spec mentions. `wanted` is normalised like what `read` gives; `shown` is what people wrote.

    `raw` gives what was read as the node spells it, where normalising changes the spelling.
    """

    path: str
    concern: Concern
    source: Source
    wanted: Hashable
    shown: Any
    read: Callable[[Observed], Hashable]
    raw: Callable[[Observed], Hashable] | None = None


def managed(profile: Profile) -> tuple[Managed, ...]:
    """Every path of the profile, in the order of reports: concern, then path."""
    rows = [
        *_hardware(profile),
        *map(_firmware, profile.firmware),
        *(_bios(name, value) for name, value in profile.bios.items()),
        *_boot(profile),
        *_image(profile),
        *_host(profile),
        *_gpu(profile),
        *_cluster(profile),
    ]
    order = list(Concern)
    return tuple(sorted(rows, key=lambda row: (order.index(row.concern), row.path)))


# --- reading one source ------------------------------------------------------------------------------------------


def _missing(silent: Silent) -> Missing:
    """A known cause is told; other details name the node and its address, and would spoil the sharing."""
    return Missing(silent.reason, silent.detail if silent.reason is UnknownReason.EXPLAINED else "")


def hot(observed: Observed) -> RedfishHot | Missing:
    return _missing(observed.hot) if isinstance(observed.hot, Silent) else observed.hot.value


def host(observed: Observed) -> HostFacts | Missing:
    return _missing(observed.host) if isinstance(observed.host, Silent) else observed.host.value


def member(observed: Observed) -> Member | Missing | None:
    """None: known to be absent from the cluster."""
    return _missing(observed.member) if isinstance(observed.member, Silent) else observed.member.value


def _of(reading: str, name: str, shape: Callable[[Any], Hashable]) -> Callable[[Observed], Hashable]:
    """Reads one field of what a source answered, in the given shape. What equal nodes share is shaped once."""
    last: tuple[Any, Hashable] = (None, None)

    def read(observed: Observed) -> Hashable:
        nonlocal last
        answer = getattr(observed, reading)
        if isinstance(answer, Silent):
            return _missing(answer)
        value = getattr(answer.value, name)
        if value is None:
            return Missing(UnknownReason.UNSUPPORTED, str(answer.value.unknown.get(name, "not reported")))
        if value is not last[0]:
            last = (value, shape(value))
        return last[1]

    return read


_of_hot, _of_inventory, _of_host = (partial(_of, reading) for reading in ("hot", "inventory", "host"))


def _key(name: str, what: str, shape: Callable[[Any], Hashable]) -> Callable[[Any], Hashable]:
    """Reads one key of a mapping; an absent key is unknown, not different."""

    def read(values: Mapping[str, Any]) -> Hashable:
        value = values.get(name)
        return Missing(UnknownReason.UNSUPPORTED, f"no {what} {name!r} is reported") if value is None else shape(value)

    return read


# --- the rows of each concern ------------------------------------------------------------------------------------


def _hardware(profile: Profile) -> list[Managed]:
    """Counts are exact: one device too many is as wrong as one too few (acceptance rule 3)."""
    want = profile.inventory
    readers: dict[str, tuple[Source, Callable[[Observed], Hashable]]] = {
        "manufacturer": (Source.REDFISH, _of_hot("manufacturer", normalise.text)),
        "model": (Source.REDFISH, _of_hot("model", normalise.text)),
        "gpus": (Source.SSH, _of_host("gpus", lambda gpus: len([gpu for gpu in gpus if not gpu.lost]))),
        "gpu_model": (Source.SSH, _of_host("gpus", _gpu_model)),
        "nvlinks_per_gpu": (Source.SSH, _nvlinks(want.nvlinks_per_gpu)),
        "rdma_ports": (Source.SSH, _of_host("links", _rdma_ports)),
        "nics": (Source.REDFISH, _of_inventory("nics", len)),
        "drives": (Source.REDFISH, _of_inventory("drives", len)),
        "dimms": (Source.REDFISH, _of_inventory("dimms", int)),
        "memory_bytes": (Source.REDFISH, _of_inventory("memory_bytes", int)),
        "processors": (Source.REDFISH, _of_inventory("processors", int)),
    }
    rows = []
    for name, (source, read) in readers.items():
        value = getattr(want, name)
        if value is not None:
            wanted = normalise.text(value) if isinstance(value, str) else value
            rows.append(Managed(f"hardware.{name}", Concern.HARDWARE, source, wanted, value, read))
    return rows


def _gpu_model(gpus: Any) -> Hashable:
    names = sorted({normalise.text(name) for name in {gpu.name for gpu in gpus if gpu.name}})
    return " + ".join(names) if names else Missing(UnknownReason.MALFORMED, "no GPU gives its name")


def _nvlinks(wanted: int | None) -> Callable[[Observed], Hashable]:
    """The GPU with the fewest links speaks for the node; no GPU at all has none.

    In MIG mode a GPU gives no NVLink status, as it uses none. The gate, which runs with MIG off, has counted them.
    """
    fewest = _of_host("nvlinks_active", lambda links: min(links.values(), default=0))

    def read(observed: Observed) -> Hashable:
        facts = host(observed)
        if not isinstance(facts, Missing) and facts.gpus and all(gpu.mig_current for gpu in facts.gpus if not gpu.lost):
            return wanted
        return fewest(observed)

    return read


def _rdma_ports(links: Any) -> Hashable:
    return len([link for link in links if link.kind == "infiniband" and link.up is True])


def _firmware(item: DesiredFirmware) -> Managed:
    def read(found: FirmwareItem) -> Hashable:
        if item.policy == "min" and normalise.version_key(found.version) >= normalise.version_key(item.version):
            return normalise.version(item.version)  # newer is as good (pitfall F5)
        return normalise.version(found.version)

    return Managed(
        f"firmware.{item.component}",
        Concern.FIRMWARE,
        Source.REDFISH,
        normalise.version(item.version),
        item.version,
        _of_inventory("firmware", _key(item.inventory_id, "firmware", read)),
    )


def _bios(name: str, value: Any) -> Managed:
    read = _of_inventory("bios", _key(name, "BIOS attribute", normalise.attribute))
    raw = _of_inventory("bios", _key(name, "BIOS attribute", lambda found: found))
    return Managed(f"bios.{name}", Concern.BIOS, Source.REDFISH, normalise.attribute(value), value, read, raw)


def _boot(profile: Profile) -> list[Managed]:
    rows = []
    if profile.secure_boot is not None:
        rows.append(
            Managed(
                "boot.secure_boot", Concern.BOOT, Source.REDFISH, profile.secure_boot, profile.secure_boot, _secure_boot
            )
        )
    if profile.boot_order is not None:
        order, count = profile.boot_order, len(profile.boot_order)
        rows.append(
            Managed(
                "boot.order",
                Concern.BOOT,
                Source.REDFISH,
                tuple(map(normalise.text, order)),
                list(order),
                # What stands behind the declared entries is unmanaged.
                _of_inventory("boot_order", lambda found: tuple(map(normalise.text, found))[:count]),
                _of_inventory("boot_order", lambda found: tuple(found)[:count]),
            )
        )
    return rows


_secure_boot_of_bmc, _secure_boot_of_host = _of_inventory("secure_boot", bool), _of_host("secure_boot", bool)


def _secure_boot(observed: Observed) -> Hashable:
    """Two witnesses. One that says "on" while the other says "off" is a contradiction, not an answer."""
    bmc, os = _secure_boot_of_bmc(observed), _secure_boot_of_host(observed)
    if isinstance(bmc, Missing) or isinstance(os, Missing) or bmc == os:
        return bmc
    return Missing(UnknownReason.MALFORMED, f"contradictory: the BMC says {_on(bmc)}, the host says {_on(os)}")


def _on(value: Hashable) -> str:
    return "on" if value else "off"


def _image(profile: Profile) -> list[Managed]:
    image = profile.image
    if image is None:
        return []

    def part(name: str) -> Callable[[Observed], Hashable]:
        # A host that answers and has no such key carries some other image: that is known, and it is drift.
        return _of_host("image", lambda found: getattr(found, name) or "none")

    rows = [
        Managed("image.name", Concern.IMAGE, Source.SSH, image.name, image.name, part("image")),
        Managed("image.version", Concern.IMAGE, Source.SSH, image.version, image.version, part("version")),
        Managed("image.sha256", Concern.IMAGE, Source.SSH, image.sha256, image.sha256, part("sha256")),
        Managed(
            "image.root_disk", Concern.IMAGE, Source.SSH, "as installed", "as installed", _of_host("image", _root_disk)
        ),
    ]
    for name in ("kernel", "driver"):  # a version is a claim; these are what runs (pitfall L7)
        if name in image.contents:
            value = image.contents[name]
            rows.append(Managed(f"image.{name}", Concern.IMAGE, Source.SSH, value, value, _of_host(name, str)))
    return rows


def _root_disk(found: Any) -> Hashable:
    """The disk that the installer wrote must be the disk that / is on (pitfall L1)."""
    if found.booted_disk is None:
        return Missing(UnknownReason.UNSUPPORTED, "the disk that / is on gives no serial")
    if found.root_disk is None:
        return "none"
    return "as installed" if normalise.text(found.root_disk) == normalise.text(found.booted_disk) else found.booted_disk


def _host(profile: Profile) -> list[Managed]:
    rows = []
    for name, value in profile.host.sysctls.items():
        read = _of_host("sysctls", _key(name, "sysctl", normalise.sysctl))
        rows.append(Managed(f"host.sysctls.{name}", Concern.HOST, Source.SSH, normalise.sysctl(value), value, read))
    for name, value in profile.host.services.items():
        read = _of_host("services", _key(name, "service", _service))
        rows.append(Managed(f"host.services.{name}", Concern.HOST, Source.SSH, value, value, read))
    return rows


def _service(found: Any) -> Hashable:
    if found.active is None:
        return Missing(UnknownReason.MALFORMED, "systemd gives no state")
    return "running" if found.active else "stopped"


def _gpu(profile: Profile) -> list[Managed]:
    if profile.gpu is None:
        return []
    wanted = layout(profile.gpu.mig)
    return [Managed("gpu.mig", Concern.GPU, Source.SSH, wanted, wanted, _of_host("gpus", observed_layout))]


def layout(mig: Mapping[str, int] | None) -> str:
    """A MIG layout as text, the same for spec and host: "off", or "1g.10gb x4, 3g.40gb"."""
    if mig is None:
        return "off"
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(mig.items())) or "on, empty"


def observed_layout(gpus: Any) -> Hashable:
    """The layout that all GPUs share. GPUs that differ are said one by one; a pending mode is not a mode (A11)."""
    if any(gpu.mig_current is None for gpu in gpus if not gpu.lost):
        return Missing(UnknownReason.MALFORMED, "a GPU gives no MIG mode")
    present = [gpu for gpu in gpus if not gpu.lost]
    modes = [
        (gpu.mig_current, gpu.mig_pending, tuple([device.profile for device in gpu.mig_devices])) for gpu in present
    ]
    said = {mode: _said(*mode) for mode in set(modes)}
    if len(set(said.values())) == 1:
        return said[modes[0]]
    return "; ".join(f"GPU {gpu.index}: {said[mode]}" for gpu, mode in zip(present, modes, strict=True))


def _said(current: bool, pending: bool | None, profiles: tuple[str, ...]) -> str:
    counts = {profile: profiles.count(profile) for profile in profiles}
    return layout(counts if current else None) + ("" if pending in (None, current) else " (mode change pending)")


def _cluster(profile: Profile) -> list[Managed]:
    want = profile.membership
    if want is None:
        return []
    rows = [Managed("cluster.member", Concern.CLUSTER, Source.KUBERNETES, "ready", "ready", _membership)]
    for name, value in want.labels.items():
        rows.append(
            Managed(
                f"cluster.labels.{name}", Concern.CLUSTER, Source.KUBERNETES, value, value, _of_member("labels", name)
            )
        )
    for taint in want.taints:
        shown = f"{taint.value}:{taint.effect}"
        rows.append(
            Managed(f"cluster.taints.{taint.key}", Concern.CLUSTER, Source.KUBERNETES, shown, shown, _taint(taint.key))
        )
    return rows


def _membership(observed: Observed) -> Hashable:
    found = member(observed)
    if isinstance(found, Missing):
        return found
    if found is None:
        return "absent"
    if found.ready is None:
        return Missing(UnknownReason.MALFORMED, "the node object has no Ready condition")
    return "ready" if found.ready else "not ready"


def _of_member(attribute: str, name: str) -> Callable[[Observed], Hashable]:
    def read(observed: Observed) -> Hashable:
        found = member(observed)
        if isinstance(found, Missing):
            return found
        values: Mapping[str, str] = getattr(found, attribute) if found is not None else {}
        return values.get(name, "absent")

    return read


def _taint(key: str) -> Callable[[Observed], Hashable]:
    def read(observed: Observed) -> Hashable:
        found = member(observed)
        if isinstance(found, Missing):
            return found
        for taint in found.taints if found is not None else ():
            if taint.key == key:
                return f"{taint.value}:{taint.effect}"
        return "absent"

    return read
