"""nccl-tests (acceptance 4.1), text output: the peak bus bandwidth of the largest size, with nothing wrong.

"Avg bus bandwidth" averages all sizes and is not used. The text lists every rank, which `-J` does not without MPI, and
it does not dump the environment. Metric: busbw_peak in GB/s, of the largest size that was run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import Sheet, Tool, expected_gpus, killed, number
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed
from reconciler.model.units import parse_size

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
KNOWN = ("2",)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*\bdevice\s+(\d+)\s+\[", re.MULTILINE)
_VERSION = re.compile(r"^# nccl-tests version (\S+)", re.MULTILINE)
_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\S+)\s+(\w+)", re.MULTILINE)
_TROUBLE = re.compile(r"^(?:# error:.*|.*(?:NCCL failure|NCCL WARN|CUDA failure).*)$", re.MULTILINE)
# size count type redop root | time algbw busbw #wrong | time algbw busbw #wrong
_ROW = re.compile(
    r"^\s*(\d+)\s+\d+\s+[a-z]\w*\s+\w+\s+-?\d+\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*$"
)


def _size(test: GateTest, key: str, default: str) -> str:
    return str(test.args.get(key, default))


def _bytes(text: str) -> int | None:
    try:
        return parse_size(text if text.upper().endswith("B") else f"{text}iB") if not text.isdecimal() else int(text)
    except ValueError:
        return None


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    collective = test.args.get("collective", "all_reduce")
    gpus = desired.profile.inventory.gpus
    low, high = _size(test, "minBytes", "8G"), _size(test, "maxBytes", "16G")
    if collective not in COLLECTIVES:
        return f"collective {collective!r} is none of {', '.join(COLLECTIVES)}"
    if gpus is None:
        return "HardwareProfile.inventory.gpus is not declared"
    if _bytes(low) is None or _bytes(high) is None:
        return f"args.minBytes {low!r} or maxBytes {high!r} is not a size like 8G"
    return (
        (f"{collective}_perf", "-b", low, "-e", high, "-f", "2", "-g", str(gpus), "-n", "20", "-w", "5", "-c", "1"),
    )


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    sheet = Sheet()
    output = outputs[0]
    if killed(sheet, output):
        return sheet.result(test, outputs)
    text = output.stdout
    version = _VERSION.search(text)
    sheet.version = version[1] if version else ""
    sheet.check_version(test, KNOWN)
    if trouble := _TROUBLE.search(text + "\n" + output.stderr):
        sheet.error(f"NCCL reports: {trouble[0].strip()}")
    gpus = expected_gpus(sheet, desired)
    devices = {int(match[2]) for match in _RANK.finditer(text)}
    if gpus is not None and devices != set(range(gpus)):
        sheet.unjudged(f"ranks ran on {len(devices)} devices, {gpus} are declared")
    bounds = _BOUNDS.search(text)
    if bounds is None:
        sheet.error("the output breaks off: no 'Out of bounds values' line")
    elif (bounds[1], bounds[2]) != ("0", "OK"):
        sheet.fail(f"out of bounds values: {bounds[1]} {bounds[2]}")
    _judge_rows(sheet, test, text)
    if not sheet.reasons and output.exit_status != 0:
        sheet.error(f"nothing was wrong, and yet the exit status is {output.exit_status}")
    return sheet.result(test, outputs)


def _judge_rows(sheet: Sheet, test: GateTest, text: str) -> None:
    found = [match for line in text.splitlines() if (match := _ROW.match(line))]
    if not found:
        sheet.unjudged("no result row")
        return
    for row in found:
        for wrong in (row[5], row[9]):
            count = number(wrong)
            if count is None:
                sheet.unjudged(f"size {row[1]}: results were not checked (#wrong is {wrong})")
            elif count != 0:
                sheet.fail(f"size {row[1]}: {wrong} wrong values")
    largest = max(int(row[1]) for row in found)
    asked = _bytes(_size(test, "maxBytes", "16G"))
    if asked is not None and largest < asked:
        sheet.unjudged(f"the largest size that was run is {largest}, {asked} was asked for")
    speeds = [number(cell) for row in found if int(row[1]) == largest for cell in (row[4], row[8])]
    known = [speed for speed in speeds if speed is not None]
    if len(known) != len(speeds) or not known or max(known) <= 0:
        sheet.unjudged(f"size {largest}: bus bandwidth is not a number above zero")
    else:
        sheet.metrics["busbw_peak"] = max(known)


TOOL = Tool(_commands, _judge)
