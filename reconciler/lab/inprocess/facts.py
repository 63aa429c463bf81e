"""HostFacts straight from a machine's state, equal to those that the facts program and its parsers give."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter

from reconciler.lab.hardware.error_counters import (
    daemon_restarts,
    dcgm_counters,
    error_counters,
    module_alarms,
    nvlink_counters,
    slowed_seconds,
)
from reconciler.lab.hardware.host_network import host_network
from reconciler.lab.hardware.host_side import K3S_UNITS
from reconciler.lab.hardware.k3s_disk import has_k3s, secret_options, state_lines
from reconciler.lab.hardware.k3s_site import K3S_FILES, RENEW_S, certificates_end, certificates_last_s, version_of
from reconciler.lab.hardware.kernel_log import EVENTS, MMU_FAULT, unanswered
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.parts import dimm_errors, dimm_records
from reconciler.lab.hardware.software import installed
from reconciler.lab.hardware.state import SPARE_THRESHOLD, DiskImage, DriveState, GpuState, MachineState, of_nvidia
from reconciler.lab.hardware.telemetry import amd_gpus, clock_state, daemons, dcgm_incidents
from reconciler.lab.hardware.tools.slots import installed_last
from reconciler.lab.inprocess.gpu_cells import as_read, with_own_cells
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.lab.wire.facts.installed import arguments, fingerprint
from reconciler.model.gpus import Gpu, MigDevice, SmiAnswer
from reconciler.model.installed import InstalledFacts
from reconciler.model.k3s import DUE, IMAGES, NONE, RESTART_DUE, UNIT_FILES, K3sFacts
from reconciler.model.kernel_log import POWER_SMOOTHING_BACK, POWER_SMOOTHING_GONE, XidBurst
from reconciler.model.observed import (
    DiskHealth,
    HostFacts,
    ImageIdentity,
    KernelEvent,
    Link,
    NvmeHealth,
    Service,
    Slot,
    Xid,
)
from reconciler.model.vocab import KernelEventKind

_XID = re.compile(
    r"(?:\[ *(?P<at>[0-9.]+)\] )?NVRM: Xid \(PCI:(?P<pci>[0-9a-f:]+)\): (?P<code>\d+), "
    r"pid=[^,]*, name=[^,]*, (?P<rest>.*)"
)


def host_facts(
    machine: Machine, sysctls: Sequence[str], services: Sequence[str], date: datetime | None = None
) -> HostFacts:
    """Return the facts of a machine that runs. `date`: what its clock shows now; None: a lab's first date goes on."""
    state, system, disk = machine.state, machine.system(), machine.disk()
    lost = [gpu.index for gpu in state.gpus if gpu.lost and disk.driver]
    unknown = {f"dcgm_counters.gpu{index}": "unsupported: DCGM has no value" for index in lost}
    nvlinks = _nvlinks(machine, unknown)
    xids, events = _logged(tuple(system.kernel_log))
    found = HostFacts(
        hostname=system.hostname,
        kernel=disk.kernel,
        boot_id=system.boot_id,
        uptime_s=round(machine.now - system.booted_at, 2),
        serial=state.serial,
        uuid=state.uuid.lower(),
        image=_image(machine),
        secure_boot=state.secure_boot,
        driver=disk.driver or None,
        gpus=tuple(_gpu(gpu, disk.driver) for gpu in state.gpus) if disk.driver else None,
        nvlinks_active=nvlinks,
        xids=xids,
        links=_links(machine),
        nvme=tuple(_drive(at, drive, unknown) for at, drive in enumerate(state.drives) if not drive.sata),
        services={
            name: Service(system.services_active.get(name, False), disk.services.get(name, False)) for name in services
        },
        sysctls={name: system.sysctls[name] for name in sysctls if name in system.sysctls},
        unknown=unknown,
        smi=_smi_answer(state, unknown) if disk.driver else None,
        nvlinks_slow=_nvlinks_slow(state) if nvlinks is not None else None,
        kernel_events=events,
        cuda=disk.software["cuda"],
        nccl=disk.software["nccl"],
        container_runtime=f"containerd {disk.software['containerRuntime']}",
        kubelet=disk.software["kubelet"],
        installed=_installed(state, disk),
        disks=tuple(_disk(at, drive, unknown) for at, drive in enumerate(state.drives) if drive.sata),
        dimm_errors=dimm_errors(state),
        dimm_records=dimm_records(state, machine.now),
        counters=error_counters(state, machine.now),
        module_alarms=module_alarms(state),
        gpu_counters=slowed_seconds(state, machine.now) if disk.driver else None,
        nvlink_counters=nvlink_counters(state, machine.now) if disk.driver and state.gpus else None,
        daemons=daemons(state),
        daemon_counters=daemon_restarts(state, machine.now),
        clock=clock_state(state),
        dcgm=dcgm_incidents(state) if disk.driver and state.gpus else None,
        dcgm_counters=dcgm_counters(state, machine.now) if disk.driver and state.gpus else None,
        amd_gpus=amd_gpus(state),
        k3s=_k3s(machine, date or EPOCH + timedelta(seconds=machine.now)),
    )
    return _without_nvidia(found) if state.gpus and not of_nvidia(state.gpus) else found


def _without_nvidia(facts: HostFacts) -> HostFacts:
    """Return the facts of a machine with GPUs of another maker, where none of NVIDIA's programs is installed."""
    lacks = dict.fromkeys(
        ("driver", "nvlinks_active", "nvlinks_slow", "nvlink_counters", "dcgm", "dcgm_counters"), "unsupported"
    )
    return replace(
        facts, driver=None, gpus=(), smi=SmiAnswer(0, 0, 0), nvlinks_active=None, nvlinks_slow=None, gpu_counters={},
        nvlink_counters=None, dcgm=None, dcgm_counters=None, unknown={**facts.unknown, **lacks},
    )  # fmt: skip


def _k3s(machine: Machine, date: datetime) -> K3sFacts:
    disk, active = machine.disk(), machine.system().services_active
    files = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in disk.files.items() if path in K3S_FILES}
    images = sorted(path.rpartition("/")[2] for path in disk.files if path.startswith(f"{IMAGES}/"))
    due = machine.k3s is not None and certificates_last_s(disk, machine.k3s.clock()) < RENEW_S
    state = [line.partition(" ")[::2] for line in state_lines(disk)] if has_k3s(disk) else []
    return K3sFacts(
        version=version_of(disk),
        units={unit: active.get(unit, False) for unit in K3S_UNITS if f"{UNIT_FILES}/{unit}.service" in disk.files},
        files=files,
        images=tuple(images),
        datastore=("datastore", "") in state,
        restart=DUE if RESTART_DUE in disk.files else NONE,
        renewal=DUE if due else NONE,
        deprecated=() if machine.k3s is None else machine.k3s.deprecated(machine.name),
        secrets=secret_options(disk),
        sqlite=("sqlite", "") in state,
        began=("began", "") in state,
        endpoints=tuple(sorted({place for word, place in state if word == "endpoint"})),
        data_dirs=tuple(sorted({place for word, place in state if word == "data-dir"})),
        database=next((server for word, server in state if word == "database"), ""),
        ends=certificates_end(disk, machine.now, date),
    )


def _installed(state: MachineState, disk: DiskImage) -> InstalledFacts:
    keys = tuple(sorted({fingerprint(key) for key in disk.user_ca}))
    return InstalledFacts(host_network(state, disk), keys, arguments(disk.kernel, disk.kernel_arguments))


def restore_software(disk: DiskImage, facts: HostFacts) -> None:
    """Give an image the kernel, the driver, the software and the slot that were read of a host, as far as they were."""
    image = facts.image
    if image is not None and image.slot is not None:
        disk.slot, disk.layout, disk.lacks = image.slot.name, dict(image.slot.layout), list(image.slot.lacks)
    elif image is not None and "image.slot" not in facts.unknown:
        disk.slot, disk.layout = "", {}
    disk.kernel = facts.kernel or disk.kernel
    if facts.driver is None and "driver" not in facts.unknown:
        disk.driver = ""
    disk.driver = facts.driver or disk.driver
    runtime = facts.container_runtime
    read = {"cuda": facts.cuda, "nccl": facts.nccl, "containerRuntime": runtime, "kubelet": facts.kubelet}
    disk.software = installed(disk.software | {name: version for name, version in read.items() if version})


def _smi_answer(state: MachineState, unknown: dict[str, str]) -> SmiAnswer:
    """Return the exit status of nvidia-smi and its counts of GPUs."""
    if not state.gpus:
        unknown["driver"] = "unsupported: nvidia-smi finds no device to ask"
        return SmiAnswer(0, 0, 0)
    fault, gpus = state.faults.get("smi_doubt"), len(state.gpus)
    if fault is None:
        return SmiAnswer(0, gpus, gpus)
    answer = SmiAnswer(int(fault["status"]), gpus + int(fault["more"]), gpus)
    if answer.exit_status:
        unknown["gpus.exit_status"] = "malformed"
    if answer.attached != gpus:
        unknown["gpus.count"] = "malformed"
    return answer


def _drive(at: int, drive: DriveState, unknown: dict[str, str]) -> NvmeHealth:
    device = f"/dev/{drive.kernel_name(at)}"
    if not drive.smart:
        unknown[f"nvme.{device}"] = "malformed"
        return NvmeHealth(device, drive.serial, drive.model, None, None, None, None)
    return NvmeHealth(
        device, drive.serial, drive.model, drive.critical_warning, drive.media_errors, drive.percentage_used,
        drive.available_spare, SPARE_THRESHOLD,
    )  # fmt: skip


def _disk(at: int, drive: DriveState, unknown: dict[str, str]) -> DiskHealth:
    device = f"/dev/{drive.kernel_name(at)}"
    if not drive.smart:
        unknown[f"disks.{device}"] = "malformed"
        return DiskHealth(device, None, None, None)
    return DiskHealth(device, drive.serial, drive.model, not drive.critical_warning, 0, drive.media_errors, 0)


def _image(machine: Machine) -> ImageIdentity:
    disk, booted = machine.disk(), machine.state.booted_disk
    if not disk.image:
        return ImageIdentity(None, None, None, None, None, booted_disk=booted)
    return ImageIdentity(
        disk.image,
        disk.version,
        disk.sha256,
        disk.root_disk,
        disk.nonce,
        disk.image,
        disk.version,
        booted,
        _slot(machine),
    )


def _slot(machine: Machine) -> Slot | None:
    disk, last = machine.disk(), installed_last(machine.state)
    newer = None if last is disk else f"{last.image} {last.version}"
    return Slot(disk.slot, dict(disk.layout), newer, tuple(disk.lacks)) if disk.slot else None


def _gpu(gpu: GpuState, driver: str) -> Gpu:
    """Return one GPU. It is cached, because GPUs are most of the facts of a host and rarely change."""
    instances = tuple(gpu.mig_instances) if gpu.mig_compute else ()
    return _as_read(*_FIELDS(gpu), instances, driver, tuple(gpu.cells.items()))


_FIELDS = attrgetter(
    "index", "pci", "uuid", "name", "serial", "vbios", "ecc_uncorrectable", "remap_pending", "remap_failed",
    "mig_enabled", "mig_pending", "lost",
)  # fmt: skip


@lru_cache(maxsize=1 << 17)
def _as_read(
    index: int,
    pci: str,
    uuid: str,
    name: str,
    serial: str,
    vbios: str,
    ecc_uncorrectable: int,
    remap_pending: bool,
    remap_failed: bool,
    mig_enabled: bool,
    mig_pending: bool,
    lost: bool,
    instances: tuple[tuple[str, str], ...],
    driver: str,
    cells: tuple[tuple[str, str], ...],
) -> Gpu:
    """Return a GPU as read. Of a lost one the driver still knows its identity; values read from the board are None.

    Remapped rows can't be read in MIG mode.
    """
    rows = not lost and not mig_enabled
    counted = None if lost else ecc_uncorrectable
    read = Gpu(
        index=index,
        pci=pci,
        uuid=uuid,
        name=name,
        serial=serial,
        vbios=vbios,
        ecc_enabled=True,
        ecc_uncorrectable=counted,
        remap_pending=remap_pending if rows else None,
        remap_failed=remap_failed if rows else None,
        mig_current=mig_enabled,
        mig_pending=mig_pending,
        mig_devices=tuple(MigDevice(index, profile, device) for profile, device in instances),
        lost=lost,
        ecc_uncorrectable_ever=counted,
        remapped_uncorrectable=int(remap_pending) if rows else None,
        pcie_replays=0,
    )
    return read if lost else with_own_cells(replace(read, cells=as_read(name, driver, mig_enabled, cells)), dict(cells))


def _nvlinks(machine: Machine, unknown: dict[str, str]) -> dict[int, int] | None:
    """Return the active links by GPU. They can't be read in MIG mode."""
    active = {}
    for gpu in machine.state.gpus:
        if gpu.mig_enabled:
            unknown[f"nvlinks_active.{gpu.index}"] = "unsupported: not in MIG mode"
        else:
            active[gpu.index] = 0 if gpu.lost else gpu.nvlinks - gpu.nvlinks_down
    if not active and machine.state.gpus:
        unknown["nvlinks_active"] = unknown["nvlinks_slow"] = "unsupported: not in MIG mode"
        return None
    return active


def _nvlinks_slow(state: MachineState) -> dict[int, int]:
    """Return the slow links by GPU, if another link of the node has full speed."""
    up = {gpu.index: gpu.nvlinks - gpu.nvlinks_down for gpu in state.gpus if not gpu.lost and not gpu.mig_enabled}
    slow = {gpu.index: gpu.nvlinks_slow for gpu in state.gpus if gpu.index in up and gpu.nvlinks_slow}
    return slow if sum(slow.values()) < sum(up.values()) else {}


@lru_cache(maxsize=1024)
def _logged(lines: tuple[str, ...]) -> tuple[tuple[Xid, ...], tuple[KernelEvent, ...]]:
    """Return what a kernel log tells. It is asked again with each reading, and nearly always of the same lines."""
    return _xids(unanswered(list(lines))), _events(lines)


def _events(lines: Sequence[str]) -> tuple[KernelEvent, ...]:
    """Return the events in the kernel lines, which the lab itself writes."""
    kinds = {line: (kind, device) for kind, (device, line) in EVENTS.items()}
    found: dict[str, KernelEvent] = {}
    for line in lines:
        if line in kinds:
            kind, device = kinds[line]
            count = found[kind].count + 1 if kind in found else 1
            found[kind] = KernelEvent(KernelEventKind(kind), device, count, line)
    return tuple(found.values())


def own_lines(machine: Machine, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the lines of the kernel log that hold the text of a fleet's own row, by signal."""
    lines = machine.system().kernel_log
    return {name: tuple(line for line in lines if text in line.lower()) for name, text in texts.items()}


def _xids(lines: Sequence[str]) -> tuple[Xid, ...]:
    """Return each kind of error with its count and the text of its first line."""
    texts: dict[tuple[int, str], str] = {}
    counts: Counter[tuple[int, str]] = Counter()
    bursts: dict[tuple[int, str], tuple[XidBurst, ...]] = {}
    for match in filter(None, map(_XID.match, lines)):
        kind = int(match["code"]), f"0000{match['pci']}.0".upper()
        texts.setdefault(kind, match["rest"])
        counts[kind] += 1
        if kind[0] == POWER_SMOOTHING_BACK:
            texts.pop((POWER_SMOOTHING_GONE, kind[1]), None)
        if match["at"] and kind[0] == MMU_FAULT:
            bursts[kind] = (*bursts.get(kind, ()), XidBurst("", float(match["at"])))
    return tuple(
        Xid(code, device, counts[code, device], fatal=_fatal(text), text=text, bursts=bursts.get((code, device), ()))
        for (code, device), text in texts.items()
    )


def _fatal(text: str) -> bool | None:
    """Return the word of a line of NVLink 5; None for lines without."""
    return False if " Nonfatal XC" in text else True if " Fatal XC" in text else None


def _links(machine: Machine) -> tuple[Link, ...]:
    nics = machine.state.nics
    ethernet = [Link(nic.name, nic.up) for nic in nics if not nic.rdma]
    rdma = [
        Link(f"{nic.name}/1", nic.up, nic.trained_gbps if nic.up else 10.0, "infiniband") for nic in nics if nic.rdma
    ]
    return (*ethernet, *rdma)
