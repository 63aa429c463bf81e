"""Judge `nvbandwidth -j` (acceptance 4.2): each requested test case must pass with a complete matrix of numbers.

The metrics are <testcase>.min, .max and .average over the cells that must have a number, in GB/s. The document's own
`min` includes zeros for cells that are N/A, so it is not used; its `sum` must be that of the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.evidence import requested_cases
from reconciler.gate.tools.common import (
    ResultBuilder,
    Tool,
    expected_gpus,
    find_document,
    note_if_killed,
    number,
    rows,
    shown,
)
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("0.6", "0.7", "0.8")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    asked = requested_cases(test)
    return (("nvbandwidth", "-j", "-t", *asked),) if asked else "no test case is named in args.testcases"


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    output = outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    root = (find_document(output.stdout) or {}).get("nvbandwidth")
    if not isinstance(root, Mapping):
        builder.error(f"no nvbandwidth document in the output (exit status {output.exit_status})")
        return builder.result(test, outputs)
    version = root.get("version") or root.get("git_version")
    builder.version = version if isinstance(version, str) else ""
    builder.check_version(test, KNOWN)
    if root.get("error"):
        builder.error(f"nvbandwidth could not run: {shown(root['error'])}")
    gpus = expected_gpus(builder, desired)
    cases = rows(root.get("testcases"))
    if gpus is not None:
        for name in requested_cases(test):
            _judge_case(builder, test, name, [case for case in cases if case.get("name") == name], gpus)
        for case in cases:
            if case.get("name") not in requested_cases(test) and case.get("status") not in ("Passed", "Waived"):
                builder.unjudged(f"{shown(case.get('name'))}, which was not requested: {shown(case.get('status'))}")
        if not builder.reasons and not builder.metrics:
            builder.unjudged("every test case was waived: nothing was measured")
    if not builder.reasons and output.exit_status != 0:
        builder.error(f"every test case passed, but the exit status is {output.exit_status}")
    return builder.result(test, outputs)


def _judge_case(
    builder: ResultBuilder, test: GateTest, name: str, found: Sequence[Mapping[str, Any]], gpus: int
) -> None:
    """Judge one test case. The document lists one that was aborted twice: when it began, and as an error."""
    statuses = [shown(case.get("status")) for case in found]
    if "Error" in statuses:
        builder.fail(f"{name}: Error")
    elif len(found) != 1:
        builder.unjudged(f"{name} is in the document {len(found)} times, not once")
    elif statuses == ["Waived"] and name in test.allow_skip:
        return
    elif statuses != ["Passed"] or found[0].get("error"):
        builder.unjudged(f"{name}: {statuses[0]} {shown(found[0].get('error', ''))}".strip())
    else:
        _judge_matrix(builder, name, found[0], gpus)


def _judge_matrix(builder: ResultBuilder, name: str, case: Mapping[str, Any], gpus: int) -> None:
    cells = _cells(case.get("bandwidth_matrix"), gpus, peers=name.startswith("device_to_device"))
    if isinstance(cells, str):
        builder.unjudged(f"{name}: {cells}")
        return
    total, said = sum(cells), number(case.get("sum"))
    if said is None or abs(said - total) > 0.001 * total:  # cells have six digits
        builder.unjudged(f"{name}: the cells add up to {total:g}, the document's sum is {shown(case.get('sum'))}")
        return
    builder.metrics[f"{name}.min"] = min(cells)
    builder.metrics[f"{name}.max"] = max(cells)
    builder.metrics[f"{name}.average"] = total / len(cells)


def _cells(matrix: Any, gpus: int, *, peers: bool) -> list[float] | str:
    """Return all bandwidths of a matrix in GB/s; a sentence when it is not complete.

    Copies to and from the host give one row of N cells, copies between peers N x N cells without the diagonal.
    Bidirectional copies between peers give three such squares below one another, one for each direction and their sum:
    each must be complete, and the last one is returned, as the document's `sum` is of the last.
    """
    if not isinstance(matrix, list) or not all(isinstance(row, list) for row in matrix):
        return "no matrix"
    heights = (gpus, 3 * gpus) if peers else (1,)
    if len(matrix) not in heights or any(len(row) != gpus for row in matrix):
        return f"a matrix of {len(matrix)} x {len(matrix[0]) if matrix else 0} cells for {gpus} GPUs"
    found: list[float] = []
    for i, row in enumerate(matrix):
        if i % gpus == 0:
            found = []
        for j, cell in enumerate(row):
            value = number(cell)
            if peers and i % gpus == j:
                if value is not None:
                    return f"cell {i},{j} is {shown(cell)}, but a GPU is not its own peer"
            elif value is None or value <= 0:
                return f"cell {i},{j} is {shown(cell)}"
            else:
                found.append(value)
    return found or "one GPU has no peer"


TOOL = Tool(_commands, _judge)
