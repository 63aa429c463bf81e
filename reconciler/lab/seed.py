"""Build a lab in the state in which a real fleet was observed, for a rehearsal.

Unobserved values are as in the spec, with two exceptions: a machine that is neither reachable nor in its cluster was
never installed, and a host that can't be read keeps the values that the ledger has on record.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime

from reconciler.lab.build import build_state
from reconciler.lab.drifts import Draft
from reconciler.lab.fleet import Lab, advertised, connect, has_gpu_operator, start_machines
from reconciler.lab.hardware import bios
from reconciler.lab.hardware.control_plane import AUTOMATIC, ClusterTruth, Condition
from reconciler.lab.hardware.kernel_log import short_pci
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage, DriveState, FirmwareState, GpuState, MachineState, NicState
from reconciler.lab.hardware.timings import TYPICAL, Timings
from reconciler.lab.inprocess.facts import restore_software
from reconciler.lab.install_server import InstallServer
from reconciler.lab.scenario import Scenario
from reconciler.model.desired import Desired, Fleet, RootDisk
from reconciler.model.gpus import Gpu
from reconciler.model.observed import (
    Answered,
    HostFacts,
    Link,
    Member,
    Observation,
    Observed,
    RedfishHot,
    RedfishInventory,
    Silent,
)
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import BootPhase, Power, UnknownReason
from reconciler.planner.node.actions import spec_of

GRACE_S = 30.0  # observed pods don't include theirs
_NO_FAULT = frozenset({UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED})
_BMC_FAULTS = {UnknownReason.AUTH: "bmc_wrong_password", UnknownReason.MALFORMED: "bmc_garbage"}
_BOOTING = frozenset({BootPhase.POST, BootPhase.OS_BOOTING})


def seed_lab(
    fleet: Fleet,
    observation: Observation,
    clock: Callable[[], float],
    *,
    seed: int = 0,
    records: Mapping[str, NodeRecord] | None = None,
    timings: Callable[[str], Timings] = lambda _: TYPICAL,
    public_keys: Mapping[str, str] | None = None,
) -> Lab:
    """Build the lab. `observation` must hold every node of `fleet`. The same arguments build the same lab."""
    installs = InstallServer()
    known = records or {}
    drafts = {
        name: _draft(desired, observation.nodes[name], known.get(name) or NodeRecord(name), seed)
        for name, desired in fleet.nodes.items()
    }
    machines = start_machines(fleet, drafts, clock, seed=seed, serve=installs.answer, timings=timings)
    for name, machine in machines.items():
        _apply_running(machine, observation.nodes[name], observation.finished_at)
    cluster = None
    if fleet.settings.cluster is not None:
        cluster = _cluster(fleet, observation, machines, clock, seed)
    return connect(fleet, Scenario(nodes={}), machines, cluster, public_keys or {}, installs)


def _draft(desired: Desired, seen: Observed, record: NodeRecord, seed: int) -> Draft:
    """Return the initial state of a node."""
    state, disk, root_disk = build_state(desired)
    hot = seen.hot.value if isinstance(seen.hot, Answered) else None
    inventory = seen.inventory.value if isinstance(seen.inventory, Answered) else None
    facts = seen.host.value if isinstance(seen.host, Answered) else None
    registry = bios.learn(desired.profile.bios)
    if inventory is not None:
        _apply_inventory(state, inventory, facts)
        registry = _registry(inventory, desired)
        root_disk = _root_disk(state, desired, root_disk)
    if hot is not None:
        _apply_hot(state, hot)
    _set_identity(state, desired, hot, facts, record)
    _restore_staged(state, desired, record)
    installed: DiskImage | None = disk
    if facts is not None:
        root_disk = _apply_host(state, disk, facts, root_disk)
    else:
        _restore_applied(disk, record)
        installed = None if _never_installed(desired, seen) else disk
    draft = Draft(
        desired=desired,
        state=state,
        registry=registry,
        disk=installed,
        root_disk=root_disk,
        labels={},
        taints=[],
        power=_power(hot, facts),
        rng=random.Random(f"{seed} {desired.node}"),  # noqa: S311  the draw of a lab
    )
    draft.put_disk()
    return draft


def _power(hot: RedfishHot | None, facts: HostFacts | None) -> str:
    if hot is None or facts is not None:
        return "on"
    if hot.power is Power.OFF:
        return "off"
    return "post" if hot.boot_phase in _BOOTING else "on"


# --- values from each source -----------------------------------------------------------------------------------------


def _apply_hot(state: MachineState, hot: RedfishHot) -> None:
    state.manufacturer, state.model = hot.manufacturer or state.manufacturer, hot.model or state.model
    state.pending_bios = dict(hot.pending_bios or {})


def _apply_inventory(state: MachineState, found: RedfishInventory, facts: HostFacts | None) -> None:
    """Apply the values that the BMC reports. The others stay as specified: a lab has no unknown values."""
    if found.bios is not None:
        state.bios = dict(found.bios)
    if found.secure_boot is not None:
        state.secure_boot = found.secure_boot
    if found.boot_order is not None:
        state.boot_order = list(found.boot_order)
    if found.firmware is not None:
        _apply_firmware(state, found)
    state.memory_bytes = state.memory_bytes if found.memory_bytes is None else found.memory_bytes
    state.dimms = state.dimms if found.dimms is None else found.dimms
    state.processors = state.processors if found.processors is None else found.processors
    if found.drives is not None:
        state.drives = [
            DriveState(
                drive.id, drive.serial or f"{state.name}-{drive.id}", drive.wwn or "", drive.model or "",
                drive.capacity_bytes or 0,
            )
            for drive in found.drives
        ]  # fmt: skip
    links = facts.links if facts is not None else None
    if links is not None or found.nics is not None:
        state.nics = _nics(state.nics, links, None if found.nics is None else len(found.nics))


def _apply_firmware(state: MachineState, found: RedfishInventory) -> None:
    """Apply the listed components. One that can't be read now, because its device is off, stays as specified."""
    assert found.firmware is not None
    listed = {}
    for inventory_id, item in found.firmware.items():
        known = state.firmware.get(inventory_id) or FirmwareState(inventory_id.lower(), inventory_id, "", "reboot")
        known.version = item.version
        listed[inventory_id] = known
    unread = {id_: item for id_, item in state.firmware.items() if f"firmware.{id_}" in found.unknown}
    state.firmware = listed | {id_: item for id_, item in unread.items() if id_ not in listed}


def _nics(built: list[NicState], links: tuple[Link, ...] | None, listed: int | None) -> list[NicState]:
    """Return the ports that the host sees, marking as many as listed as the BMC lists."""
    nics = built
    if links is not None:
        ports = sorted(links, key=lambda link: link.kind)
        nics = [
            NicState(
                port.name.removesuffix("/1"), "", port.kind == "infiniband", port.rate_gbps or 100.0, port.up is True
            )
            for port in ports
        ]
    for at in range(len(nics), listed or 0):
        nics.append(NicState(f"unseen{at}", "", rdma=False, rate_gbps=100.0))
    for at, nic in enumerate(nics):
        nic.listed = listed is None or at < listed
    return nics


def _registry(inventory: RedfishInventory, desired: Desired) -> bios.Registry:
    """Return the BIOS attributes and values that are known: the present and the desired ones."""
    current, wanted = inventory.bios or {}, desired.profile.bios
    found = {}
    for name in {**current, **wanted}:
        values = [value for value in (current.get(name), wanted.get(name)) if isinstance(value, str)]
        usual = bios.KNOWN[name].values if name in bios.KNOWN else ()
        default = current[name] if name in current else wanted[name]
        found[name] = bios.BiosAttribute(default, tuple(dict.fromkeys((*values, *usual))) if values else ())
    return found


def _apply_host(state: MachineState, disk: DiskImage, facts: HostFacts, root_disk: str) -> str:
    """Apply the running system to the image, so that a boot restores it. Return the drive that it runs from."""
    image = facts.image
    if image is not None:
        disk.image, disk.version, disk.sha256 = image.image or "", image.version or "", image.sha256 or ""
        disk.nonce = image.nonce
        root_disk = image.booted_disk or image.root_disk or root_disk
        disk.root_disk = image.root_disk or ""
        if image.booted_disk and image.booted_disk not in {drive.serial for drive in state.drives}:
            state.drives[0].serial = image.booted_disk  # the BMC was silent, or reports another serial
    disk.hostname = facts.hostname or disk.hostname
    restore_software(disk, facts)
    disk.sysctls = {**disk.sysctls, **(facts.sysctls or {})}
    for name, service in (facts.services or {}).items():
        disk.services[name] = bool(service.enabled if service.enabled is not None else service.active)
    if facts.secure_boot is not None:
        state.secure_boot = facts.secure_boot
    if facts.gpus is not None:
        state.gpus = [_gpu(gpu, state.gpus) for gpu in facts.gpus]
    for index, active in (facts.nvlinks_active or {}).items():
        for gpu in (gpu for gpu in state.gpus if gpu.index == index):
            gpu.nvlinks = max(gpu.nvlinks, active)
            gpu.nvlinks_down = gpu.nvlinks - active
            gpu.nvlinks_slow = (facts.nvlinks_slow or {}).get(index, 0)
    return root_disk


def _gpu(gpu: Gpu, built: list[GpuState]) -> GpuState:
    like = next((one for one in built if one.index == gpu.index), built[0] if built else None)
    return GpuState(
        index=gpu.index,
        pci=gpu.pci,
        uuid=gpu.uuid or (like.uuid if like else f"GPU-{gpu.pci}"),
        name=gpu.name or (like.name if like else ""),
        serial=gpu.serial or (like.serial if like else ""),
        vbios=gpu.vbios or (like.vbios if like else ""),
        nvlinks=like.nvlinks if like else 0,
        ecc_uncorrectable=gpu.ecc_uncorrectable or 0,
        remap_pending=bool(gpu.remap_pending),
        remap_failed=bool(gpu.remap_failed),
        mig_enabled=bool(gpu.mig_current),
        mig_pending=bool(gpu.mig_current if gpu.mig_pending is None else gpu.mig_pending),
        mig_instances=[(device.profile, device.uuid) for device in gpu.mig_devices],
        lost=gpu.lost,
    )


# --- inferred values ------------------------------------------------------------------------------------------


def _set_identity(
    state: MachineState, desired: Desired, hot: RedfishHot | None, facts: HostFacts | None, record: NodeRecord
) -> None:
    """Set serial and UUID from the host, else from spec and ledger, and last from the BMC, which may be wrong (A14)."""
    serials = (facts.serial if facts else None, desired.serial, record.serial, hot.serial if hot else None)
    uuids = (facts.uuid if facts else None, desired.uuid, record.uuid, hot.uuid if hot else None)
    state.serial = next((serial for serial in serials if serial), state.serial)
    state.uuid = next((uuid for uuid in uuids if uuid), state.uuid)


def _restore_staged(state: MachineState, desired: Desired, record: NodeRecord) -> None:
    """Restore staged changes that no restart has applied. Only the ledger's attempts record them."""
    done = [attempt for attempt in record.attempts if attempt.outcome == "done"]
    for at, attempt in enumerate(done):
        if any(spec_of(later.action).boots for later in done[at + 1 :]):
            continue
        if attempt.action == "set_boot" and desired.profile.secure_boot not in (None, state.secure_boot):
            state.pending_secure_boot = desired.profile.secure_boot
        for item in desired.profile.firmware if attempt.action == "update_firmware" else ():
            found = state.firmware.get(item.inventory_id)
            if item.component == attempt.target and found is not None and found.version != item.version:
                found.staged = item.version


def _root_disk(state: MachineState, desired: Desired, built: str) -> str:
    """Return the drive of the image by the spec's root disk rule."""
    if built in {drive.serial for drive in state.drives}:
        return built
    rule = desired.root_disk or (desired.profile.image.root_disk if desired.profile.image else None) or RootDisk()
    fits = (drive for drive in state.drives if _fits(rule, drive))
    return next((drive.serial for drive in fits), state.drives[0].serial if state.drives else built)


def _fits(rule: RootDisk, drive: DriveState) -> bool:
    low, high = rule.min_bytes or 0, rule.max_bytes or drive.capacity_bytes
    wanted = ((rule.serial, drive.serial), (rule.wwn, drive.wwn), (rule.model, drive.model))
    return low <= drive.capacity_bytes <= high and all(want is None or want == has for want, has in wanted)


def _restore_applied(disk: DiskImage, record: NodeRecord) -> None:
    """Give a host that can't be read the values that it was last converged to."""
    applied = record.applied
    for path, name in (("image.name", "image"), ("image.version", "version"), ("image.sha256", "sha256"),
                       ("image.kernel", "kernel"), ("image.driver", "driver")):  # fmt: skip
        if path in applied and isinstance(applied[path].value, str):
            setattr(disk, name, applied[path].value)


def _never_installed(desired: Desired, seen: Observed) -> bool:
    """Tell whether a silent host is known to be absent from the cluster that it belongs to."""
    absent = isinstance(seen.member, Answered) and seen.member.value is None
    return absent and desired.profile.membership is not None and desired.profile.image is not None


def _apply_running(machine: Machine, seen: Observed, now: datetime) -> None:
    """Apply the state of the running system, and inject faults for the sources that do not answer."""
    system = machine.state.os
    if isinstance(seen.host, Answered) and system is not None:
        for name, service in (seen.host.value.services or {}).items():
            if service.active is not None:
                system.services_active[name] = service.active
        by_pci = {gpu.pci.upper(): gpu for gpu in machine.state.gpus}
        for xid in seen.host.value.xids or ():
            where = short_pci(xid.device) if xid.device.upper() in by_pci else xid.device.lower().removesuffix(".0")
            line = f"NVRM: Xid (PCI:{where}): {xid.code}, pid='<unknown>', name=<unknown>, {xid.text}"
            system.kernel_log += [line] * xid.count
    if isinstance(seen.inventory, Answered):
        machine.recall_events(seen.inventory.value.events or (), (now - seen.inventory.at).total_seconds())
    for fault in _faults(machine, seen):
        machine.inject(fault)
    hot = seen.hot.value if isinstance(seen.hot, Answered) else None
    if hot is not None and hot.serial and hot.serial.casefold() != machine.state.serial.casefold():
        machine.inject("wrong_machine", serial=hot.serial)


def _faults(machine: Machine, seen: Observed) -> list[str]:
    found = []
    if isinstance(seen.hot, Silent) and seen.hot.reason not in _NO_FAULT:
        found.append(_BMC_FAULTS.get(seen.hot.reason, "bmc_unreachable"))
    member = seen.member.value if isinstance(seen.member, Answered) else None
    not_ready = member is not None and member.ready is False
    if isinstance(seen.host, Silent) and seen.host.reason not in _NO_FAULT and machine.state.os is not None:
        if not_ready:
            found.append("host_hung")
        else:
            found.append("ssh_hang" if seen.host.reason is UnknownReason.TIMEOUT else "ssh_refused")
    elif not_ready and machine.kubelet_running:
        found.append("kubelet_not_ready")
    return found


# --- the cluster -----------------------------------------------------------------------------------------------------


def _cluster(
    fleet: Fleet, observation: Observation, machines: Mapping[str, Machine], clock: Callable[[], float], seed: int
) -> ClusterTruth:
    truth = ClusterTruth(machines, clock, random.Random(f"{seed} cluster"))  # noqa: S311  names of pods
    readings = {name: observation.nodes[name].member for name in fleet.nodes}
    truth.devices |= advertised(fleet)
    truth.helm.gpu_operator = has_gpu_operator(fleet)
    truth.down = bool(readings) and all(isinstance(reading, Silent) for reading in readings.values())
    for name, ready in observation.control_plane.items():
        if name not in fleet.nodes:
            truth.add_node(name, control_plane=True).ready = "True" if ready else "Unknown"
    for name, reading in readings.items():
        if isinstance(reading, Answered) and reading.value is not None:
            _add_member(truth, reading.value, fleet.nodes[name], machines[name])
        elif isinstance(reading, Answered):
            _stop_kubelet(machines[name], observation.nodes[name])
    return truth


def _add_member(truth: ClusterTruth, member: Member, desired: Desired, machine: Machine) -> None:
    node = truth.add_node(member.name, control_plane=member.control_plane)
    node.ready = "True" if member.ready else "Unknown"
    node.conditions = _conditions(member, desired, machine)
    gpus = len(machine.state.gpus)
    for pod in member.pods:
        kind = pod.owner_kind if pod.evictable or pod.owner_kind == "Node" else "DaemonSet"
        # The first evictable pod of a node counts as using all its GPUs: it moves to free ones, or stays pending.
        wanted = gpus if pod.evictable else 0
        gpus -= wanted
        owner = (kind, pod.operand or f"{kind}-{pod.name}" if kind else "")
        truth.add_pod(pod.namespace, pod.name, member.name, owner, phase=pod.phase, gpus=wanted, grace_s=GRACE_S)
    truth.update_node(
        member.name,
        labels=member.labels,
        annotations=member.annotations,
        taints=[taint for taint in member.taints if taint.key not in AUTOMATIC],
        unschedulable=member.unschedulable,
    )


def _conditions(member: Member, desired: Desired, machine: Machine) -> dict[str, Condition]:
    """Return the conditions. Those that the policy names as bad clear after a boot; the others stay."""
    policy, system = desired.profile.remediation, machine.state.os
    bad = {condition.type: condition.status for condition in policy.node_conditions} if policy else {}
    boot_id = system.boot_id if system is not None else ""
    found = {}
    for kind, why in member.reasons.items():
        status, (reason, _, message) = member.conditions[kind], why.partition(": ")
        good = status if bad.get(kind) != status else "False" if status == "True" else "True"
        found[kind] = Condition(status, reason, message, 0.0, good, boot_id)
    return found


def _stop_kubelet(machine: Machine, seen: Observed) -> None:
    """Stop the kubelet of a node that is in no cluster. One that was seen to run is about to register the node."""
    system = machine.state.os
    if system is None:
        return
    shown = isinstance(seen.host, Answered) and "kubelet" in (seen.host.value.services or {})
    if not shown:
        machine.service_set("kubelet", active=False, enabled=False)
    elif system.services_active.get("kubelet"):
        system.service_since["kubelet"] = machine.now
