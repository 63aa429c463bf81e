"""Judge the HPC Challenge suite: HPL and STREAM ran in the size that was asked for, and every residual check passed.

Metrics: hpl_gflops; stream_triad_gbps, of the slowest process while all run; and stream_single_triad_gbps. All of it is
in hpccoutf.txt, which is printed at the end. STREAM depends on how the BIOS divides the processors (NPS, SNC), so the
number of NUMA nodes ends the version of the tool, as in 1.5.0-numa8: nodes that are divided otherwise are no peers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("1.4", "1.5")
METRICS = {"hpl_gflops": "HPL_Tflops", "stream_triad_gbps": "StarSTREAM_Triad",
           "stream_single_triad_gbps": "SingleSTREAM_Triad"}  # fmt: skip
_RUN = (
    '(set -- /sys/devices/system/node/node[0-9]*; [ ! -d "$1" ] || echo "# NUMA nodes: $#"); '
    'printf %s "$2" >hpccinf.txt; if [ "$1" = 1 ]; then hpcc; else '
    'OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np "$1" hpcc; fi; r=$?; '
    "cat hpccoutf.txt; exit $r"
)
_VERSION = re.compile(r"^This is the DARPA/DOE HPC Challenge Benchmark version (\S{1,20}) ", re.MULTILINE)
_NUMA = re.compile(r"^# NUMA nodes: ([0-9]{1,4})$", re.MULTILINE)
_PAIR = re.compile(r"^([A-Za-z][A-Za-z0-9_]{0,60})=(\S{1,40})$", re.MULTILINE)
_BAD = re.compile(
    r"^.*(?:\bFAILED\b|(?<!\S)[1-9][0-9]* (?:tests )?completed and failed|\(failed\)|Node\(s\) with error [1-9]).*$",
    re.MULTILINE,
)
_RESIDUAL = re.compile(r"^\|\|Ax-b\|\|_oo/.* \.{6} PASSED$", re.MULTILINE)
_VALID = re.compile(r"^Solution Validates: avg error less than ", re.MULTILINE)
_END = "\nEnd of HPC Challenge tests.\n"


def _asked(test: GateTest) -> tuple[int, int, int]:
    """Return the order of the matrix, and the rows and columns of the grid of processes."""
    return int(test.args.get("order", 20_000)), int(test.args.get("rows", 1)), int(test.args.get("columns", 1))


def input_file(order: int, rows: int, columns: int) -> str:
    """Return hpccinf.txt: one problem with blocks of 80, the layout of the example that hpcc comes with."""
    lines = (
        "HPLinpack benchmark input file", "Innovative Computing Laboratory, University of Tennessee", "HPL.out", "8",
        "1", str(order), "1", "80", "0", "1", str(rows), str(columns), "16.0", "1", "2", "1", "4", "1", "2", "1", "1",
        "1", "1", "1", "1", "2", "64", "0", "0", "1", "8", "#", "0", "1200", "0", "40",
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    order, rows, columns = _asked(test)
    return (in_scratch(_RUN, str(rows * columns), input_file(order, rows, columns)),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    text = output.stdout
    versions = _VERSION.findall(text)
    builder.version = versions[0] if len(versions) == 1 else ""
    if builder.version and len(divided := _NUMA.findall(text)) == 1:
        builder.version += f"-numa{divided[0]}"
    builder.check_version(test, KNOWN)
    if bad := _BAD.search(text):
        builder.fail(bad[0].strip())
    if output.exit_status != 0:
        builder.error(f"exit status {output.exit_status}")
        return builder.result(test, outputs)
    pairs = _PAIR.findall(text)
    cells = dict(pairs)
    if text.count(_END) != 1 or not text.endswith("#\n") or len(cells) != len(pairs):
        builder.error("the output breaks off, or holds more than one run")
        return builder.result(test, outputs)
    order, rows, columns = _asked(test)
    said = [count(cells.get(name)) for name in ("HPL_N", "HPL_nprow", "HPL_npcol", "CommWorldProcs")]
    if said != [order, rows, columns, rows * columns]:
        builder.unjudged(f"HPL_N, nprow, npcol and CommWorldProcs are {said}, not what was requested")
    if cells.get("Success") != "1" or len(_RESIDUAL.findall(text)) != 1 or len(_VALID.findall(text)) != 2:
        builder.unjudged("not every result of HPL and STREAM was checked")
    if cells.get("MPIRandomAccess_Errors") != "0":
        builder.unjudged("MPIRandomAccess does not say that it found no error")
    for metric, name in METRICS.items():
        value = number(cells.get(name))
        if value is None or value <= 0:
            builder.unjudged(f"{name} is not a number above zero")
        else:
            builder.metrics[metric] = value * 1000 if metric == "hpl_gflops" else value
    return builder.result(test, outputs)


TOOL = Tool(_commands, _judge)
