"""nvbandwidth and fio: a whole matrix, a sum that is its own, and proof that the drive was read.

Shapes are those that nvbandwidth's json_output.cpp writes (v0.6 to v0.8), and fio 3.x's json+.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import GOOD, GPUS, SEEN, fio, gate_test, judge, nvbandwidth, wanted

PEERS = "device_to_device_memcpy_read_ce"
BOTH_WAYS = "device_to_device_bidirectional_memcpy_read_ce"


def bandwidth(document: dict[str, Any], *, status: int = 0, allow: tuple[str, ...] = (), **args: str) -> TestResult:
    test = replace(gate_test("nvbandwidth", **args), allow_skip=allow)
    return judge(replace(GOOD[1], test=test), json.dumps(document), exit_status=status)


def cases(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["nvbandwidth"]["testcases"]
    return found


def square(value: float = 388.0) -> list[list[str]]:
    return [["N/A" if i == j else f"{value}" for j in range(GPUS)] for i in range(GPUS)]


def peers(name: str, *matrices: list[list[str]]) -> dict[str, Any]:
    """`sum` is of the last matrix: a test case with several writes them all into one, and its statistics over."""
    total = sum(float(cell) for row in matrices[-1] for cell in row if cell != "N/A")
    rows = [row for matrix in matrices for row in matrix]
    case = {"name": name, "status": "Passed", "bandwidth_matrix": rows, "sum": total}
    return {"nvbandwidth": {"version": "v0.8", "testcases": [case]}}


def test_the_sum_is_that_of_the_cells() -> None:
    for said in (None, "", "N/A", 12.0, 440.8 * 1.01, float("inf"), 10**308):
        document = nvbandwidth()
        cases(document)[0]["sum"] = said
        assert bandwidth(document).verdict is Verdict.UNJUDGED, said
    document = nvbandwidth()
    cases(document)[0]["bandwidth_matrix"][0][3] = "5.51"  # a garbled cell
    assert bandwidth(document).verdict is Verdict.UNJUDGED
    document = nvbandwidth()
    cases(document)[0]["bandwidth_matrix"] = [["1e308"] * GPUS]
    cases(document)[0]["sum"] = 1e308
    assert bandwidth(document).verdict is Verdict.UNJUDGED


def test_peers_need_their_square() -> None:
    assert bandwidth(peers(PEERS, square()), testcases=PEERS).metrics[f"{PEERS}.min"] == 388.0
    one_row = peers(PEERS, [["388.0"] * GPUS])
    assert bandwidth(one_row, testcases=PEERS).verdict is Verdict.UNJUDGED
    for i in range(GPUS):
        for j in range(GPUS):
            matrix = square()
            matrix[i][j] = "N/A" if i != j else "388.0"
            assert bandwidth(peers(PEERS, matrix), testcases=PEERS).verdict is Verdict.UNJUDGED
    host = nvbandwidth()
    cases(host)[0]["bandwidth_matrix"] = square(55.1)
    assert bandwidth(host).verdict is Verdict.UNJUDGED, "a host copy is one row"


def test_both_ways_between_peers_is_three_squares() -> None:
    """One for each direction and their sum, under one another."""
    whole = peers(BOTH_WAYS, square(190.0), square(190.0), square(380.0))
    result = bandwidth(whole, testcases=BOTH_WAYS)
    assert (result.verdict, result.metrics[f"{BOTH_WAYS}.min"]) == (Verdict.PASS, 380.0), result.reasons
    for at in range(3 * GPUS):
        short = peers(BOTH_WAYS, square(190.0), square(190.0), square(380.0))
        del cases(short)[0]["bandwidth_matrix"][at]
        assert bandwidth(short, testcases=BOTH_WAYS).verdict is Verdict.UNJUDGED
    for direction in range(3):
        squares = [square(190.0), square(190.0), square(380.0)]
        squares[direction][2][5] = "0"
        assert bandwidth(peers(BOTH_WAYS, *squares), testcases=BOTH_WAYS).verdict is Verdict.UNJUDGED


def test_a_test_case_that_breaks_off_stands_twice() -> None:
    """It is listed as it was when it began and, since the status is looked up in the wrong place, once more."""
    document = nvbandwidth()
    cases(document).insert(0, {"name": cases(document)[0]["name"], "status": "Error"})
    assert bandwidth(document).verdict is Verdict.FAIL, "and the exit status is 0"
    document = nvbandwidth()
    cases(document).append(cases(document)[0])
    assert bandwidth(document).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    "status", ["Waived", "Running", "ERROR", "Not Found", "passed", "", None, 1, ["Passed"]], ids=str
)
def test_only_passed_is_a_pass(status: Any) -> None:
    document = nvbandwidth()
    cases(document)[1]["status"] = status
    assert bandwidth(document).verdict is Verdict.UNJUDGED


def test_an_error_within_a_test_case_or_of_another_counts() -> None:
    document = nvbandwidth()
    cases(document)[1]["error"] = "CUDA_ERROR_ECC_UNCORRECTABLE"
    assert bandwidth(document).verdict is Verdict.UNJUDGED
    document = nvbandwidth()
    cases(document).append({"name": "host_to_all_memcpy_ce", "status": "Error"})
    assert bandwidth(document).verdict is Verdict.UNJUDGED
    document = nvbandwidth()
    document["nvbandwidth"]["error"] = {"deep": []}
    assert bandwidth(document).verdict is Verdict.ERROR


def test_what_is_waived_needs_leave_and_something_must_run() -> None:
    document = nvbandwidth()
    first, second = (case["name"] for case in cases(document))
    cases(document)[0] = {"name": first, "status": "Waived"}
    assert bandwidth(document).verdict is Verdict.UNJUDGED
    assert bandwidth(document, allow=(first,)).verdict is Verdict.PASS
    cases(document)[1] = {"name": second, "status": "Waived"}
    assert bandwidth(document, allow=(first, second)).verdict is Verdict.UNJUDGED


def test_a_real_document_is_whole(samples: Path) -> None:
    """The capture is of one GPU and of v0.5: host copies hold together, nothing of peers does."""
    found = json.loads((samples / "nvbandwidth" / "dcgm_NVBandwidthTestsInputs_L18.json").read_text())
    names = [case["name"] for case in found["nvbandwidth"]["testcases"]]
    ran = {case["name"] for case in found["nvbandwidth"]["testcases"] if case["status"] == "Passed"}
    assert len(ran) > 10
    for name in names:
        test = replace(gate_test("nvbandwidth", testcases=name), versions=("0.5",))
        result = judge(replace(GOOD[1], test=test), json.dumps(found), gpus=1)
        assert (result.verdict is Verdict.PASS) is (name in ran), (name, result.reasons)


def drive(document: Any = None, *, before: str = "", stderr: str = "", status: int = 0) -> TestResult:
    text = before + json.dumps(fio() if document is None else document)
    return TOOLS["fio"].judge(GOOD[3].test, wanted(), SEEN, [CommandResult(status, text, stderr)])


def test_fio_that_warns_and_fio_that_complains() -> None:
    assert drive(before="fio: this platform does not support process shared mutexes\n").verdict is Verdict.PASS
    complaint = "fio: pid=12228, err=5/file:io_u.c:1876, func=io_u error, error=Input/output error\n"
    assert drive(before=complaint).verdict is Verdict.ERROR, "with continue_on_error the job's error stays 0"
    assert drive(stderr=complaint).verdict is Verdict.ERROR
    assert drive(status=1).verdict is Verdict.ERROR


@pytest.mark.parametrize("error", [5, -5, "0", None, True, False, 0.5, 10**308], ids=str)
def test_a_job_with_an_error_is_no_pass(error: Any) -> None:
    document = fio()
    document["jobs"][0]["error"] = error
    assert (drive(document).verdict is Verdict.PASS) is (error == "0")


@pytest.mark.parametrize(("errors", "verdict"), [(0, "pass"), (3, "fail"), (None, "unjudged"), ("x", "unjudged")])
def test_errors_that_were_skipped_count(errors: Any, verdict: str) -> None:
    document = fio()
    document["jobs"][0]["total_err"] = errors
    assert drive(document).verdict == verdict


@pytest.mark.parametrize(
    "changes",
    [
        {"bw_bytes": -6_500_000_000},
        {"bw_bytes": 65_000_000_000},
        {"io_bytes": 1},
        {"runtime": 10**300},
        {"io_bytes": "x"},
    ],
    ids=str,
)
def test_bytes_and_speed_must_fit(changes: dict[str, Any]) -> None:
    assert drive(fio(**changes)).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    "disks",
    [
        [], None, [{"name": "nvme0n1"}], [{"read_ios": 9}], [{"name": "nvme0n1", "read_ios": 0}],
        [{"name": "nvme0n1", "read_ios": "x"}], [{"name": "nvme0n1", "read_ios": 9}] * 2,
    ],
    ids=str,
)  # fmt: skip
def test_the_disk_itself_must_count_reads(disks: Any) -> None:
    """Else it was memory: fio's disk statistics come from the kernel, its bytes from itself."""
    assert drive(fio() | {"disk_util": disks}).verdict is Verdict.UNJUDGED


def test_prefixes_of_a_version_end_at_a_dot() -> None:
    document = fio() | {"fio version": "fio-33.1"}
    assert drive(document).verdict is Verdict.UNJUDGED
