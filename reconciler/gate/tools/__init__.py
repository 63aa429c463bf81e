"""The acceptance tools, each with its commands and a pure judge of their output.

A judge needs both the exit status and the document (rule 2). Output that is missing, can't be parsed, has no rows, or
comes from an unknown version is never a pass. Judges never raise, whatever a tool prints.
"""

from __future__ import annotations

from reconciler.gate.tools import (
    amd_smi,
    clock,
    command,
    dcgmi,
    dcgmproftester,
    extension,
    fio,
    fio_verify,
    gpu_burn,
    hpcc,
    inventory,
    iperf3,
    link_counters,
    memtester,
    mlxlink,
    nccl,
    nvbandwidth,
    pcie,
    perftest,
    rvs,
    stress_ng,
    xid,
)
from reconciler.gate.tools.common import Tool

TOOLS: dict[str, Tool] = {
    "dcgmi-diag": dcgmi.TOOL,
    "nvbandwidth": nvbandwidth.TOOL,
    "nccl-tests": nccl.TOOL,
    "fio": fio.TOOL,
    "inventory": inventory.TOOL,
    "xid": xid.TOOL,
    "fio-verify": fio_verify.TOOL,
    "iperf3": iperf3.TOOL,
    "stress-ng": stress_ng.TOOL,
    "memtester": memtester.TOOL,
    "hpcc": hpcc.TOOL,
    "command": command.TOOL,
    "clock": clock.TOOL,
    "perftest": perftest.TOOL,
    "pcie": pcie.TOOL,
    "rccl-tests": nccl.RCCL,
    "gpu-burn": gpu_burn.TOOL,
    "link-counters": link_counters.TOOL,
    "mlxlink": mlxlink.TOOL,
    "dcgmproftester": dcgmproftester.TOOL,
    "amd-smi": amd_smi.TOOL,
    "rvs": rvs.TOOL,
    "extension": extension.TOOL,
}
