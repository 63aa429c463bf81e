"""Whatever happens to the output of a real program, no pass comes of it that was none (invariant 18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.gate import Verdict
from tests.gate.cases import Case, gate_test, judge
from tests.gate.mutations import PASSING, Recording, mutations
from tests.gate.test_judges_never_raise import check

RECORDINGS = pytest.mark.parametrize("recording", PASSING, ids=lambda recording: recording.files[-1])


@RECORDINGS
def test_what_a_healthy_machine_printed_passes(recording: Recording) -> None:
    result = recording.judge()
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.tool_version


@RECORDINGS
def test_a_recording_that_something_happened_to_is_no_pass_that_was_none(recording: Recording) -> None:
    """A pass may remain where no evidence was touched: then every figure is the one that was measured."""
    metrics = recording.judge().metrics
    wrong = []
    for what, outputs in mutations(recording):
        result = check(recording.judge(outputs))
        if result.verdict is Verdict.PASS and (result.metrics != metrics or "line" not in what):
            wrong.append((what, result.metrics))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "status", "verdict", "reason"),
    [
        ("local_faulty_enospc.json", 1, Verdict.ERROR, "the file system is full"),
        ("local_faulty_verify.json", 1, Verdict.FAIL, "a block is not what was written"),
        ("local_faulty_verify_fatal.json", 1, Verdict.FAIL, "a block is not what was written"),
        ("local_killed.json", 137, Verdict.ERROR, "killed"),
        ("local_interrupted.json", 0, Verdict.UNJUDGED, "MiB were requested"),
    ],
)
def test_fio_that_went_wrong(samples: Path, name: str, status: int, verdict: Verdict, reason: str) -> None:
    case = Case("fio-verify", gate_test("fio-verify", directory="/data"), (samples / "fio" / name).read_text())
    result = judge(case, exit_status=status)
    assert result.verdict is verdict, result.reasons
    assert any(reason in one for one in result.reasons), result.reasons


def test_iperf3_that_could_not_measure(samples: Path) -> None:
    for path in sorted((samples / "iperf3").glob("local_*.json")):
        result = judge(Case("iperf3", gate_test("iperf3", seconds=30), path.read_text()))
        assert result.verdict is not Verdict.PASS, path
