"""The managed values of a node, and how each is read from an observation.

`managed` compiles a profile into a table. A reader returns a hashable, normalised value, or `Missing` when the fact is
not known. It never raises and never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from reconciler.diff import boot_order, normalise, software
from reconciler.diff.gpus import GpuSummary, contradiction, layout, layouts, summarise_gpus
from reconciler.diff.k3s import k3s_rows
from reconciler.diff.managed import Managed as Managed
from reconciler.diff.readings import ABSENT, Fact, Missing, host, member
from reconciler.model.desired import DesiredFirmware, Profile
from reconciler.model.gpus import SmiAnswer
from reconciler.model.observed import HIDDEN, FirmwareItem, Link, NvmeHealth, Observed, Silent, Taint
from reconciler.model.vocab import Concern, Source, UnknownReason

CONSISTENT: Final = "consistent"  # hardware.gpu_account: the document and the exit status of nvidia-smi agree
READ: Final = "read"  # hardware.smart_logs: every log was read


def managed(profile: Profile) -> tuple[Managed, ...]:
    """Return every managed path of the profile, in the order of reports: by concern, then by path."""
    rows = [
        *_hardware(profile),
        *map(_firmware, profile.firmware),
        *(_bios(name, value) for name, value in profile.bios.items()),
        *_boot(profile),
        *_image(profile),
        *_host(profile),
        *_gpu(profile),
        *_cluster(profile),
        *k3s_rows(profile),
    ]
    order = list(Concern)
    return tuple(sorted(rows, key=lambda row: (order.index(row.concern), row.path)))


_of_hot, _of_inventory, _of_host = (partial(Fact, reading) for reading in ("hot", "inventory", "host"))


def _key(name: str, what: str, shape: Callable[[Any], Hashable]) -> Callable[[Any], Hashable]:
    """Return a reader of one key of a mapping. An absent key is unknown, not different."""

    def read(values: Mapping[str, Any]) -> Hashable:
        value = values.get(name)
        if value == HIDDEN:
            return Missing(UnknownReason.NOT_ASKED, HIDDEN)
        return Missing(UnknownReason.UNSUPPORTED, f"no {what} {name!r} is reported") if value is None else shape(value)

    return read


# --- the rows of each concern ------------------------------------------------------------------------------------


def _hardware(profile: Profile) -> list[Managed]:
    """Return the rows of the inventory. Counts are exact: one device too many is wrong, too (acceptance rule 3)."""
    want = profile.inventory
    readers: dict[str, tuple[Source, Callable[[Observed], Hashable]]] = {
        "manufacturer": (Source.REDFISH, _of_hot("manufacturer", normalise.text)),
        "model": (Source.REDFISH, _of_hot("model", normalise.text)),
        "gpus": (Source.SSH, _of_host("gpus", _gpus(want.gpus), first=summarise_gpus)),
        "gpu_model": (Source.SSH, _of_host("gpus", attrgetter("model"), first=summarise_gpus)),
        "nvlinks_per_gpu": (Source.SSH, _nvlinks(want.nvlinks_per_gpu, want.gpus)),
        "rdma_ports": (Source.SSH, _of_host("links", _rdma_ports(want.rdma_ports))),
        "rdma_rate_gbps": (Source.SSH, _of_host("links", _rdma_rate)),
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
    if want.gpus:
        account = _of_host("smi", _account)
        rows.append(Managed("hardware.gpu_account", Concern.HARDWARE, Source.SSH, CONSISTENT, CONSISTENT, account))
    if want.drives:
        logs = _of_host("nvme", _smart_logs)
        rows.append(Managed("hardware.smart_logs", Concern.HARDWARE, Source.SSH, READ, READ, logs))
    return rows


def _gpus(wanted: int | None) -> Callable[[GpuSummary], Hashable]:
    """Return a reader of the number of GPUs. The number is unknown when a GPU leaves out a cell of its health."""

    def read(found: GpuSummary) -> Hashable:
        if found.unread and found.answering == wanted:
            return Missing(UnknownReason.MALFORMED, found.unread)
        return found.answering

    return read


def _account(answer: SmiAnswer) -> Hashable:
    why = contradiction(answer)
    return Missing(UnknownReason.MALFORMED, why) if why else CONSISTENT


def _nvlinks(wanted: int | None, gpus: int | None) -> Callable[[Observed], Hashable]:
    """Return a reader of the links at full speed of the GPU that has the fewest; 0 without any GPU.

    Each GPU must answer, except those in MIG mode, which use no NVLink and give no status; the gate, which runs with
    MIG off, has counted theirs. Too few links on one GPU are known whatever the others answer.
    """

    def read(observed: Observed) -> Hashable:
        facts = host(observed)
        if isinstance(facts, Missing):
            return facts
        present = [gpu for gpu in facts.gpus or () if not gpu.lost]
        if present and all(gpu.mig_current for gpu in present):
            return wanted
        links, slow = facts.nvlinks_active, facts.nvlinks_slow or {}
        if links is None:
            return Missing(UnknownReason.UNSUPPORTED, str(facts.unknown.get("nvlinks_active", "not reported")))
        asked = [gpu.index for gpu in present if not gpu.mig_current] if facts.gpus is not None else range(gpus or 0)
        silent = [index for index in asked if index not in links]
        if slow:
            links = {index: active - slow.get(index, 0) for index, active in links.items()}
        if wanted == 0 and not links and not any(name.startswith("nvlinks_active") for name in facts.unknown):
            return 0  # the tool answered without any link, as it does on boards without NVLink
        fewest = min(links.values(), default=0)
        if silent and (fewest == wanted or not links):
            return Missing(UnknownReason.UNSUPPORTED, f"{_named('GPU', silent)} no NVLink status")
        return fewest

    return read


def _named(what: str, names: Sequence[object]) -> str:
    """Return names with their verb: "GPU 3 gives", "GPU 3, 5 give"."""
    return f"{what} {', '.join(map(str, names))} {'gives' if len(names) == 1 else 'give'}"


def _rdma_ports(wanted: int | None) -> Callable[[tuple[Link, ...]], Hashable]:
    """Return a reader of the number of ports that are up; it is unknown when ports without a state may decide it."""

    def read(links: tuple[Link, ...]) -> Hashable:
        ports = [link for link in links if link.kind == "infiniband"]
        up = len([link for link in ports if link.up is True])
        silent = [link.name for link in ports if link.up is None]
        if silent and wanted is not None and up <= wanted <= up + len(silent):
            return Missing(UnknownReason.MALFORMED, f"{_named('RDMA port', silent)} no state")
        return up

    return read


def _rdma_rate(links: tuple[Link, ...]) -> Hashable:
    """Return the rate of the slowest port that is up, in Gb/s. The number of ports covers those that are down."""
    ports = [link for link in links if link.kind == "infiniband" and link.up is not False]
    silent = [link.name for link in ports if link.rate_gbps is None or link.up is None]
    if silent:
        return Missing(UnknownReason.MALFORMED, f"{_named('RDMA port', silent)} no rate")
    slowest = min([link.rate_gbps for link in ports if link.rate_gbps is not None], default=0.0)
    return int(slowest) if slowest.is_integer() else slowest


def _smart_logs(drives: tuple[NvmeHealth, ...]) -> Hashable:
    """Return whether the host has read the SMART log of each of its NVMe drives. The BMC counts the drives."""
    unread = [drive.serial or drive.device for drive in drives if not _smart_is_read(drive)]
    if not unread:
        return READ
    return Missing(UnknownReason.MALFORMED, f"{_named('drive', unread)} no SMART log (is nvme-cli on the host?)")


def _smart_is_read(drive: NvmeHealth) -> bool:
    """Return whether all cells are there by which a drive is judged. Every version of nvme-cli prints them."""
    return None not in (drive.critical_warning, drive.media_errors, drive.percentage_used, drive.available_spare)


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
        order, read = profile.boot_order, partial(_boot_order, profile.boot_order)
        rows.append(Managed("boot.order", Concern.BOOT, Source.REDFISH, order, list(order), read, parts=_both))
    return rows


def _both(wanted: Any, found: Any) -> tuple[Any, Any]:
    return wanted, found


_boot_words = _of_inventory("boot_order", tuple)


def _boot_order(wanted: tuple[str, ...], observed: Observed) -> Hashable:
    options = None if isinstance(observed.inventory, Silent) else boot_order.options_of(observed.inventory.value)
    try:
        return _boot_words(observed) if options is None else boot_order.as_words(wanted, options)
    except boot_order.NoSuchEntry:
        return Missing(UnknownReason.NOT_ASKED, HIDDEN)


_secure_boot_of_bmc, _secure_boot_of_host = _of_inventory("secure_boot", bool), _of_host("secure_boot", bool)


def _secure_boot(observed: Observed) -> Hashable:
    """Return whether secure boot is on. The value is unknown when the BMC and the host contradict each other."""
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
        # A host that answers without such a key runs some other image: that is known, and it is drift.
        return _of_host("image", lambda found: getattr(found, name) or "none")

    rows = [
        Managed("image.name", Concern.IMAGE, Source.SSH, image.name, image.name, part("image")),
        Managed("image.version", Concern.IMAGE, Source.SSH, image.version, image.version, part("version")),
        Managed("image.sha256", Concern.IMAGE, Source.SSH, image.sha256, image.sha256, part("sha256")),
        Managed("image.root_disk", Concern.IMAGE, Source.SSH, "as installed", "as installed", _root_disk),
    ]
    for name in ("kernel", "driver"):  # the version is a claim, the running kernel and driver are facts (pitfall L7)
        if name in image.contents:
            value = image.contents[name]
            rows.append(Managed(f"image.{name}", Concern.IMAGE, Source.SSH, value, value, _of_host(name, str)))
    for name, fact in software.FACTS.items():
        if name in image.contents:
            value = image.contents[name]
            read = _of_host(fact, software.version_reader(value))
            rows.append(Managed(f"image.{name}", Concern.IMAGE, Source.SSH, value, value, read))
    return rows


def _root_disk(observed: Observed) -> Hashable:
    """Return whether / is on the disk that the installer wrote (pitfall L1)."""
    facts = host(observed)
    if isinstance(facts, Missing):
        return facts
    if facts.image is None or facts.image.booted_disk is None:
        path = "image" if facts.image is None else "image.booted_disk"
        why = facts.unknown.get(
            path, "not reported" if facts.image is None else "the disk that / is on gives no serial"
        )
        return Missing(UnknownReason.UNSUPPORTED, why)
    if facts.image.root_disk is None:
        return "none"
    installed, booted = facts.image.root_disk, facts.image.booted_disk
    return "as installed" if normalise.text(installed) == normalise.text(booted) else booted


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
    read = _of_host("gpus", attrgetter("layout"), first=summarise_gpus)
    return [Managed("gpu.mig", Concern.GPU, Source.SSH, wanted, wanted, read, parts=layouts)]


def _cluster(profile: Profile) -> list[Managed]:
    want = profile.membership
    if want is None:
        return []
    rows = [Managed("cluster.member", Concern.CLUSTER, Source.KUBERNETES, "ready", "ready", _membership)]
    for name, value in want.labels.items():
        rows.append(Managed(f"cluster.labels.{name}", Concern.CLUSTER, Source.KUBERNETES, value, value, _label(name)))
    for taint in want.taints:
        shown = f"{taint.value}:{taint.effect}"
        path, read = f"cluster.taints.{taint.key}", _taint(taint.key)
        rows.append(Managed(path, Concern.CLUSTER, Source.KUBERNETES, shown, shown, read, parts=_taints))
    return rows


def _membership(observed: Observed) -> Hashable:
    found = member(observed)
    if isinstance(found, Missing):
        return found
    if found is None:
        return ABSENT
    if found.ready is None:
        return Missing(UnknownReason.MALFORMED, "the node object has no Ready condition")
    return "ready" if found.ready else "not ready"


def read_taint(text: str) -> Mapping[str, str]:
    """Return value and effect of a taint that is written "value:effect"."""
    value, _, effect = text.rpartition(":")
    return {"value": value, "effect": effect}


def _taints(wanted: str, found: str) -> tuple[Any, Any] | None:
    return None if found == ABSENT else (read_taint(wanted), read_taint(found))


def _label(name: str) -> Fact:
    return Fact("member", "labels", lambda labels: _published(labels.get(name, ABSENT)))


def _published(value: str) -> Hashable:
    return Missing(UnknownReason.NOT_ASKED, HIDDEN) if value == HIDDEN else value


def _taint(key: str) -> Fact:
    def shape(taints: tuple[Taint, ...]) -> Hashable:
        found = next((taint for taint in taints if taint.key == key), None)
        if found is None or found.value == HIDDEN:
            return ABSENT if found is None else _published(found.value)
        return f"{found.value}:{found.effect}"

    return Fact("member", "taints", shape)
