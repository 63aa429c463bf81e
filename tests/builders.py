"""Builders of values for tests: a healthy node as specified, to be changed one thing at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.attestation.expected import is_measured, reference_of
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.gate.evidence import GPU_COUNT, required_metrics
from reconciler.model import desired as d
from reconciler.model import gpus as g
from reconciler.model import observed as o
from reconciler.model.access import ClusterAccess, HostKeyPolicy, TlsPolicy
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.measurements import Attestation, BootMeasurements, PlatformMeasurements, SecureBootKeys
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, NodeRecord, write_mark
from reconciler.model.vocab import Activation, BootPhase, DrainProvider, DriftMode, Health, NodeState, Power
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.node.conditions import Context
from reconciler.planner.node.holds import by_subject
from reconciler.planner.node.planner import NodePlanner

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LEDGER = "ledger-1"
SHA = "ab" * 32

IMAGE = d.DesiredImage(
    "ubuntu-gpu", "2026.11.1", "https://images/x", SHA, "sig", "release",
    {"kernel": "6.8.0-48", "driver": "570.124.06"}, d.RootDisk(model="PM9A3"),
)  # fmt: skip


def firmware(component: str, stage: int, activation: Activation, version: str = "2.0") -> d.DesiredFirmware:
    return d.DesiredFirmware(
        component,
        component.upper(),
        version,
        "exact",
        activation,
        stage,
        60.0,
        f"https://fw/{component}",
        SHA,
        minutes=10,
    )


FIRMWARE = (
    firmware("bmc", 1, Activation.BMC_RESET),
    firmware("bios", 2, Activation.REBOOT),
    firmware("nic0", 3, Activation.POWER_CYCLE),
)
ACCEPTANCE = d.Acceptance(
    "standard",
    (d.GatePhase("burn", (d.GateTest("dcgm", "dcgmi-diag", {"level": 2}, (d.Threshold("x", min=1.0),), 600.0),)),),
    90 * 86400.0,
)
REMEDIATION = d.Remediation("standard", (d.Rung("power_cycle", 1),), 86400.0)
PROFILE = d.Profile(
    digest="p1",
    image=IMAGE,
    inventory=d.DesiredInventory(gpus=2, drives=1, nvlinks_per_gpu=18),
    firmware=FIRMWARE,
    bios={"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS1"},
    secure_boot=True,
    boot_order=("Hdd", "Pxe"),
    host=d.DesiredHost({"vm.swappiness": "1"}, {"containerd": "running"}),
    gpu=d.DesiredGpu(None),
    membership=d.DesiredMembership({"workload": "training"}, (o.Taint("nvidia.com/gpu", "present", "NoSchedule"),)),
    drain=d.DrainPolicy(DrainProvider.KUBERNETES),
    acceptance=ACCEPTANCE,
    remediation=REMEDIATION,
    provenance={},
)
MEASURED = replace(IMAGE, measurements=BootMeasurements(("a" * 64,), {"start": "b" * 64}))
PLATFORM = PlatformMeasurements(SecureBootKeys(("1" * 64,), ("2" * 64,), ("3" * 64,), ("4" * 64,)))
SETTINGS = d.Settings(
    fleet="test", bmc_credentials="bmc", ssh_credentials="ssh", ssh_user="root", tls=TlsPolicy(None),
    host_keys=HostKeyPolicy(()), cluster=ClusterAccess("main", None), installer=None, concurrency=8,
    redfish_deadline_s=30, ssh_deadline_s=30, kubernetes_deadline_s=30, inventory_max_age_s=86400, tolerate="0",
    budgets=(), drift_mode=DriftMode.CORRECT, ignore=(), insecure=(),
)  # fmt: skip
CONTEXT = Context(SETTINGS, LEDGER, NOW, {("ubuntu-gpu", "2026.11.1"): True})


def node(name: str = "gpu-a001", **changes: Any) -> d.Desired:
    fields: dict[str, Any] = {
        "node": name, "pool": "train", "state": NodeState.ACTIVE, "endpoints": d.Endpoints("https://bmc", "host:22"),
        "domains": {"rack": "r1"}, "hostname": name, "serial": f"SN-{name}", "uuid": None, "root_disk": None,
        "profile": PROFILE, "provenance": {},
    }  # fmt: skip
    return d.Desired(**(fields | changes))


def profile(**changes: Any) -> d.Profile:
    """A changed profile; its digest changes with it."""
    return replace(PROFILE, digest=f"p-{sorted(changes)}-{hash(repr(changes))}", **changes)


CELLS = g.GpuCells(
    recovery_action="None", sram_threshold_exceeded=False, unrepairable_memory=False, channel_repair_pending=False,
    tpc_repair_pending=False, fabric_state="Completed", fabric_status="Success", fabric_health="",
    thermal_slowdown=False, over_limit=False, power_brake=False, pcie_width=16, pcie_width_max=16, pcie_gen=5,
    pcie_gen_max=5, persistence=True, loaded=False,
)  # fmt: skip


def gpu(index: int, **changes: Any) -> g.Gpu:
    fields: dict[str, Any] = {
        "index": index, "pci": f"00000000:{index:02X}:00.0", "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3",
        "serial": f"G{index}", "vbios": "96.00", "ecc_enabled": True, "ecc_uncorrectable": 0, "remap_pending": False,
        "remap_failed": False, "mig_current": False, "mig_pending": False, "cells": CELLS,
        "ecc_uncorrectable_ever": 0, "remapped_uncorrectable": 0, "pcie_replays": 0,
    }  # fmt: skip
    return g.Gpu(**(fields | changes))


def hot(name: str = "gpu-a001", **changes: Any) -> o.RedfishHot:
    fields: dict[str, Any] = {
        "manufacturer": "Supermicro", "model": "X", "serial": f"SN-{name}", "uuid": None, "power": Power.ON,
        "boot_phase": BootPhase.OS_RUNNING, "boot_override": None, "pending_bios": {}, "tasks": (), "health": Health.OK,
    }  # fmt: skip
    return o.RedfishHot(**(fields | changes))


def inventory(**changes: Any) -> o.RedfishInventory:
    fields: dict[str, Any] = {
        "bios": {"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS1", "Other": 1}, "secure_boot": True,
        "boot_order": ("Hdd", "Pxe"),
        "firmware": {item.inventory_id: o.FirmwareItem("2.0") for item in FIRMWARE},
        "memory_bytes": 2**41, "dimms": 32, "processors": 2, "nics": (),
        "drives": (o.Drive("0", serial="D1", model="PM9A3"),), "sensors": (), "events": (), "manager": o.Manager(),
        "parts": (),
    }  # fmt: skip
    return o.RedfishInventory(**(fields | changes))


def facts(name: str = "gpu-a001", **changes: Any) -> o.HostFacts:
    fields: dict[str, Any] = {
        "hostname": name, "kernel": "6.8.0-48", "boot_id": "b1", "uptime_s": 1000.0, "serial": f"SN-{name}",
        "uuid": None, "image": o.ImageIdentity("ubuntu-gpu", "2026.11.1", SHA, "D1", None, booted_disk="D1"),
        "secure_boot": True,
        "driver": "570.124.06", "gpus": (gpu(0), gpu(1)), "nvlinks_active": {0: 18, 1: 18}, "xids": (), "links": (),
        "nvme": (), "disks": (), "dimm_errors": (), "dimm_records": (), "counters": {}, "gpu_counters": {},
        "nvlink_counters": {}, "dcgm_counters": {}, "module_alarms": {},
        "daemons": o.Daemons(0, fabric_manager=None), "daemon_counters": {}, "clock": o.ClockState(True, 0.0),
        "dcgm": (), "amd_gpus": (),
        "services": {"containerd": o.Service(True, True)}, "sysctls": {"vm.swappiness": "1"},
        "nvlinks_slow": {}, "kernel_events": (),
    }  # fmt: skip
    gpus = len((fields | changes)["gpus"] or ())
    return o.HostFacts(**({"smi": g.SmiAnswer(0, gpus, gpus)} | fields | changes))


def pod(name: str = "job", **changes: Any) -> o.Pod:
    fields: dict[str, Any] = {
        "namespace": "default", "name": name, "uid": f"u-{name}", "phase": "Running", "owner_kind": "Job",
        "evictable": True,
    }  # fmt: skip
    return o.Pod(**(fields | changes))


def member(name: str = "gpu-a001", *, mark: Mark | None = None, **changes: Any) -> o.Member:
    taints: tuple[o.Taint, ...] = (o.Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    fields: dict[str, Any] = {
        "name": name, "uid": f"n-{name}", "resource_version": "1", "ready": True, "conditions": {"Ready": "True"},
        "unschedulable": mark is not None, "labels": {"workload": "training"}, "annotations": {}, "taints": taints,
        "kubelet_version": "v1.29.0", "pods": (pod(),),
    }  # fmt: skip
    if mark is not None:
        fields["annotations"] = {OWNER_ANNOTATION: write_mark(mark)}
        fields["taints"] = (*taints, o.Taint(MARK_TAINT, "", "NoSchedule"))
    return o.Member(**(fields | changes))


def our_mark(**changes: Any) -> Mark:
    fields: dict[str, Any] = {"ledger": LEDGER, "plan": "p", "reason": "test", "at": NOW.isoformat(), "cordoned": True}
    return Mark(**(fields | changes))


def observed(name: str = "gpu-a001", **sources: Any) -> o.Observed:
    """A healthy node. A source may be a snapshot, or a `Silent`; `member=None` means known to be absent."""
    values = {"hot": hot(name), "inventory": inventory(), "host": facts(name), "member": member(name)} | sources
    readings: dict[str, Any] = {
        key: value if isinstance(value, o.Silent) else o.Answered(NOW, value) for key, value in values.items()
    }
    return o.Observed(node=name, **readings)


def silent(reason: str = "unreachable", detail: str = "") -> o.Silent:
    from reconciler.model.vocab import UnknownReason

    return o.Silent(NOW, UnknownReason(reason), detail)


def certificate(wanted: d.Desired, seen: o.Observed, **metrics: float) -> Certificate:
    assert wanted.profile.acceptance is not None
    binding = binding_of(wanted, seen, tests_digest(wanted.profile.acceptance))
    assert isinstance(binding, Binding), binding
    results = tuple(
        TestResult(
            test.name,
            test.tool,
            Verdict.PASS,
            (),
            carried_by(test, binding) | {t.metric: metrics.get(t.metric, 2.0) for t in test.thresholds},
        )
        for phase in wanted.profile.acceptance.phases
        for test in phase.tests
    )
    return Certificate("1.0", wanted.node, NOW, binding, results)


def carried_by(test: d.GateTest, binding: Binding) -> dict[str, float]:
    """What every pass of its tool carries."""
    gpus = float(len(binding.gpu_serials))
    return {name: gpus if name.endswith(GPU_COUNT) else 2.0 for name in required_metrics(test)}


def record(wanted: d.Desired, seen: o.Observed | None = None, **changes: Any) -> NodeRecord:
    """What the ledger holds of a node that passed its gate as `seen`, and proved that boot where it is measured."""
    found = seen or observed(wanted.node)
    passed = certificate(wanted, found) if wanted.profile.acceptance is not None else None
    known = NodeRecord(wanted.node, serial=wanted.serial, certificate=passed)
    if is_measured(wanted.profile) and isinstance(found.host, o.Answered):
        known = replace(known, attestation=attestation(wanted, str(found.host.value.boot_id)))
    return replace(known, **changes)


def attestation(wanted: d.Desired, boot_id: str = "b1") -> Attestation:
    return Attestation(reference_of(wanted.profile), NOW, "start", boot_id)


def planner(rules: tuple[d.IgnoreRule, ...] = (), holds: tuple[Any, ...] = (), **context: Any) -> NodePlanner:
    fresh = replace(CONTEXT, **({"_profiles": {}} | context))  # what tests call a profile, others call so too
    return NodePlanner(fresh, Comparer(IgnoreRules(rules, NOW)), by_subject((), holds))


def actions(plan: Any) -> list[str]:
    return [action.id for action in plan.actions]


def budget(
    limits: Sequence[d.BudgetLimit],
    nodes: Mapping[str, d.Desired],
    *,
    now: datetime,
    out: Iterable[str] = (),
    unknown: Iterable[str] = (),
    isolated: Iterable[str] = (),
    control_plane: Mapping[str, bool] | None = None,
    **more: Any,
) -> Budget:
    """A budget that has seen these nodes out of service, can't read others, and knows who is in the control plane."""
    made = Budget(limits, nodes, now, **more)
    for names, serves in ((out, False), (unknown, None)):
        for name in sorted(names):
            made.see(name, serves)
    for name in isolated:
        made.isolate(name)
    made.see_control_plane(control_plane or {})
    return made
