"""perftest over memory of GPUs: what it prints then, with NVIDIA's and with AMD's."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted
from tests.gate.mutations import FOLDER, spoilt
from tests.gate.test_judges_never_raise import check

VERSION = CommandResult(1, (FOLDER / "perftest-version.txt").read_text())
HOST = (FOLDER / "perftest.txt").read_text()
CUDA = (FOLDER / "perftest-cuda.txt").read_text()
ROCM = (FOLDER / "perftest-rocm.txt").read_text()  # of a MI355X in a public guide, the row of this size alone
TESTS = {
    "cuda": gate_test("perftest", rails="mlx5_1", gpudirect="cuda"),
    "rocm": gate_test("perftest", rails="ionic_0, ionic_1", gpudirect="rocm", bidirectional=True),
}
PRINTED = {"cuda": [CUDA], "rocm": [ROCM.replace("ionic_1", "ionic_0").replace("ID: 1,", "ID: 0,"), ROCM]}


def judge(kind: str, *texts: str, **args: Any) -> TestResult:
    test = gate_test("perftest", **{**TESTS[kind].args, **args})
    outputs = [CommandResult(0, text) for text in texts or PRINTED[kind]]
    return check(TOOLS["perftest"].judge(test, wanted(), SEEN, [VERSION, *outputs]))


@pytest.mark.parametrize(("kind", "gbps"), [("cuda", 181.46), ("rocm", 687.41)])
def test_memory_of_a_gpu_is_asked_for_and_its_figure_is_read(kind: str, gbps: float) -> None:
    commands = TOOLS["perftest"].commands(TESTS[kind], wanted(), SEEN)
    assert not isinstance(commands, str)
    assert [argv[-1] for argv in commands[1:]] == [f"--use_{kind}={at}" for at in range(len(commands) - 1)]
    result = judge(kind)
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert result.metrics["gbps"] == gbps


@pytest.mark.parametrize("kind", TESTS)
def test_memory_of_the_host_or_of_another_gpu_is_no_pass(kind: str) -> None:
    """A run that fell back on the host's memory tells nothing of the way to the GPU."""
    device = "mlx5_1" if kind == "cuda" else "ionic_1"
    host = HOST.replace("mlx5_0", device).replace(
        "RDMA_Write", "RDMA_Write" if kind == "cuda" else "RDMA_Write Bidirectional"
    )
    others = PRINTED[kind][:-1]
    whole = PRINTED[kind][-1]
    for other in (host, whole.replace("No. 0", "No. 3").replace("ID: 1,", "ID: 3,")):
        result = judge(kind, *others, other)
        assert result.verdict is Verdict.UNJUDGED
        assert "memory of GPU" in result.reasons[0]


@pytest.mark.parametrize("kind", TESTS)
def test_no_spoilt_output_passes_with_another_figure(kind: str) -> None:
    whole = judge(kind).metrics
    for what, other in spoilt(CommandResult(0, PRINTED[kind][-1])):
        outputs = [VERSION, *(CommandResult(0, text) for text in PRINTED[kind][:-1]), other]
        found = check(TOOLS["perftest"].judge(TESTS[kind], wanted(), SEEN, outputs))
        assert found.verdict is not Verdict.PASS or ("line" in what and found.metrics == whole), what


def test_the_tabs_and_the_time_that_it_prints_are_read() -> None:
    """Web pages show its tabs as blanks. Releases of 2026 print the time of a run that uses no GPU, too."""
    timed = HOST.replace("98.02                0.186950", "98.02  \t\t   0.186950")
    timed = (
        f"Connected: Thu Apr 23 01:20:55 2026\n{timed}Completed: Thu Apr 23 01:21:05 2026\n\nTotal run time: 10.032s\n"
    )
    assert "\t\t" in timed
    result = judge("cuda", timed, rails="mlx5_0", gpudirect=False)
    assert (result.verdict, result.metrics["gbps"]) == (Verdict.PASS, 98.02), result.reasons
