"""`dcgmi diag -r N -j` of DCGM 4. Its document lists the tests that ran; a lost GPU is no longer an entity."""

from __future__ import annotations

import json
from typing import Any

from reconciler.lab.hardware.slowness import Load, under_load
from reconciler.lab.hardware.state import GpuState
from reconciler.lab.hardware.tools.call import Call, Ran, cuda_error, done, failed, parse_options
from reconciler.model.gate import CommandResult

VERSION = "4.2.3"
_NVVS_ERROR = 226  # uint8(-30)
_LEVELS = {
    1: (("Deployment", ("software",)),),
    2: (("Deployment", ("software",)), ("Hardware", ("memory",)), ("Integration", ("pcie",))),
    3: (
        ("Deployment", ("software",)),
        ("Hardware", ("memory", "diagnostic")),
        ("Integration", ("pcie",)),
        ("Stress", ("memory_bandwidth", "targeted_stress", "targeted_power")),
    ),
    4: (
        ("Deployment", ("software",)),
        ("Hardware", ("memory", "diagnostic", "memtest", "pulse_test")),
        ("Integration", ("pcie",)),
        ("Stress", ("memory_bandwidth", "targeted_stress", "targeted_power")),
    ),
}
_SECONDS = {1: 6.0, 2: 120.0, 3: 1800.0, 4: 5400.0}
_STRESS, _KEPT = 60_000.0, 0.95  # GFLOPS that targeted_stress wants, and the share of them that is enough
_DEVICE_IDS = {"H100": "2330", "H200": "2335", "B200": "2901", "A100": "20b2"}


def dcgmi(call: Call) -> Ran:
    options, others = parse_options(call.args, {"-r": "level", "--run": "level"})
    if others[:1] == ["--version"]:
        return done(f"\nVersion : {VERSION}\nBuild ID : 18\n")
    if others[:1] != ["diag"] or "-j" not in others or options.get("level") not in ("1", "2", "3", "4"):
        return failed(255, "PARSE ERROR: Argument: run\n             Required argument missing\n")
    if not call.machine.state.gpus:
        return _document({"DCGM Diagnostic": {"runtime_error": "No GPUs found", "version": VERSION}}, 205, 1.0)
    level = int(options["level"])
    if (error := cuda_error(call.machine)) is not None and level > 1:
        text = f"Error using CUDA API cuInit. {error.capitalize()}."
        return _document({"DCGM Diagnostic": {"runtime_error": text, "version": VERSION}}, _NVVS_ERROR, 4.0)
    tests = {name: _test(name, call) for _, names in _LEVELS[level] for name in names}
    statuses = {test["test_summary"]["status"] for test in tests.values()}
    categories = [{"category": kind, "tests": [tests[name] for name in names]} for kind, names in _LEVELS[level]]
    return _document(
        {
            "DCGM Diagnostic": {"test_categories": categories},
            "entity_groups": [_entities(call.visible_gpus)],
            "metadata": {"Driver Version Detected": call.machine.disk().driver, "version": VERSION},
        },
        _NVVS_ERROR if "Fail" in statuses else 0,
        _SECONDS[level],
    )


def _document(document: dict[str, Any], status: int, seconds: float) -> Ran:
    return Ran(CommandResult(status, json.dumps(document, indent="\t", separators=(",", " : ")) + "\n"), seconds)


def _entities(gpus: list[GpuState]) -> dict[str, Any]:
    return {
        "entity_group": "GPU",
        "entity_group_id": 1,
        "entities": [
            {
                "device_id": next((code for name, code in _DEVICE_IDS.items() if name in gpu.name), "0000"),
                "entity_id": gpu.index,
                "serial_num": gpu.serial,
            }
            for gpu in gpus
        ],
    }


def _test(name: str, call: Call) -> dict[str, Any]:
    results = [_result(name, gpu, under_load(call.machine.state, gpu)) for gpu in call.visible_gpus]
    ranks = ("Fail", "Warn", "Skip", "Pass")
    worst = min((result["status"] for result in results), key=ranks.index, default="Skip")
    return {"name": name, "results": results, "test_summary": {"status": worst}}


def _result(test: str, gpu: GpuState, load: Load) -> dict[str, Any]:
    result: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu.index, "status": "Pass"}
    finding = _finding(test, gpu) or _under_stress(test, gpu, load)
    if finding is not None:
        result["status"], category, error, severity, text = finding
        result["warnings"] = [
            {"error_category": category, "error_id": error, "error_severity": severity, "warning": text}
        ]
    return result


def _finding(test: str, gpu: GpuState) -> tuple[str, int, int, int, str] | None:
    """Return (status, category, error id, severity, text). Severity 2 asks to isolate the GPU, 6 to reset it."""
    if test == "software":
        if gpu.remap_pending:
            return "Warn", 5, 85, 6, f"GPU {gpu.index} has pending row remappings. Reset the GPU to activate them."
        return None
    if gpu.mig_enabled:
        return "Skip", 0, 33, 1, f"MIG is enabled on GPU {gpu.index}; this test was skipped."
    if gpu.ecc_uncorrectable and test in ("memory", "diagnostic", "memtest"):
        return "Fail", 3, 12, 2, f"A DBE occurred while the {test} test was running on GPU {gpu.index}."
    if gpu.nvlinks_down and test == "pcie":
        return "Fail", 7, 58, 2, f"{gpu.nvlinks_down} NvLink(s) of GPU {gpu.index} are down. Run a field diagnostic."
    return None


def _under_stress(test: str, gpu: GpuState, load: Load) -> tuple[str, int, int, int, str] | None:
    """Return what the tests of level 3 find in a GPU that does not keep its speed.

    Error and words are DCGM's: 50 with severity 1 as in its own recording of level 3 (PER_GPU_JSON), 10 and 12 in
    dcgm_errors.h of 4.2.
    """
    if test in ("diagnostic", "targeted_stress", "targeted_power") and load.slowed:
        error, category, why = (10, 9, "thermal") if load.slowed == "thermal" else (12, 14, "power")
        return "Fail", category, error, 1, f"Detected clocks event due to {why} violation in GPU {gpu.index}."
    if test == "targeted_stress" and load.pace < _KEPT:
        text = f"Max stress level of {_STRESS * load.pace:.1f} did not reach desired stress level of {_STRESS:.1f}"
        return "Fail", 9, 50, 1, f"{text} for GPU {gpu.index}"
    return None
