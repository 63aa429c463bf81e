"""The facts of a running machine as the text that the real tools print, one pure function per fact.

A fact's names (units, sysctl keys) come from the text of its command, everything else from the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.lab.wire.facts import devices, installed, k3s, nvidia_smi, software, system, telemetry
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.gate import CommandResult

Fact = Callable[[FactContext], CommandResult]

FACTS: Mapping[str, Fact] = {
    "hostname": system.hostname,
    "kernel": system.kernel,
    "boot_id": system.boot_id,
    "uptime": system.uptime,
    "dmi": system.dmi,
    "os_release": system.os_release,
    "image": system.image,
    "slots": system.slot_records,
    "root_disk": system.root_disk,
    "secure_boot": system.secure_boot,
    "cuda": software.cuda,
    "nccl": software.nccl,
    "container_runtime": software.container_runtime,
    "kubelet": software.kubelet,
    "nvidia_smi": nvidia_smi.query_xml,
    "gpu_list": nvidia_smi.listing,
    "nvlink": nvidia_smi.nvlink_status,
    "nvlink_errors": nvidia_smi.nvlink_errors,
    "kernel_log": system.kernel_log,
    "kernel_rows": system.kernel_rows,
    "links": devices.links,
    "rdma": devices.rdma,
    "nvme": devices.nvme,
    "disks": devices.disks,
    "dimm_errors": devices.dimm_errors,
    "dimm_records": devices.dimm_records,
    "counters": devices.counters,
    "modules": devices.modules,
    "daemons": telemetry.daemon_units,
    "clock": telemetry.clock,
    "dcgm_health": telemetry.dcgm_health,
    "dcgm_fields": telemetry.dcgm_fields,
    "amd_smi": telemetry.amd_smi,
    "amd_static": telemetry.amd_static,
    "interfaces": installed.interfaces,
    "routes": installed.routes,
    "user_ca": installed.user_ca,
    "command_line": installed.command_line,
    "k3s": k3s.k3s,
    "services": system.services,
    "sysctls": system.sysctls,
}


def answer(name: str, context: FactContext) -> CommandResult:
    """Run the command of a fact like `sh -c`. It exits with 127 when this machine lacks the tool."""
    fact = FACTS.get(name)
    if fact is None:
        return CommandResult(127, "", f"sh: 1: {name}: not found\n")
    return fact(context)
