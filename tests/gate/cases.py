"""What healthy nodes print, whole: the documents that the tests of the judges take apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Desired, DesiredInventory, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import NvmeHealth, Observed
from tests import builders as b

GPUS = 8


def wanted(**inventory: Any) -> Desired:
    return b.node(profile=b.profile(inventory=DesiredInventory(**({"gpus": GPUS, "drives": 1} | inventory))))


def gate_test(tool: str, **args: Any) -> GateTest:
    return GateTest(tool, tool, args, (), 600.0)


def dcgm(status: str = "Pass", gpus: int = GPUS, version: str = "4.2.3") -> dict[str, Any]:
    def test(name: str) -> dict[str, Any]:
        rows = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": i, "status": status} for i in range(gpus)]
        return {"name": name, "results": rows, "test_summary": {"status": status}}

    return {
        "DCGM Diagnostic": {
            "test_categories": [
                {"category": "Deployment", "tests": [test("software")]},
                {"category": "Hardware", "tests": [test("memory")]},
                {"category": "Integration", "tests": [test("pcie")]},
            ]
        },
        "metadata": {"version": version},
    }


def nvbandwidth(cell: str = "55.1", gpus: int = GPUS) -> dict[str, Any]:
    return {
        "nvbandwidth": {
            "version": "v0.7",
            "testcases": [
                {
                    "name": name, "status": "Passed", "bandwidth_matrix": [[cell] * gpus],
                    "sum": float(cell) * gpus, "min": 0.0, "max": 1.0, "average": 1.0,
                }
                for name in ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
            ],
        }
    }  # fmt: skip


COLUMNS = "     time   algbw   busbw  #wrong"
TABLE = (
    f"#\n#{' ' * 62}out-of-place{' ' * 23}in-place          \n"
    f"#       size         count      type   redop    root{COLUMNS}{COLUMNS} \n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)\n"
)
NCCL_ROWS = ((8 * 2**30, "480.10", "0", "479.62", "0"), (16 * 2**30, "482.00", "0", "481.52", "0"))


def nccl(
    rows: Sequence[tuple[int, str, str, str, str]] = NCCL_ROWS,
    *,
    gpus: int = GPUS,
    collective: str = "all_reduce",
    redop: str = "sum",
    own_version: bool = True,
    library: str = "",
) -> str:
    """What one process prints. `rows`: size, then busbw and #wrong out of place and in place.

    `own_version`: of 2.17.6; else of 2.13 to 2.16.6, which name neither their version nor their beginning and end.
    `library`: NCCL's own version, which it prints where NCCL_DEBUG is VERSION or WARN.
    """
    begin = (
        "# nccl-tests version 2.17.6 nccl-headers=22602 nccl-library=22602\n"
        f"# Collective test starting: {collective}_perf\n"
    )
    speeds = [float(cell) for row in rows for cell in (row[1], row[3]) if cell[:1].isdigit()]
    wrong = sum(cell not in ("0", "N/A") for row in rows for cell in (row[2], row[4]))
    lines = [
        f"# nThread 1 nGpus {gpus} minBytes {rows[0][0]} maxBytes {rows[-1][0]} step: 2(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {i:2d} Group  0 Pid  27435 on node device {i:2d} [0000:{i}c:00] NVIDIA H100 80GB HBM3"
            for i in range(gpus)
        ),
        *([f"NCCL version {library}"] if library else []),
    ]
    table = "".join(
        f"{size:12d}  {size // 4:12d}     float  {redop:>6}      -1  31310.9  274.34  {out:>6}  {bad:>6}"
        f"  31342.3  274.07  {into:>6}  {bad_in:>6}\n"
        for size, out, bad, into, bad_in in rows
    )
    end = (
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {sum(speeds) / max(len(speeds), 1):g} \n#\n"
    )
    closing = f"# Collective test concluded: {collective}_perf\n#\n\n" if own_version else "\n"
    return (begin if own_version else "") + "\n".join(lines) + "\n" + TABLE + table + end + closing


def fio(**changes: Any) -> dict[str, Any]:
    read = {"io_bytes": 65_000_000_000, "bw_bytes": 6_500_000_000, "runtime": 10000} | changes
    return {
        "fio version": "fio-3.33",
        "jobs": [{"jobname": "D1", "error": 0, "read": read}],
        "disk_util": [{"name": "nvme0n1", "read_ios": 61987, "write_ios": 0}],
    }


DRIVE = NvmeHealth("nvme0n1", "D1", "PM9A3", 0, 0, 3, 100)
SEEN = b.observed(host=b.facts(nvme=(DRIVE,), gpus=tuple(b.gpu(i) for i in range(GPUS))))


@dataclass(frozen=True)
class Case:
    tool: str
    test: GateTest
    text: str


GOOD = [
    Case("dcgmi-diag", gate_test("dcgmi-diag", level=2), json.dumps(dcgm())),
    Case("nvbandwidth", gate_test("nvbandwidth"), json.dumps(nvbandwidth())),
    Case("nccl-tests", gate_test("nccl-tests"), nccl()),
    Case("fio", gate_test("fio"), json.dumps(fio())),
]
RANDOM_READS = Case(
    "fio",
    gate_test("fio", random=True),
    json.dumps(fio(bw_bytes=4_096_000_000, io_bytes=40_960_000_000, iops=1_000_000.0)),
)


def judge(
    case: Case, text: str | None = None, *, exit_status: int = 0, seen: Observed = SEEN, **inventory: Any
) -> TestResult:
    output = CommandResult(exit_status, case.text if text is None else text)
    return TOOLS[case.tool].judge(case.test, wanted(**inventory), seen, [output])
