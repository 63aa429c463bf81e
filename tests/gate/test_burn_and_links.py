"""gpu-burn and the counters of ports: what their judges say of runs in which something went wrong."""

from __future__ import annotations

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.link_counters import COUNTERS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted

BURN = (
    "Burning for 60 seconds.\n"
    "50.0%  proc'd: 1664 (13217 Gflop/s) - 1664 (13190 Gflop/s)   errors: 0 - 0   temps: 55 C - 57 C \n"
    "100.0%  proc'd: 3328 (13217 Gflop/s) - 3328 (12556 Gflop/s)   errors: 0 - 0   temps: 65 C - 67 C \n"
    "Killing processes.. done\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
)
SAMPLES = "--- samples\n" + "0, 65, 690.5, 1590\n1, 67, 688.1, 1410\n" * 4


def burn(text: str) -> TestResult:
    return TOOLS["gpu-burn"].judge(gate_test("gpu-burn"), wanted(gpus=2), SEEN, [CommandResult(0, text)])


def test_heat_power_and_clock_of_the_worst_gpu_count() -> None:
    result = burn(BURN + SAMPLES)
    assert result.verdict is Verdict.PASS, result.reasons
    found = {name: result.metrics[name] for name in ("gflops", "temperature_c", "power_w", "clock_mhz")}
    assert found == {"gflops": 12556, "temperature_c": 67, "power_w": 690.5, "clock_mhz": 1410}
    assert result.metrics["gflops.spread"] == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (BURN.replace("GPU 1: OK", "GPU 1: FAULTY") + SAMPLES, Verdict.FAIL),
        (
            BURN.replace("errors: 0 - 0   temps: 55", "errors: 0 - -524288000  (WARNING!)   temps: 55") + SAMPLES,
            Verdict.FAIL,
        ),
        (BURN.replace("3328 (12556", "-1 (0") + SAMPLES, Verdict.UNJUDGED),
        (BURN.replace("100.0%", "90.0%") + SAMPLES, Verdict.ERROR),
        (BURN.replace("Tested 2", "Tested 1") + SAMPLES, Verdict.ERROR),
        (BURN + SAMPLES + "0, 65, 690.5, 1590\n[GPU is lost]\n", Verdict.UNJUDGED),
        (BURN + SAMPLES.replace("1, 67, 688.1, 1410\n", ""), Verdict.UNJUDGED),
        (BURN, Verdict.ERROR),
    ],
)
def test_a_gpu_that_is_lost_wrong_or_idle_is_no_pass(text: str, verdict: Verdict) -> None:
    assert burn(text).verdict is verdict


def reading(ports: int = 8, **values: int) -> str:
    lines = [
        f"/sys/class/infiniband/mlx5_{port}/ports/1/counters/{name} {values.get(name, 7) if port == 3 else 7}\n"
        for port in range(ports)
        for name in COUNTERS
    ]
    return "".join(lines) + "--- read\n"


def links(before: str, after: str) -> TestResult:
    judge = TOOLS["link-counters"].judge
    return judge(gate_test("link-counters"), wanted(rdma_ports=8), SEEN, [CommandResult(0, before + after)])


def test_the_increase_of_the_worst_port_counts() -> None:
    result = links(reading(), reading(symbol_error=12))
    assert result.verdict is Verdict.PASS, result.reasons
    assert (result.metrics["symbol_error"], result.metrics["link_downed"], result.metrics["ports"]) == (5, 0, 8)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (reading(), reading(symbol_error=3), Verdict.UNJUDGED),
        (reading(), reading(ports=7), Verdict.FAIL),
        (reading(ports=7), reading(ports=7), Verdict.UNJUDGED),
        (reading(), reading().replace(" 7\n", " N/A\n", 1), Verdict.UNJUDGED),
        (reading(), "", Verdict.ERROR),
        ("", "", Verdict.ERROR),
        ("--- read\n", "--- read\n", Verdict.UNJUDGED),
    ],
)
def test_counters_that_went_back_or_are_not_there_are_no_pass(before: str, after: str, verdict: Verdict) -> None:
    assert links(before, after).verdict is verdict
