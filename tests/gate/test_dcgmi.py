"""DCGM's documents, 3.3 and 4.x: their verdicts must agree, and each declared GPU must show its pass in each test.

The shapes are those that dcgmi/Diag.cpp of NVIDIA/DCGM writes (v3.3.9, v4.0.0 to v4.6.0) and that its schema describes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.gate import TestResult, Verdict
from tests.gate.cases import GOOD, GPUS, dcgm, gate_test, judge

CASE = GOOD[0]
ISOLATE = {"warning": "GPU 5 has uncontained errors.", "error_id": 81, "error_category": 5, "error_severity": 2}
ALLOC = {"warning": "Couldn't allocate 75% of memory.", "error_id": 36, "error_category": 2, "error_severity": 4}
CONFIG = {"warning": "Persistence mode is off.", "error_id": 29, "error_category": 8, "error_severity": 5}


def run(document: dict[str, Any], *, status: int = 0, allow: tuple[str, ...] = (), **inventory: Any) -> TestResult:
    case = replace(CASE, test=replace(gate_test("dcgmi-diag", level=2), allow_skip=allow))
    return judge(case, json.dumps(document), exit_status=status, **inventory)


def memory(document: dict[str, Any]) -> dict[str, Any]:
    """The memory test of a document of 4.x."""
    test: dict[str, Any] = document["DCGM Diagnostic"]["test_categories"][1]["tests"][0]
    assert test["name"] == "memory"
    return test


def older(gpus: int = GPUS) -> dict[str, Any]:
    """3.3.9: one software test each, whose row names no GPU when it passes; GPUs by `gpu_id`, a string."""

    def test(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"name": name, "results": rows}

    of_gpus = [{"gpu_id": str(index), "status": "Pass"} for index in range(gpus)]
    software = (
        "Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode",
        "Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom",
    )  # fmt: skip
    return {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {"category": "Deployment", "tests": [test(name, [{"status": "Pass"}]) for name in software]},
                {"category": "Integration", "tests": [test("PCIe", of_gpus)]},
                {"category": "Hardware", "tests": [test("GPU Memory", of_gpus)]},
            ]
        },
        "Driver Version Detected": "535.161.08",
        "GPU Device IDs": ["2330"] * gpus,
        "GPU Device Serials": {str(index): f"165{index}" for index in range(gpus)},
        "version": "3.3.9",
    }


@pytest.mark.parametrize(
    ("warnings", "verdict"),
    [
        ([ISOLATE], Verdict.FAIL),
        ([ISOLATE | {"error_severity": 6}], Verdict.FAIL),
        ([CONFIG, ISOLATE], Verdict.FAIL),
        ([CONFIG], Verdict.UNJUDGED),
        ([ALLOC], Verdict.UNJUDGED),  # DCGM issue 284: the memory test passes where it could not allocate
        ([ISOLATE | {"error_severity": 1}], Verdict.UNJUDGED),
        ([{"warning": "GPU 5 has pending row remappings."}], Verdict.UNJUDGED),
        (["a text alone, as 3.0 prints it"], Verdict.UNJUDGED),
        ("a text alone, as 2.x prints it", Verdict.UNJUDGED),
        ({"warning": "no list"}, Verdict.UNJUDGED),
    ],
)
def test_a_pass_that_warns_is_no_pass(warnings: Any, verdict: Verdict) -> None:
    document = dcgm()
    memory(document)["results"][5]["warnings"] = warnings
    result = run(document)
    assert result.verdict is verdict
    assert any("memory: passed (GPU 5) with a warning" in reason for reason in result.reasons), result.reasons
    summed = dcgm()
    memory(summed)["test_summary"]["warnings"] = warnings
    assert run(summed).verdict is verdict, "the summary has the errors of the system, and since 4.5 all errors"
    document = dcgm()
    memory(document)["results"][5]["warnings"] = []
    assert run(document).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("summary", "verdict"),
    [
        ({"status": "Fail"}, Verdict.UNJUDGED),
        ({"status": "Fail", "warnings": [ISOLATE]}, Verdict.FAIL),
        ({"status": "Fail", "warnings": [{"warning": "no severity"}]}, Verdict.FAIL),
        ({"status": "Fail", "warnings": [CONFIG]}, Verdict.UNJUDGED),
        ({"status": "Warn"}, Verdict.UNJUDGED),
        ({"status": "Skip"}, Verdict.UNJUDGED),
        ({"status": "Not Run"}, Verdict.UNJUDGED),
        ({"status": ""}, Verdict.UNJUDGED),
        ({}, Verdict.UNJUDGED),
        ("Pass", Verdict.UNJUDGED),
        (None, Verdict.UNJUDGED),
    ],
)
def test_a_summary_must_agree_with_its_rows(summary: Any, verdict: Verdict) -> None:
    document = dcgm()
    memory(document)["test_summary"] = summary
    result = run(document)
    assert result.verdict is verdict
    assert any("memory" in reason for reason in result.reasons)


def test_without_a_summary_the_rows_decide() -> None:
    document = dcgm()
    del memory(document)["test_summary"]  # a real payload of 4.x lacks it
    assert run(document).verdict is Verdict.PASS


@pytest.mark.parametrize("at", ["document", "root", "category", "test"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Overall Result", "Fail"), ("status", "Fail"), ("status", None), ("runtime_error", "Unable to run"),
        ("Warning", "Detected unsupported driver"), ("warnings", ["x"]), ("error", {"id": 1}),
    ],
)  # fmt: skip
def test_a_verdict_above_the_rows_counts(at: str, key: str, value: Any) -> None:
    document = dcgm()
    root = document["DCGM Diagnostic"]
    places = {
        "document": document, "root": root, "category": root["test_categories"][0], "test": memory(document),
    }  # fmt: skip
    places[at][key] = value
    assert run(document).verdict in (Verdict.UNJUDGED, Verdict.ERROR)


def test_each_software_test_of_3_3_counts() -> None:
    assert run(older()).verdict is Verdict.PASS, run(older()).reasons
    assert run(older()).tool_version == "3.3.9"
    assert run(older()).metrics == {"software.gpus": 8.0, "memory.gpus": 8.0, "pcie.gpus": 8.0}
    for at in range(9):
        tests = (document := older())["DCGM GPU Diagnostic"]["test_categories"][0]["tests"]
        name = tests[at]["name"]
        tests[at]["results"][0]["status"] = "Skip"
        assert run(document).verdict is Verdict.UNJUDGED, name
        tests[at]["results"][0] |= {
            "status": "Fail",
            "gpu_id": 3,
            "warnings": [{"warnings": "no", "error_severity": 2}],
        }
        assert run(document, status=226).verdict is Verdict.FAIL, name
        del tests[at]
        assert run(document).verdict is Verdict.UNJUDGED, name


@pytest.mark.parametrize(
    "changes",
    [
        {"GPU Device IDs": None}, {"GPU Device IDs": ["2330"] * 7}, {"GPU Device IDs": ["2330"] * 9},
        {"GPU Device IDs": [None, *["2330"] * 7]}, {"version": None}, {"version": "3.1.8"},
    ],
    ids=str,
)  # fmt: skip
def test_software_tests_of_3_3_speak_for_the_gpus_that_it_lists(changes: dict[str, Any]) -> None:
    assert run(older() | changes).verdict is not Verdict.PASS


def test_a_real_document_of_3_x(samples: Path) -> None:
    """The capture is of one T4, and lacks the version and devices that dcgmi prints beside it since 3.3."""
    found = json.loads((samples / "dcgmi-diag" / "vc_DCGMIDiag_r2_results.json").read_text())
    assert run(found, gpus=1).verdict is Verdict.UNJUDGED
    whole = found | {"version": "3.3.9", "GPU Device IDs": ["1eb8"]}
    assert run(whole, gpus=1).verdict is Verdict.PASS, run(whole, gpus=1).reasons
    assert run(whole, gpus=2).verdict is not Verdict.PASS


@pytest.mark.parametrize("name", ["software", "memory", "pcie"])
@pytest.mark.parametrize("gpu", range(GPUS))
def test_each_gpu_must_pass_each_test(name: str, gpu: int) -> None:
    """Invariant 18, for every declared part one by one."""
    for spoil in (None, "Skip", "Not Run", "NotRun", "", None, 1, "Passed", ["Pass"]):
        document = dcgm()
        for category in document["DCGM Diagnostic"]["test_categories"]:
            for test in category["tests"]:
                if test["name"] == name:
                    test["results"][gpu]["status"] = spoil
        assert run(document).verdict is not Verdict.PASS, spoil


@pytest.mark.parametrize(
    "changes",
    [
        {"entity_id": 4}, {"entity_id": True}, {"entity_id": "5"}, {"entity_id": 5.0}, {"entity_id": 10**308},
        {"entity_group": "NvSwitch"}, {"entity_group": None}, {"entity_group_id": 3}, {"entity_id": -5},
    ],
)  # fmt: skip
def test_a_row_that_is_not_of_its_gpu_is_no_evidence(changes: dict[str, Any]) -> None:
    document = dcgm()
    memory(document)["results"][5] |= changes
    assert run(document).verdict is not Verdict.PASS


def test_nothing_stands_twice() -> None:
    document = dcgm()
    memory(document)["results"].append(memory(document)["results"][5])
    assert run(document).verdict is Verdict.UNJUDGED
    document = dcgm()
    document["DCGM Diagnostic"]["test_categories"].append(document["DCGM Diagnostic"]["test_categories"][1])
    assert run(document).verdict is Verdict.UNJUDGED
    twice = json.dumps(dcgm()) + "\n" + json.dumps(dcgm("Fail"))
    assert judge(CASE, twice).verdict is Verdict.ERROR
    said = json.dumps(dcgm()).replace('"status": "Pass"', '"status": "Fail", "status": "Pass"', 1)
    assert judge(CASE, said).verdict is Verdict.ERROR, "which of the two a reader takes is chance"


def test_a_skip_needs_leave_and_something_must_run() -> None:
    document = dcgm()
    memory(document)["results"] = [row | {"status": "Skip"} for row in memory(document)["results"]]
    memory(document)["test_summary"] = {"status": "Skip"}
    assert run(document).verdict is Verdict.UNJUDGED
    allowed = run(document, allow=("memory",))
    assert allowed.verdict is Verdict.PASS, allowed.reasons
    assert "memory.gpus" not in allowed.metrics
    assert run(dcgm("Skip"), allow=("software", "memory", "pcie")).verdict is Verdict.UNJUDGED
    document = older()
    document["DCGM GPU Diagnostic"]["test_categories"][0]["tests"][7]["results"][0]["status"] = "Skip"
    assert run(document).verdict is Verdict.UNJUDGED
    assert run(document, allow=("graphics_processes",)).verdict is Verdict.PASS
