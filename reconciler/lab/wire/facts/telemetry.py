"""Daemons, clock, and DCGM of a running machine, as systemctl, chronyc 4.3 and dcgmi print them."""

from __future__ import annotations

import json
from typing import Final

from reconciler.lab.hardware.error_counters import daemon_restarts, dcgm_counters
from reconciler.lab.hardware.telemetry import amd_gpus, clock_state, daemons, dcgm_incidents
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.gate import CommandResult


def daemon_units(context: FactContext) -> CommandResult:
    found = daemons(context.state)
    restarts = daemon_restarts(context.state, context.now)
    lines = [f"switches={found.nvswitches}\n"]
    for name in ("nvidia-fabricmanager", "kubelet", "containerd"):
        known, active = name in context.image.services, context.system.services_active.get(name)
        count = restarts.get(f"{name}.service", {}).get("restarts", 0)
        lines.append(
            f"NRestarts={count}\nId={name}.service\nLoadState={'loaded' if known else 'not-found'}\n"
            f"ActiveState={'active' if active else 'inactive'}\n"
        )
    return CommandResult(0, "\n".join(lines))


def clock(context: FactContext) -> CommandResult:
    """Print `chronyc -c tracking`."""
    state = clock_state(context.state)
    leap = "Normal" if state.synchronised else "Not synchronised"
    offset = f"{state.offset_s or 0.0:.9f}"
    cells = ["0A2A0001", "10.42.0.1", "3", "1732612345.123456789", offset, "0.000000214", "0.000008311", "-7.912"]
    return CommandResult(0, ",".join([*cells, "0.001", "0.032", "0.000412371", "0.000183322", "64.2", leap]) + "\n")


def amd_smi(context: FactContext) -> CommandResult:
    """Print `amd-smi metric -e --json` of ROCm 7, or what the command says of a machine without AMD's GPUs."""
    if not any(gpu.amd for gpu in context.state.gpus):
        return CommandResult(0, "no amd-smi, and no GPU of AMD's on the PCI bus\n")
    rows = [
        {
            "gpu": gpu.index,
            "ecc": {
                "total_correctable_count": gpu.correctable,
                "total_uncorrectable_count": gpu.uncorrectable,
                "total_deferred_count": gpu.deferred,
                "cache_correctable_count": 0,
                "cache_uncorrectable_count": 0,
            },
        }
        for gpu in amd_gpus(context.state)
    ]
    return CommandResult(0, json.dumps({"gpu_data": rows}, indent=4) + "\n")


def amd_static(context: FactContext) -> CommandResult:
    """Print `amd-smi static -a -b -B --json` of ROCm 7, or what the command says of a machine without AMD's GPUs."""
    if not any(gpu.amd for gpu in context.state.gpus):
        return CommandResult(0, "no amd-smi, and no GPU of AMD's on the PCI bus\n")
    rows = [
        {
            "gpu": gpu.index,
            "asic": {"market_name": gpu.model, "vendor_id": "0x1002", "asic_serial": f"0x{gpu.index:016X}"},
            "bus": {"bdf": (gpu.pci or "")[4:].lower(), "max_pcie_width": 16, "slot_type": "OAM"},
            "board": {"product_serial": gpu.serial, "fru_id": "N/A", "manufacturer_name": "AMD"},
        }
        for gpu in amd_gpus(context.state)
    ]
    return CommandResult(0, json.dumps({"gpu_data": rows}, indent=4) + "\n")


def dcgm_health(context: FactContext) -> CommandResult:
    """Print `dcgmi health -g 0 -c -j`. Its watches are enabled here."""
    if not context.image.driver or not context.state.gpus:
        return CommandResult(127, "", "sh: 1: dcgmi: not found\n")
    incidents = dcgm_incidents(context.state)
    body: dict[str, object] = {"Overall Health": {"value": incidents[0].health if incidents else "Healthy"}}
    for one in incidents:
        group, number = one.entity.split(" ")
        error = {one.system: {"overflow": [one.text], "value": one.health}}
        entity = {"children": {"Errors": {"children": error}}, "value": one.health}
        body[group] = {"children": {number: entity}}
    return CommandResult(0, json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=1) + "\n")


# Id of a field, the head of its column and the column's width in dcgmi 4.6 (dcgmlib/src/dcgm_fields.cpp).
_FIELDS: Final = (
    ("202", "RPCTR", 11), ("241", "TVIOL", 16), ("310", "ESVTL", 11), ("1209", "NLLLIE", 26), ("1212", "NLLRF", 26),
    ("1424", "CLKEPBSNS", 26),
)  # fmt: skip


def dcgm_fields(context: FactContext) -> CommandResult:
    """Print `dcgmi dmon -e ... -c 1` below the list of its ids. A lost GPU has no value."""
    if not context.image.driver or not context.state.gpus:
        return CommandResult(127, "", "sh: 1: dcgmi: not found\n")
    found = dcgm_counters(context.state, context.now)
    lines = [f"== {','.join(number for number, _, _ in _FIELDS)}"]
    lines.append("#Entity   " + "".join(f"{head:<{width + 2}}" for _, head, width in _FIELDS))
    lines.append("ID        " + "".join(" " * (width + 2) for _, _, width in _FIELDS))
    for gpu in context.state.gpus:
        counts = found.get(f"gpu{gpu.index}", {})
        cells = ["N/A" if gpu.lost else str(counts.get(f"dcgm_{number}", 0)) for number, _, _ in _FIELDS]
        padded = "".join(f"{cell:<{width + 2}}" for cell, (_, _, width) in zip(cells, _FIELDS, strict=True))
        lines.append(f"{f'GPU {gpu.index}':<10}{padded}")
    return CommandResult(0, "".join(f"{line}\n" for line in lines))
