"""`nvbandwidth -j` (acceptance 4.2): each asked test case passed, over a whole matrix of numbers.

Metrics: <testcase>.min, .max and .average over the cells that must hold a number, in GB/s. The document's own `min`
includes zeros for cells that are N/A, so it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import Sheet, Tool, expected_gpus, find_document, killed, number, rows
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("0.6", "0.7", "0.8")
DEFAULT = "host_to_device_memcpy_ce,device_to_host_memcpy_ce"


def _asked(test: GateTest) -> list[str]:
    return [name.strip() for name in str(test.args.get("testcases", DEFAULT)).split(",") if name.strip()]


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    asked = _asked(test)
    return (("nvbandwidth", "-j", "-t", *asked),) if asked else "no test case is named in args.testcases"


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    sheet = Sheet()
    output = outputs[0]
    if killed(sheet, output):
        return sheet.result(test, outputs)
    root = (find_document(output.stdout) or {}).get("nvbandwidth")
    if not isinstance(root, Mapping):
        sheet.error(f"no nvbandwidth document in the output (exit status {output.exit_status})")
        return sheet.result(test, outputs)
    version = root.get("version") or root.get("git_version")
    sheet.version = version if isinstance(version, str) else ""
    sheet.check_version(test, KNOWN)
    if root.get("error"):
        sheet.error(f"nvbandwidth could not run: {root['error']}")
    gpus = expected_gpus(sheet, desired)
    cases = {str(case.get("name")): case for case in rows(root.get("testcases"))}
    for name in _asked(test) if gpus is not None else ():
        _judge_case(sheet, test, name, cases.get(name), gpus or 0)
    if not sheet.reasons and output.exit_status != 0:
        sheet.error(f"every test case passed, and yet the exit status is {output.exit_status}")
    return sheet.result(test, outputs)


def _judge_case(sheet: Sheet, test: GateTest, name: str, case: Mapping[str, Any] | None, gpus: int) -> None:
    if case is None:
        sheet.unjudged(f"{name} is not in the document")
        return
    status = str(case.get("status"))
    if status != "Passed":
        if status == "Waived" and name in test.allow_skip:
            return
        (sheet.fail if status == "Error" else sheet.unjudged)(f"{name}: {status}")
        return
    matrix = case.get("bandwidth_matrix")
    cells = _cells(matrix, gpus)
    if isinstance(cells, str):
        sheet.unjudged(f"{name}: {cells}")
        return
    sheet.metrics[f"{name}.min"] = min(cells)
    sheet.metrics[f"{name}.max"] = max(cells)
    sheet.metrics[f"{name}.average"] = sum(cells) / len(cells)


def _cells(matrix: Any, gpus: int) -> list[float] | str:
    """All bandwidths: one row of N for host copies, N x N without its diagonal for peers; a sentence if not whole."""
    if not isinstance(matrix, list) or not all(isinstance(row, list) for row in matrix):
        return "no matrix"
    if len(matrix) not in (1, gpus) or any(len(row) != gpus for row in matrix):
        return f"a matrix of {len(matrix)} x {len(matrix[0]) if matrix else 0} cells for {gpus} GPUs"
    peers = len(matrix) == gpus and gpus > 1
    found = []
    for i, row in enumerate(matrix):
        for j, cell in enumerate(row):
            if peers and i == j:
                continue
            value = number(cell)
            if value is None or value <= 0:
                return f"cell {i},{j} is {cell!r}"
            found.append(value)
    return found


TOOL = Tool(_commands, _judge)
