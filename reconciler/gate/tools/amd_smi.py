"""Judge `amd-smi metric --json`: each AMD GPU answers, and had no error that its memory could not correct.

The document is a list until ROCm 6.4, and an object with gpu_data since ROCm 7. A value is a number, an object with a
unit, or "N/A". Metrics: gpus, uncorrectable (the sum), and, by GPU, the worst of them and
its spread, temperature_c of the hottest spot, power_w and pcie_width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import (
    ResultBuilder,
    Tool,
    count,
    expected_gpus,
    find_document,
    note_if_killed,
    number,
    rows,
)
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("24", "25", "26")
_VERSION = re.compile(r"^AMDSMI Tool: (\S{1,40}) \|", re.MULTILINE)
_CELLS: Mapping[str, tuple[str, str]] = {
    "temperature_c": ("temperature", "hotspot"),
    "power_w": ("power", "socket_power"),
    "pcie_width": ("pcie", "width"),
}
_ERRORS = ("ecc", "total_uncorrectable_count")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (("env", "LC_ALL=C", "amd-smi", "version"), ("env", "LC_ALL=C", "amd-smi", "metric", "--json"))


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    said, output = outputs
    if note_if_killed(builder, said) or note_if_killed(builder, output):
        return builder.result(test, outputs)
    versions = _VERSION.findall(said.stdout)
    builder.version = versions[0].partition("+")[0] if len(versions) == 1 else ""
    builder.check_version(test, KNOWN)
    gpus, found = expected_gpus(builder, desired), _gpus(output.stdout)
    if said.exit_status != 0 or output.exit_status != 0 or found is None:
        builder.error(f"exit status {said.exit_status} and {output.exit_status}, or no document of GPUs")
    elif gpus is not None:
        _judge_gpus(builder, found, gpus)
    return builder.result(test, outputs)


def _gpus(text: str) -> list[Mapping[str, Any]] | None:
    text = text.strip()
    document = find_document(f'{{"gpu_data": {text}}}' if text.startswith("[") else text)
    listed = None if document is None else document.get("gpu_data")
    return rows(listed) if isinstance(listed, list) and len(rows(listed)) == len(listed) else None


def _judge_gpus(builder: ResultBuilder, found: Sequence[Mapping[str, Any]], gpus: int) -> None:
    numbers = [count(gpu.get("gpu")) for gpu in found]
    if sorted(at for at in numbers if at is not None) != list(range(gpus)) or len(numbers) != gpus:
        builder.unjudged(f"{len(numbers)} GPUs answer, {gpus} are declared")
        return
    errors = [_cell(gpu, *_ERRORS) for gpu in found]
    if any(value is None for value in errors):
        builder.unjudged("a GPU does not count its uncorrectable errors")
    elif bad := [at for at, value in zip(numbers, errors, strict=True) if value]:
        builder.fail(f"GPU {bad[0]} has uncorrectable errors of memory")
    for name, cell in _CELLS.items():
        values = {str(at): _cell(gpu, *cell) for at, gpu in zip(numbers, found, strict=True)}
        known = {at: value for at, value in values.items() if value is not None}
        if len(known) < len(values):
            builder.unjudged(f"a GPU gives no {name}")
        else:
            builder.parts(name, known, worst=min if name == "pcie_width" else max)
    builder.metrics["gpus"] = float(len(found))
    builder.metrics["uncorrectable"] = float(sum(value or 0 for value in errors))


def _cell(gpu: Mapping[str, Any], section: str, name: str) -> float | None:
    part = gpu.get(section)
    cell = part.get(name) if isinstance(part, Mapping) else None
    value = number(cell.get("value") if isinstance(cell, Mapping) else cell)
    return None if value is None or value < 0 else value


TOOL = Tool(_commands, _judge)
