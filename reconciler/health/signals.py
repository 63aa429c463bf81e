"""Signals: the evidence of an observation against a node's health.

They come from three sources: the host's own facts, its BMC, and the conditions that detectors set on the node object of
the cluster, as far as the policy names them. A silent source gives no signal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.health import bmc
from reconciler.health.parts import (
    GPU_SIGNALS,
    INFOROM_CORRUPT,
    NARROW,
    RDMA,
    NameAndDetail,
    cell_signals,
    dimm_signals,
    disk_signals,
    gpu_signals,
    has_own_signals,
    narrower,
    nvme_signals,
    port_signals,
    record_signals,
)
from reconciler.health.table import Effect, HealthTable, SignalRule, health_table, table_of
from reconciler.health.telemetry import telemetry_signals, unread_telemetry
from reconciler.health.xids import again, signal_of, words_of
from reconciler.model.desired import NodeCondition, Profile
from reconciler.model.gpus import Gpu, GpuCells
from reconciler.model.observed import Answered, HostFacts, Member, Observed, Silent
from reconciler.model.vocab import PRESSURES, Source
from reconciler.model.vocab import KernelEventKind as Kind

# Kind, which is also the name of the signal, -> its meaning.
KERNEL_EVENTS: Mapping[Kind, str] = {
    Kind.GPU_INIT_FAILED: "the driver could not initialise a GPU",
    Kind.PCIE_FATAL: "a fatal error of PCIe",
    Kind.MEMORY_UE: "an uncorrectable memory error",
    Kind.MACHINE_CHECK: "an uncorrected machine check",
    Kind.NIC_FAILED: "a network adapter's firmware has failed",
    Kind.NIC_MODULE: "a network port's module or cable has failed",
    Kind.AMD_UNCORRECTABLE: "a GPU of AMD's had an error of hardware that it could not correct",
    Kind.AMD_RESET_FAILED: "the driver could not reset a GPU of AMD's",
    Kind.AMD_BAD_PAGES: "a GPU of AMD's has more bad pages of memory than its threshold",
    Kind.AMD_RING_TIMEOUT: "work on a GPU of AMD's did not end in time",
    Kind.TASK_HUNG: "a process of the GPU's driver has hung in the kernel for more than five minutes",
    Kind.FS_READ_ONLY: "a file system was ended or made read-only by its errors",
    Kind.NVME_TIMEOUT: "a drive did not answer in time, and its controller was reset or given up",
    Kind.MD_DEGRADED: "an array works without one of its disks",
}


# Raised from the ledger: planner/node/boot_proofs.py.
BOOT_REFUTED, BOOT_UNPROVED = "boot_refuted", "boot_unproved"

_OF_LOG = ("health.xid_", *(f"health.{kind.value}" for kind in KERNEL_EVENTS))


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal, with the rule of its row. Its path, health.<name>, is stable: reports and ignore rules use it."""

    name: str
    detail: str
    rule: SignalRule
    source: Source = Source.SSH

    @property
    def path(self) -> str:
        return f"health.{self.name}"

    @property
    def effect(self) -> Effect:
        return self.rule.effect


def rise_of(device: str, counters: Collection[str], rise: int, within: str) -> str:
    """Return the detail of a signal of counters."""
    return f"{device}: {' and '.join(counters)} rose by {rise} within {within}"


def device_of(signal: Signal) -> str:
    """Return the device of a signal of counters, as the counters name it; "" where its detail names none."""
    device, _, rise = signal.detail.partition(": ")
    return device if " rose by " in rise else ""


def signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """Return all signals of the host, the BMC and the cluster."""
    table = table_of(profile)
    of_bmc = _judged(bmc.bmc_signals(profile, observed), table, Source.REDFISH)
    of_cluster = _judged(_of_cluster(profile, observed.member), table, Source.KUBERNETES)
    return (*host_signals(profile, observed), *of_bmc, *of_cluster)


def _judged(found: Iterator[NameAndDetail], table: HealthTable, source: Source) -> Iterator[Signal]:
    for name, detail in found:
        yield Signal(name, detail, table.rule_of(name), source)


def watched_conditions(profile: Profile) -> tuple[str, ...]:
    """Return the value paths of the conditions that the policy names."""
    return tuple(f"health.{_name(condition)}" for condition in _named(profile))


def unread_signals(profile: Profile, observed: Observed) -> tuple[str, ...]:
    """Return prefixes of the paths of signals that this observation can't confirm: a signal not read is not gone."""
    facts = None if isinstance(observed.host, Silent) else observed.host.value
    found = tuple(f"health.{name}" for name in bmc.unread_bmc_signals(observed, table_of(profile).own_events))
    if facts is None or facts.gpus is None:
        found += ("health.gpu_missing", *(f"health.{name}" for names in GPU_SIGNALS.values() for name in names))
    else:
        found += tuple(dict.fromkeys(f"health.{name}" for gpu in facts.gpus for name in _unread_cells(gpu)))
        found += ("health.gpu_missing",) if _are_amds_unread(facts) else ()
    if facts is None or facts.nvlinks_active is None or any(_links_unread(facts)):
        found += ("health.nvlink_",)
    if facts is None or facts.boot_id is None:
        found += (f"health.{BOOT_REFUTED}", f"health.{BOOT_UNPROVED}")
    if facts is None or facts.links is None or any(link.up is None for link in facts.links if link.kind == RDMA):
        found += ("health.port_",)
    if facts is None or facts.nvme is None or any(drive.critical_warning is None for drive in facts.nvme):
        found += ("health.nvme_",)
    if facts is None or facts.disks is None or any(disk.passed is None for disk in facts.disks):
        found += ("health.disk_",)
    if facts is None or facts.dimm_errors is None or facts.uptime_s is None:
        found += ("health.edac_",)
    if facts is None or facts.dimm_records is None:
        found += ("health.ras_",)
    if facts is None or facts.xids is None or facts.kernel_events is None:
        found += _OF_LOG
    found += tuple(f"health.{name}" for name in unread_telemetry(facts))
    for group, rules in table_of(profile).counted.items():
        if facts is None or facts.boot_id is None or getattr(facts, group.field) is None:
            found += tuple(f"health.{rule.name}" for rule in rules)
    found += tuple(f"health.{name}" for name in _unjudged(facts, table_of(profile)))
    return found if _is_current(observed.member) else (*found, "health.node_pressure", *watched_conditions(profile))


def host_signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """Return the signals of the host itself; none when it did not answer."""
    if isinstance(observed.host, Silent):
        return ()
    table = table_of(profile)
    return tuple(_judged(_of_host(profile, observed.host.value, table), table, Source.SSH))


def strictest_host_signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """Return the signals of the host by the packaged table, too: a fleet's row that says less admits no node."""
    packaged = health_table()
    if isinstance(observed.host, Silent) or not profile.health:
        return host_signals(profile, observed)
    strict = tuple(_judged(_of_host(profile, observed.host.value, packaged), packaged, Source.SSH))
    known = {signal.name for signal in strict}
    return (*strict, *(signal for signal in host_signals(profile, observed) if signal.name not in known))


def _of_cluster(profile: Profile, answer: Answered[Member | None] | Silent) -> Iterator[NameAndDetail]:
    """Yield the conditions that are set. Those of a node with a silent kubelet are outdated, and do not count."""
    if isinstance(answer, Silent) or answer.value is None or not _is_current(answer):
        return
    member = answer.value
    for pressure in PRESSURES:
        if member.conditions.get(pressure) == "True":
            yield "node_pressure", f"{pressure}: {member.reasons.get(pressure) or 'no reason given'}"
    for condition in _named(profile):
        if member.conditions.get(condition.type) == condition.status:
            why = member.reasons.get(condition.type, "")
            detail = f"{condition.type} is {condition.status}" + (f" ({why})" if why else "")
            yield _name(condition), detail


def _is_current(answer: Answered[Member | None] | Silent) -> bool:
    """Return whether the conditions are current. A node that the cluster is known not to have has none."""
    if isinstance(answer, Silent):
        return False
    return answer.value is None or answer.value.conditions.get("Ready") in ("True", "False")


def _unjudged(facts: HostFacts | None, table: HealthTable) -> Iterator[str]:
    """Yield the signals of extensions (`fact: host.raised`) and of the fleet's own lines that were not judged."""
    for name in table.raised:
        if facts is None or name not in facts.raised:
            yield name


def _named(profile: Profile) -> tuple[NodeCondition, ...]:
    return profile.remediation.node_conditions if profile.remediation else ()


def _name(condition: NodeCondition) -> str:
    return f"condition_{condition.type}"


def _unread_cells(gpu: Gpu) -> Iterator[str]:
    """Yield the signals that this GPU can't raise, as their cell gave no value. A lost GPU has a signal of its own."""
    if gpu.cells.unread and not gpu.lost:
        for cell, names in GPU_SIGNALS.items():
            if cell in gpu.cells.unread:
                yield from names


def _links_unread(facts: HostFacts) -> Iterator[int]:
    """Yield the indexes of GPUs whose NVLinks were not read. In MIG mode a GPU uses none."""
    links = facts.nvlinks_active or {}
    for gpu in facts.gpus or ():
        if gpu.index not in links and not gpu.lost and not gpu.mig_current:
            yield gpu.index


def _of_host(profile: Profile, facts: HostFacts, table: HealthTable) -> Iterator[NameAndDetail]:
    yield from _of_gpus(profile, facts, table)
    yield from _of_nvlinks(profile, facts)
    yield from port_signals(profile.inventory, facts.links or ())
    for drive in facts.nvme or ():
        for name, detail in nvme_signals(drive, table):
            yield name, f"drive {drive.serial or drive.device}: {detail}"
    for disk in facts.disks or ():
        for name, detail in disk_signals(disk, table):
            yield name, f"drive {disk.serial or disk.device}: {detail}"
    for dimm in facts.dimm_errors or ():
        for name, detail in dimm_signals(dimm, facts.uptime_s, table):
            yield name, f"memory module {dimm.label or dimm.place}: {detail}"
    for record, (name, detail) in record_signals(facts.dimm_records or (), table):
        yield name, f"memory module {record.label or record.place}: {detail}"
    yield from telemetry_signals(facts, table)
    for name, found in facts.raised.items():
        if name in table.own_lines:
            yield from _of_own_lines(name, found, table.rule_of(name).row.threshold)
        elif name in table.rules:  # the packaged table has none of an extension
            yield from ((name, detail) for detail in found)
    yield from _of_log(profile, facts, table)


def _of_gpus(profile: Profile, facts: HostFacts, table: HealthTable) -> Iterator[NameAndDetail]:
    if facts.gpus is not None:
        present = [gpu for gpu in facts.gpus if not gpu.lost]
        wanted = profile.inventory.gpus
        there = len(present) + len(facts.amd_gpus or ())
        if wanted is not None and there < wanted and not _are_amds_unread(facts):
            yield "gpu_missing", f"{there} of {wanted} GPUs answer"
        last: GpuCells | None = None
        shared: tuple[NameAndDetail, ...] = ()
        narrow: frozenset[int] | None = None
        for gpu in present:
            if gpu.cells is not last:  # equal cells are mostly one object, and their hash is dear
                last, shared = gpu.cells, cell_signals(gpu.cells)
            if shared or has_own_signals(gpu, table):
                for name, detail in (*gpu_signals(gpu, table), *shared):
                    if name == NARROW:
                        narrow = narrower(present) if narrow is None else narrow
                        name = "pcie_width" if gpu.index in narrow else name
                    yield name, f"GPU {gpu.index}: {detail}"
    if facts.smi is not None and facts.smi.exit_status == INFOROM_CORRUPT:
        yield "inforom_corrupt", f"nvidia-smi ended with {INFOROM_CORRUPT}: an infoROM is corrupted"


def _are_amds_unread(facts: HostFacts) -> bool:
    """Return whether all GPUs may be AMD's, of which nothing was read."""
    return not facts.gpus and facts.amd_gpus is None


def _of_nvlinks(profile: Profile, facts: HostFacts) -> Iterator[NameAndDetail]:
    wanted = profile.inventory.nvlinks_per_gpu
    if wanted is not None and facts.nvlinks_active is not None:
        for index, active in sorted(facts.nvlinks_active.items()):
            if active < wanted:
                yield "nvlink_down", f"GPU {index}: {active} of {wanted} NVLinks are up"
    for index, slow in sorted((facts.nvlinks_slow or {}).items()):
        yield "nvlink_slow", f"GPU {index}: {slow} of its NVLinks are slower than others of the node"


def _of_log(profile: Profile, facts: HostFacts, table: HealthTable) -> Iterator[NameAndDetail]:
    ignored = profile.remediation.ignore_xids if profile.remediation else ()
    for xid in facts.xids or ():
        if name := signal_of(xid, ignored):
            kind = "SXid" if xid.switch else "XID"
            yield name, f"{kind} {xid.code} on {xid.device}{_times(xid.count)}{words_of(xid)}"
    yield from again(facts.xids or (), table, ignored)
    for event in facts.kernel_events or ():
        about = f" on {event.device}" if event.device else ""
        yield event.kind.value, f"{KERNEL_EVENTS[event.kind]}{about}{_times(event.count)}, says the kernel log"


def _of_own_lines(name: str, bursts: Sequence[str], threshold: float | None) -> Iterator[NameAndDetail]:
    """Yield a signal for as many bursts of lines as the row asks for; `bursts`: the first line of each."""
    if len(bursts) >= max(1.0, threshold or 0.0):
        yield name, f"the kernel log has {bursts[-1]!r}{_times(len(bursts))}"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""
