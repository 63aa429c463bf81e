"""The observed values of a node, in the words of a spec. An unknown value is absent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.diff.gpus import layout, summarise_gpus
from reconciler.diff.readings import Missing
from reconciler.model.desired import Desired
from reconciler.model.gpus import Gpu
from reconciler.model.observed import HostFacts, Member, Observed, RedfishHot, RedfishInventory, Silent, Taint
from reconciler.model.records import MARK_TAINT
from reconciler.model.units import format_size
from reconciler.model.vocab import UnknownReason
from reconciler.strict_yaml.characters import check_line

# Asked of hosts, and managed where they run on all nodes of a kind.
SERVICES: Final = (
    "kubelet",
    "containerd",
    "docker",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-dcgm",
    "chronyd",
    "chrony",
    "openibd",
)
SYSCTLS: Final = ("vm.swappiness", "kernel.numa_balancing")
# The few settings of a board that make GPUs and RDMA fast or slow, by the names that vendors give them.
_BIOS: Final = re.compile(
    r"sr-?iov.*|numanodespersocket|nps|subnuma.*|.*iommu|(intel)?vt-?d|.*above4g.*|acs.*|bootmode|(sys|workload)profile|"
    r"determinism.*|hyper-?threading.*|logicalproc(essor)?|smt.*",
    re.IGNORECASE,
)
_SYSTEMS_OWN: Final = re.compile(
    r"(.*\.)?(kubernetes\.io|k8s\.io|nvidia\.com|intel\.com|amd\.com|reconciler\.dev|cilium\.io|projectcalico\.org)/.*"
)
_COMPONENTS: Final = (  # kind, name or Id of it, activation, minutes
    ("bmc", re.compile(r"\b(bmc|idrac|ilo|xcc|aspeed)\b", re.IGNORECASE), "bmc_reset", 10),
    ("bios", re.compile(r"\b(bios|uefi|system rom)\b", re.IGNORECASE), "reboot", 10),
    ("nic", re.compile(r"\b(nic\d*|connectx|mlx|bluefield|network adapter)", re.IGNORECASE), "power_cycle", 10),
)


@dataclass(frozen=True, slots=True)
class Firmware:
    """A component worth managing. `kind`: bmc, bios or nic."""

    id: str
    version: str
    kind: str
    activation: str
    minutes: int


@dataclass(frozen=True, slots=True)
class Found:
    """One node. Mappings are by the names that a spec uses; `machine` and `has` are what makes a HardwareProfile."""

    node: str
    machine: Mapping[str, str]  # manufacturer, model
    has: Mapping[str, Any]  # gpus, gpuModel ...
    firmware: Mapping[str, Firmware]
    others: tuple[str, ...]  # firmware that is left alone
    bios: Mapping[str, Any]
    secure_boot: bool | None
    boot_order: tuple[str, ...] | None
    serial: str | None
    hostname: str | None
    sysctls: Mapping[str, str]
    services: Mapping[str, str]
    mig: str | None  # as diff.gpus.layout says it
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    image: str  # what its marker says, for a comment


@dataclass(frozen=True, slots=True)
class Asked:
    """The values that the operator wants managed beyond the usual ones."""

    bios: Sequence[str] = ()
    services: Sequence[str] = ()
    sysctls: Sequence[str] = ()


def unread(desired: Desired, seen: Observed) -> str:
    """Why there is nothing to adopt; "" when every source that it has did answer."""
    for name, reading in (
        ("BMC", seen.hot),
        ("BMC inventory", seen.inventory),
        ("SSH", seen.host),
        ("cluster", seen.member),
    ):
        if isinstance(reading, Silent) and reading.reason is not UnknownReason.NOT_ASKED:
            return f"{name}: {reading.detail or reading.reason.value}"
    if not isinstance(seen.member, Silent) and seen.member.value is None:
        return f"the cluster has no node {desired.node}: the CSV file names nodes as the cluster does"
    return ""


def found(seen: Observed, asked: Asked) -> Found:
    """Return the values of a node of which every source answered."""
    hot: RedfishHot | None = None if isinstance(seen.hot, Silent) else seen.hot.value
    inventory = None if isinstance(seen.inventory, Silent) else seen.inventory.value
    host = None if isinstance(seen.host, Silent) else seen.host.value
    member = None if isinstance(seen.member, Silent) else seen.member.value
    firmware, others = _firmware(inventory)
    return Found(
        node=seen.node,
        machine=_known({"manufacturer": hot and hot.manufacturer, "model": hot and hot.model}),
        has=_has(inventory, host),
        firmware=firmware,
        others=others,
        bios=_bios(inventory, asked),
        secure_boot=_secure_boot(inventory, host),
        boot_order=_boot_order(inventory),
        serial=_serial(hot, host),
        hostname=host.hostname if host and _fits(host.hostname) else None,
        sysctls=_sysctls(host),
        services=_services(host),
        mig=_mig(host),
        labels=_labels(member),
        taints=_taints(member),
        image=_image(host),
    )


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != "" and _fits(value)}


def _fits(value: object) -> bool:
    """Return whether a spec may hold a text. A machine may report text that nobody can read."""
    try:
        check_line(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _nvlinks(gpus: Sequence[Gpu], active: Mapping[int, int] | None) -> int | None:
    """Return the links of the GPU with the fewest; None unless all that answer report them (none does in MIG mode)."""
    asked = [gpu for gpu in gpus if not gpu.lost]
    if active is None or any(gpu.mig_current or gpu.index not in active for gpu in asked):
        return None
    return min((active[gpu.index] for gpu in asked), default=None)


def _has(inventory: RedfishInventory | None, host: HostFacts | None) -> dict[str, Any]:
    """Return the parts in the order in which people write them."""
    counted: dict[str, Any] = {}
    if host is not None and host.gpus is not None:
        gpus = summarise_gpus(host.gpus)
        names = {gpu.name for gpu in host.gpus if gpu.name}
        counted["gpus"] = gpus.answering
        counted["gpuModel"] = next(iter(names)) if len(names) == 1 else None
        counted["nvlinksPerGpu"] = _nvlinks(host.gpus, host.nvlinks_active)
    if host is not None and host.links is not None:
        ports = [link.up for link in host.links if link.kind == "infiniband"]
        counted["rdmaPorts"] = None if None in ports else ports.count(True)
    if inventory is not None:
        counted |= {
            "nics": None if inventory.nics is None else len(inventory.nics),
            "drives": None if inventory.drives is None else len(inventory.drives),
            "dimms": inventory.dimms,
            "memory": None if inventory.memory_bytes is None else format_size(inventory.memory_bytes),
            "processors": inventory.processors,
        }
    return {name: value for name, value in _known(counted).items() if value not in (0, "0B")}  # a BMC that lists none


def _boot_order(inventory: RedfishInventory | None) -> tuple[str, ...] | None:
    """Return the order in words; None where a word can't say it: its entries are not together."""
    words = inventory.boot_order or () if inventory is not None else ()
    return words if words and all(map(_fits, words)) and len(set(words)) == len(words) else None


def _firmware(inventory: RedfishInventory | None) -> tuple[dict[str, Firmware], tuple[str, ...]]:
    """Return firmware by component name, and the Ids that are not managed: banks, backplanes, the firmware of GPUs."""
    chosen: dict[str, Firmware] = {}
    others = []
    for name, item in (inventory.firmware or {}).items() if inventory else ():
        kind = next((row for row in _COMPONENTS if row[1].search(f"{name} {item.name}".replace("_", " "))), None)
        spare = re.search(r"backup|golden|previous|available|inactive", f"{name} {item.name}", re.IGNORECASE)
        slug = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")
        version = item.version.strip()
        named = slug and version and _fits(name) and _fits(version)
        if kind is None or spare or not named or item.updateable is False:
            others.append(name)
        else:
            chosen[slug] = Firmware(name, version, kind[0], kind[2], kind[3])
    return chosen, tuple(sorted(others))


def _bios(inventory: RedfishInventory | None, asked: Asked) -> dict[str, Any]:
    known = (inventory.bios or {}) if inventory else {}
    wanted = [name for name in known if name in asked.bios or (not asked.bios and _BIOS.fullmatch(name))]
    return _known({name: known[name] for name in sorted(wanted)})


def _secure_boot(inventory: RedfishInventory | None, host: HostFacts | None) -> bool | None:
    """Unless BMC and host contradict each other."""
    said = inventory.secure_boot if inventory else None
    by_host = host.secure_boot if host else None
    return said if by_host is None or by_host == said else None


def _serial(hot: RedfishHot | None, host: HostFacts | None) -> str | None:
    """Return the serial that BMC and host agree on, or the BMC's where the host reports none."""
    said, by_host = hot.serial if hot else None, host.serial if host else None
    return said if _fits(said) and (said is None or by_host is None or normalise.same(said, by_host)) else None


def _sysctls(host: HostFacts | None) -> dict[str, str]:
    known = (host.sysctls or {}) if host else {}
    return _known({name: normalise.sysctl(value) for name, value in known.items()})


def _services(host: HostFacts | None) -> dict[str, str]:
    known = (host.services or {}) if host else {}
    return {name: "running" if one.active else "stopped" for name, one in known.items() if one.active is not None}


def _mig(host: HostFacts | None) -> str | None:
    """Return the MIG layout, where it is the same on all GPUs and settled."""
    if host is None or not host.gpus:
        return None
    said = summarise_gpus(host.gpus).layout
    plain = not isinstance(said, Missing) and not re.search(r";|pending|empty", str(said))
    return str(said) if plain else None


def _labels(member: Member | None) -> dict[str, str]:
    """Return the labels that people set. Those of the cluster and its operators are theirs."""
    known = member.labels if member else {}
    return {key: value for key, value in sorted(known.items()) if not _SYSTEMS_OWN.fullmatch(key)}


def _taints(member: Member | None) -> tuple[Taint, ...]:
    """Return the lasting taints. The cluster gives others to nodes that are not well."""
    known = member.taints if member else ()
    return tuple(sorted(t for t in known if t.key != MARK_TAINT and not t.key.startswith("node.kubernetes.io/")))


def _image(host: HostFacts | None) -> str:
    image = host.image if host else None
    if image is None or image.image is None or image.version is None:
        return ""
    return f"{image.image} {image.version}, sha256 {image.sha256 or 'not told'}"


PLAIN: Final = layout(None)
