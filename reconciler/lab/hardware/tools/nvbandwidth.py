"""`nvbandwidth -j [-t name...]`: cells are strings, statistics are numbers, and a GPU's cell with itself is "N/A"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from reconciler.lab.hardware.state import GpuState
from reconciler.lab.hardware.tools.call import Call, Ran, cuda_error
from reconciler.model.gate import CommandResult

VERSION = "v0.7"
_HOST = {
    "host_to_device_memcpy_ce": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
    "device_to_host_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
    "host_to_device_bidirectional_memcpy_ce": "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)",
    "device_to_host_bidirectional_memcpy_ce": "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)",
}
_PEERS = {
    "device_to_device_memcpy_read_ce": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
    "device_to_device_memcpy_write_ce": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
}
_HOST_GBS = {"H100": 55.4, "H200": 55.4, "B200": 56.9, "A100": 24.6}
_PEER_GBS = {"H100": 388.0, "H200": 388.0, "B200": 770.0, "A100": 258.0}


def nvbandwidth(call: Call) -> Ran:
    document: dict[str, Any] = {
        "CUDA Runtime Version": 12080,
        "Driver Version": call.machine.disk().driver,
        "git_version": VERSION,
        "version": VERSION,
    }
    names = _requested(call.args)
    error = cuda_error(call.machine)
    if error is None and (lost := [gpu for gpu in call.machine.state.gpus if gpu.lost]):
        error = f"unable to determine the device handle for GPU {lost[0].pci}: GPU is lost"
    if error is not None:
        document["error"] = f"[cuInit] {error}"
        return Ran(CommandResult(1, _text(document)), 3.0)
    document["testcases"] = [_testcase(call, name) for name in names]
    status = 0 if all(case["status"] in ("Passed", "Waived") for case in document["testcases"]) else 1
    return Ran(CommandResult(status, _text(document)), 5.0 + 12.0 * len(names))


def _requested(args: Sequence[str]) -> list[str]:
    names = []
    for at, word in enumerate(args):
        if word in ("-t", "--testcase"):
            for name in args[at + 1 :]:
                if name.startswith("-"):
                    break
                names += name.split(",")
    return names or [*_HOST, *_PEERS]


def _text(document: dict[str, Any]) -> str:
    return json.dumps({"nvbandwidth": document}, indent="\t", separators=(",", " : ")) + "\n"


def _testcase(call: Call, name: str) -> dict[str, Any]:
    gpus = call.machine.state.gpus
    if name in _HOST:
        base = _figure(_HOST_GBS, gpus[0]) * (0.86 if "bidirectional" in name else 1.0)
        matrix = [[base * call.jitter(f"{name} {gpu.index}", 0.01) for gpu in gpus]]
        return _passed(name, _HOST[name], [[float(cell) for cell in row] for row in matrix])
    if name in _PEERS:
        if len(gpus) < 2:
            return {"name": name, "status": "Waived"}
        return _passed(name, _PEERS[name], [[_peer(call, name, a, b) for b in gpus] for a in gpus])
    return {"name": name, "status": "Not Found"}


def _figure(table: dict[str, float], gpu: GpuState) -> float:
    return next((value for name, value in table.items() if name in gpu.name), 40.0)


def _peer(call: Call, name: str, a: GpuState, b: GpuState) -> float | None:
    if a.index == b.index:
        return None
    links = min(1 - gpu.nvlinks_down / max(gpu.nvlinks, 1) for gpu in (a, b))
    return _figure(_PEER_GBS, a) * links * call.jitter(f"{name} {a.index} {b.index}", 0.01)


def _passed(name: str, description: str, matrix: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    cells = [cell for row in matrix for cell in row if cell is not None]
    return {
        "average": sum(cells) / len(cells),
        "bandwidth_description": description + " ",
        "bandwidth_matrix": [["N/A" if cell is None else f"{cell:.6g}" for cell in row] for row in matrix],
        "max": max(cells),
        "min": min(cells),
        "name": name,
        "status": "Passed",
        "sum": sum(cells),
    }
