"""mlxlink, dcgmproftester, amd-smi and rvs: what their judges say of runs in which something was wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted
from tests.gate.mutations import FOLDER

LINK = (FOLDER / "mlxlink.txt").read_text()
# As mlxlink printed of the PCIe side of a ConnectX-6 (a public note on NICs of AMD servers): lanes, apart by commas.
EYE = """EYE Opening Info (PCIe)
-----------------------
Physical Grade                  :  33626, 35074, 32382, 35680, 27787, 31053, 30168, 32200, 35607, 36040, 32870, 33005
Height Eye Opening [mV]         :    158,   167,   151,   163,   127,   147,   144,   154,   162,   166,   155,   154
"""


def link(*texts: str, **args: Any) -> TestResult:
    rails = ",".join(f"mlx5_{at}" for at in range(len(texts)))
    outputs = [CommandResult(0, text) for text in texts]
    return TOOLS["mlxlink"].judge(gate_test("mlxlink", rails=rails, **args), wanted(), SEEN, outputs)


def test_the_worst_rail_counts() -> None:
    worse = LINK.replace("Raw Physical BER                   : 15E-255", "Raw Physical BER                   : 2E-9")
    result = link(LINK, worse.replace(": 25074.8", ": 12.5"))
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert (result.metrics["raw_ber"], result.metrics["raw_ber.mlx5_1"], result.metrics["minutes"]) == (
        2e-9,
        2e-9,
        12.5,
    )
    assert result.tool_version == "4.30.1-8"


def interval(minutes: str, downs: int = 0, status: int = 0, error: str = "") -> TestResult:
    text = LINK.replace(": 25074.8", f": {minutes}").replace(
        "Link Down Counter                  : 0", f"Link Down Counter : {downs}"
    )
    outputs = [CommandResult(status, "", error), CommandResult(0, text)]
    return TOOLS["mlxlink"].judge(gate_test("mlxlink", rails="mlx5_0", seconds=600), wanted(), SEEN, outputs)


@pytest.mark.parametrize(
    ("result", "verdict", "reason"),
    [
        (interval("10.1"), Verdict.PASS, ""),
        (interval("25074.8"), Verdict.UNJUDGED, "of 25074.8 minutes, not of the 10 asked for"),
        (interval("3.2"), Verdict.UNJUDGED, "of 3.2 minutes"),  # cleared by somebody else, or lost: nobody counts it
        (interval("3.2", downs=1), Verdict.FAIL, "mlx5_0: the link was lost in the interval"),
        (interval("9.9", downs=1), Verdict.FAIL, "mlx5_0: the link was lost in the interval"),  # in its first seconds
        (interval("25074.8", downs=1), Verdict.UNJUDGED, "of 25074.8 minutes"),  # that was before the interval
        (interval("10.1", status=71, error="-E- Unknown flag"), Verdict.ERROR, "can't be cleared: -E- Unknown flag"),
        (interval("10.1", status=70), Verdict.ERROR, "args.load ended before the interval was over"),
    ],
)  # fmt: skip
def test_errors_over_an_interval_are_those_of_the_interval(result: TestResult, verdict: Verdict, reason: str) -> None:
    assert result.verdict is verdict, result.reasons
    assert reason in "".join(result.reasons)


def test_an_interval_begins_with_counters_that_are_cleared_and_has_its_load() -> None:
    test = gate_test("mlxlink", rails="mlx5_0, mlx5_1", seconds=600, load="ib_traffic")
    commands = TOOLS["mlxlink"].commands(test, wanted(), SEEN)
    assert not isinstance(commands, str)
    assert commands[0][-4:] == ("600", "ib_traffic", "mlx5_0", "mlx5_1")
    assert [argv[4] for argv in commands[1:]] == ["mlx5_0", "mlx5_1"]


def test_the_eye_of_the_worst_lane_counts_where_it_is_asked_for() -> None:
    assert link(LINK + EYE, eye=True).metrics["eye_grade"] == 27787
    assert link(LINK, eye=True).verdict is Verdict.UNJUDGED
    assert link(LINK + EYE.replace("27787", "N/A"), eye=True).verdict is Verdict.UNJUDGED
    newer = "\nEYE Opening Info\n----------------\nInitial FOM  : 145,140,145,144\nLast FOM     : 134,141,138,142\n"
    assert link(LINK + newer, eye=True).metrics["eye_grade"] == 134


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("State                              : Active", "State                              : Polling", Verdict.FAIL),
        ("No issue was observed", "Bad signal integrity", Verdict.FAIL),
        ("State                              : Active", "State                              : N/A", Verdict.UNJUDGED),
        ("Effective Physical Errors          : 0", "Effective Physical Errors          : N/A", Verdict.UNJUDGED),
        ("mft 4.30.1-8", "mft 5.0.0-1", Verdict.UNJUDGED),
        ("mft 4.30.1-8", "", Verdict.UNJUDGED),
    ],
)
def test_a_link_that_is_down_or_bad_fails(old: str, new: str, verdict: Verdict) -> None:
    assert old in LINK
    assert link(LINK.replace(old, new)).verdict is verdict


def test_colours_are_no_part_of_a_value() -> None:
    assert link(LINK.replace(": Active", ": \x1b[32mActive\x1b[0m")).verdict is Verdict.PASS


def test_one_of_two_counters_of_a_link_that_went_down_is_no_evidence() -> None:
    """Some adapters have neither, and then there is no such metric."""
    lines = LINK.splitlines(keepends=True)
    neither = "".join(line for line in lines if not line.startswith(("Link Down", "Link Error")))
    assert "link_downs" not in link(neither).metrics
    assert link(neither).verdict is Verdict.PASS
    assert link("".join(line for line in lines if not line.startswith("Link Down"))).verdict is Verdict.UNJUDGED


def workers(gpus: int = 2, seconds: int = 4, **speeds: str) -> str:
    each = [(gpu, speeds.get(f"gpu{gpu}", "640000.1")) for gpu in range(gpus)] * seconds
    said = "TensorEngineActive: generated ???, dcgm 0.000"
    reports = "".join(f"Worker {gpu}:0[1004]: {said} ({speed} gflops)\n" for gpu, speed in each)
    samples = "".join(f"{gpu}, {60 + gpu}, {680 + gpu}.5, {1700 - gpu}, 100\n" for _ in range(2) for gpu in range(gpus))
    samples = f"--- samples\n{samples}--- end of {2 * gpus} samples\n"
    return f"Skipping CreateDcgmGroups() since DCGM validation is disabled\n{reports}{samples}"


def judged(text: str, status: int = 0) -> TestResult:
    test = gate_test("dcgmproftester", seconds=4)
    return TOOLS["dcgmproftester"].judge(test, wanted(gpus=2), SEEN, [CommandResult(status, text)])


def test_the_slowest_gpu_and_the_hottest_count() -> None:
    result = judged(workers(gpu1="601000.0"))
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    found = {name: result.metrics[name] for name in ("gflops", "temperature_c", "power_w", "clock_mhz")}
    assert found == {"gflops": 601000, "temperature_c": 61, "power_w": 681.5, "clock_mhz": 1699}


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (workers(gpus=1), 0, Verdict.UNJUDGED),
        (workers(gpu1="0.0"), 0, Verdict.UNJUDGED),
        (workers(seconds=3), 0, Verdict.UNJUDGED),
        (workers(), 1, Verdict.ERROR),
        (
            "CacheManager Init Failed. Error: -29\n--- samples\n0, 41, 50.0, 345, 0\n--- end of 1 samples\n",
            0,
            Verdict.ERROR,
        ),
        # What DCGM 4.2.3 prints (NVIDIA/DCGM#239).
        ("Worker 0:0[1004]: TensorEngineActive: target max, dcgm 0\n" * 4 + workers(), 0, Verdict.UNJUDGED),
    ],
)
def test_a_load_without_figures_of_each_gpu_is_no_pass(text: str, status: int, verdict: Verdict) -> None:
    assert judged(text, status).verdict is verdict


def amd(*gpus: Mapping[str, Any], as_list: bool = False) -> TestResult:
    document = json.dumps(list(gpus) if as_list else {"gpu_data": list(gpus)})
    said = "AMDSMI Tool: 25.3.0+ede62f2 | AMDSMI Library version: 25.3.0 | ROCm version: 6.4.0\n"
    outputs = [CommandResult(0, said), CommandResult(0, document)]
    return TOOLS["amd-smi"].judge(gate_test("amd-smi"), wanted(gpus=len(gpus) or 1), SEEN, outputs)


def card(index: int, *, errors: Any = 0, heat: Any = 70) -> dict[str, Any]:
    return {
        "gpu": index, "temperature": {"hotspot": {"value": heat, "unit": "C"}}, "pcie": {"width": 16},
        "power": {"socket_power": {"value": 700 + index, "unit": "W"}}, "ecc": {"total_uncorrectable_count": errors},
    }  # fmt: skip


@pytest.mark.parametrize("as_list", [True, False], ids=["ROCm 6", "ROCm 7"])
def test_amds_gpus_are_read_whatever_the_root_is(as_list: bool) -> None:
    result = amd(card(0), card(1, heat=81), as_list=as_list)
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert (result.metrics["temperature_c"], result.metrics["power_w"], result.metrics["gpus"]) == (81, 701, 2)


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        ((card(0), card(1, errors=2)), Verdict.FAIL),
        ((card(0), card(1, errors="N/A")), Verdict.UNJUDGED),
        ((card(0), card(1, heat="N/A")), Verdict.UNJUDGED),
        ((card(0), card(0)), Verdict.UNJUDGED),
        ((card(0), {"gpu": 1}), Verdict.UNJUDGED),
        ((), Verdict.UNJUDGED),
    ],
)
def test_an_amd_gpu_that_says_nothing_is_no_pass(gpus: tuple[dict[str, Any], ...], verdict: Verdict) -> None:
    assert amd(*gpus).verdict is verdict


RVS = (FOLDER / "rvs.txt").read_text()


def validated(text: str, gpus: int = 1) -> TestResult:
    return TOOLS["rvs"].judge(gate_test("rvs", config="/c.conf"), wanted(gpus=gpus), SEEN, [CommandResult(0, text)])


def test_what_the_worst_gpu_reached_of_its_target_counts() -> None:
    other = RVS.splitlines(keepends=True)[-1].replace("55354", "10985").replace("GFLOPS 738615 T", "GFLOPS 645390 T")
    assert validated(RVS + other, gpus=2).metrics == {"gpus": 2, "actions": 1, "target_percent": 101.0}


@pytest.mark.parametrize(
    ("text", "gpus", "verdict"),
    [
        (RVS.replace("738615 Target", "600000 Target").replace("met: TRUE", "met: FALSE"), 1, Verdict.FAIL),
        (RVS, 8, Verdict.UNJUDGED),
        (RVS.replace("met: TRUE", ""), 1, Verdict.UNJUDGED),
        (RVS + "[RESULT] [  2480.000000] Action name :gst-1215Tflops-rand-fp8\n", 1, Verdict.UNJUDGED),
        ("RVS-ERROR [CLI] No platform support for the detected GPU or no GPU detected !\n", 1, Verdict.ERROR),
    ],
)  # fmt: skip
def test_an_action_that_is_not_met_by_each_gpu_is_no_pass(text: str, gpus: int, verdict: Verdict) -> None:
    assert validated(text, gpus).verdict is verdict
