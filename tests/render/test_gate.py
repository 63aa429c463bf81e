"""The figures of a gate beside their bars: none looks good in a test that failed."""

from __future__ import annotations

import pytest

from reconciler.model.desired import Acceptance, GatePhase, GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.results import Measurement, TestRun
from reconciler.render.gate import show_cells, shown_metrics
from tests import builders as b

WRONG = "3 of the values were wrong"


def rows(
    tool: str, verdict: Verdict, why: tuple[str, ...], speed: float, *, by_hand: bool
) -> dict[str, tuple[str, str]]:
    """Return (verdict, reason) as the table shows them, by metric. `busbw_peak` has a bar of 400, `other` has none."""
    test = GateTest("nccl", tool, {}, (Threshold("busbw_peak", 400.0),), 60.0)
    measured = (Measurement("busbw_peak", "", speed, "GB/s"), Measurement("other", "", 1.0, ""))
    run = TestRun("n", 1, "", "nccl", tool, "2.15", verdict, why, "", b.NOW, b.NOW, "", measured)
    result = TestResult(
        "nccl", tool, Verdict.PASS if why and "<" in why[0] else verdict, why, {"busbw_peak": speed}, "2.15"
    )
    acceptance = Acceptance("standard", (GatePhase("all", (test,)),), None)
    shown = list(shown_metrics("n", [run], acceptance, None if by_hand else {"nccl": result}))
    return {row.metric: (row.verdict, show_cells(row)[7]) for row in shown}


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_failure_that_no_bar_tells_is_told_with_every_figure(by_hand: bool) -> None:
    found = rows("nccl-tests", Verdict.FAIL, (WRONG,), 450.0, by_hand=by_hand)
    assert {verdict for verdict, _ in found.values()} == {"fail"}
    assert all(WRONG in why for _, why in found.values())


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_failure_that_a_bar_tells_is_told_with_its_figure(by_hand: bool) -> None:
    found = rows("nccl-tests", Verdict.FAIL, ("nccl: busbw_peak 390 < 400",), 390.0, by_hand=by_hand)
    assert found["busbw_peak"] == ("fail", "nccl: busbw_peak 390 < 400")


def test_a_tool_that_only_reports_never_shows_a_pass() -> None:
    found = rows("link-counters", Verdict.UNJUDGED, ("nccl: link-counters is experimental",), 450.0, by_hand=True)
    assert found["busbw_peak"][0] == "unjudged"
