"""gpu-burn and the counters of ports: what their judges say of runs in which something went wrong."""

from __future__ import annotations

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.link_counters import COUNTERS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted
from tests.gate.mutations import FOLDER

BURN = (
    "Burning for 60 seconds.\n"
    "50.0%  proc'd: 1664 (13217 Gflop/s) - 1664 (13190 Gflop/s)   errors: 0 - 0   temps: 55 C - 57 C \n"
    "100.0%  proc'd: 3328 (13217 Gflop/s) - 3328 (12556 Gflop/s)   errors: 0 - 0   temps: 65 C - 67 C \n"
    "Killing processes.. done\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
)
ROUND = "0, 65, 690.5, 1590, 100\n1, 67, 688.1, 1410, 100\n"


def sampled(rows: str) -> str:
    return f"--- samples\n{rows}--- end of {rows.count(chr(10))} samples\n"


SAMPLES = sampled(ROUND * 4)


def burn(text: str) -> TestResult:
    return TOOLS["gpu-burn"].judge(gate_test("gpu-burn"), wanted(gpus=2), SEEN, [CommandResult(0, text)])


def test_heat_power_and_clock_of_the_worst_gpu_count() -> None:
    result = burn(BURN + SAMPLES)
    assert result.verdict is Verdict.PASS, result.reasons
    found = {name: result.metrics[name] for name in ("gflops", "temperature_c", "power_w", "clock_mhz")}
    assert found == {"gflops": 12556, "temperature_c": 67, "power_w": 690.5, "clock_mhz": 1410}
    assert result.metrics["gflops.spread"] == pytest.approx(5.0, abs=0.01)


def test_a_clock_counts_while_the_gpu_is_at_work_alone() -> None:
    """An H200 was at 345 MHz for 24 s after gpu_burn had computed; that clock under load fails a bar."""
    around = "0, 40, 80.0, 345, 0\n1, 40, 80.0, 345, 0\n"
    text = BURN + sampled(around * 3 + ROUND * 4 + around * 9)
    assert burn(text).metrics["clock_mhz"] == 1410
    slowed = ROUND.replace("1410", "345")
    assert burn(text.replace(ROUND * 4, slowed * 4)).metrics["clock_mhz"] == 345
    idle = burn(text.replace(ROUND, around))
    assert (idle.verdict, idle.reasons) == (Verdict.UNJUDGED, ("nvidia-smi sampled no load on GPU 0",))


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
        (BURN + sampled(ROUND * 4 + "0, 65, 690.5, 1590, 100\n[GPU is lost]\n"), Verdict.UNJUDGED),
        (BURN + sampled("0, 65, 690.5, 1590, 100\n" * 4), Verdict.UNJUDGED),
        (BURN, Verdict.ERROR),
    ],
)
def test_a_gpu_that_is_lost_wrong_or_idle_is_no_pass(text: str, verdict: Verdict) -> None:
    assert burn(text).verdict is verdict


WHOLE = BURN + SAMPLES


def test_output_that_breaks_off_anywhere_is_no_pass() -> None:
    """Half a number is a number, and the highest temperature may be in what is missing."""
    assert burn(WHOLE).verdict is Verdict.PASS
    assert [at for at in range(len(WHOLE)) if burn(WHOLE[:at]).verdict is Verdict.PASS] == []


@pytest.mark.parametrize(
    "text",
    [
        BURN + SAMPLES.partition("--- end")[0],  # the connection ends
        BURN + SAMPLES.replace("10, 100\n--- end", "--- end"),  # the disk is full
        BURN + sampled(ROUND * 3 + "0, 65, 690.5, 1590, 100\n"),
        BURN + sampled(""),
        BURN.replace("\tGPU 0: OK\n\tGPU 1: OK\n", "") + SAMPLES,
        BURN.replace("\tGPU 1: OK\n", "") + SAMPLES,
        BURN.replace("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n", "") + SAMPLES,
        BURN.partition("100.0%")[0] + "Killing processes.. done\n" + SAMPLES,
        BURN.replace("100.0%", "99.9%") + SAMPLES,
        WHOLE + WHOLE,
        WHOLE + "Tested 2 GPUs:\n\tGPU 0: FAULTY\n\tGPU 1: OK\n",
    ],
    ids=["connection", "half a number", "half a round", "no sample", "no OK", "one OK", "no end", "half", "99.9 %",
         "two runs", "more"],
)  # fmt: skip
def test_a_run_that_is_not_whole_is_no_pass(text: str) -> None:
    assert burn(text).verdict in (Verdict.ERROR, Verdict.UNJUDGED)


def test_a_real_run_that_was_stopped_says_ok_of_each_gpu_and_is_no_pass() -> None:
    """A public guide shows it of seven B300: SIGKILL at 84.5 %, one GPU that did any work, and seven times OK."""
    text = (FOLDER / "gpu-burn-stopped.txt").read_text()
    samples = "".join(f"{gpu}, 40, 300.0, 1900, 100\n" for gpu in range(7))
    output = CommandResult(0, text + sampled(samples))
    result = TOOLS["gpu-burn"].judge(gate_test("gpu-burn"), wanted(gpus=7), SEEN, [output])
    assert (result.verdict, result.reasons) == (Verdict.ERROR, ("its progress with 7 GPUs does not reach 100 %",))


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
