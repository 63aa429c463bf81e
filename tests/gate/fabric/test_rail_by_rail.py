"""Rails that are tested one after another: a figure for each, and the worst one counts."""

from __future__ import annotations

from dataclasses import replace

from reconciler.gate.certificate import judge_test
from reconciler.gate.evidence import required_metrics
from reconciler.gate.fabric.rail_by_rail import by_rail, each_rail
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict

NCCL = GateTest(
    "nccl", "nccl-tests", {"group": 4, "interface": "ib0", "rails": "mlx5_0, mlx5_1", "railByRail": True},
    (Threshold("busbw_peak", min=40.0),), 60.0,
)  # fmt: skip


def ran(busbw: float | None, verdict: Verdict = Verdict.PASS, why: str = "") -> TestResult:
    metrics = {} if busbw is None else {"busbw_peak": busbw}
    shown = "x" * 5000 if busbw else ""
    return TestResult("nccl", "nccl-tests", verdict, (why,) if why else (), metrics, "2.17.9", shown)


def test_each_rail_has_a_test_of_its_own() -> None:
    each = each_rail(NCCL)
    assert list(each) == ["mlx5_0", "mlx5_1"]
    assert each["mlx5_1"].args == {"group": 4, "interface": "ib0", "rails": "mlx5_1"}
    assert each_rail(replace(NCCL, args={"group": 4, "rails": "mlx5_0,mlx5_1"})) == {}


def test_the_worst_rail_counts_and_is_named() -> None:
    found = by_rail(NCCL, {"mlx5_0": ran(48.0), "mlx5_1": ran(36.0)})
    assert found.metrics == {
        "busbw_peak": 36.0, "busbw_peak.mlx5_0": 48.0, "busbw_peak.mlx5_1": 36.0, "busbw_peak.spread": 25.0
    }  # fmt: skip
    assert judge_test(NCCL, found) == (Verdict.FAIL, ("nccl: busbw_peak 36 < 40 (busbw_peak.mlx5_1)",))
    assert judge_test(NCCL, by_rail(NCCL, {"mlx5_0": ran(48.0), "mlx5_1": ran(47.0)}))[0] is Verdict.PASS
    assert len(found.evidence) <= 4000
    assert "=== mlx5_1\nxxx" in found.evidence


def test_a_rail_that_can_not_run_is_never_a_pass_of_all() -> None:
    lost = ran(None, Verdict.ERROR, "it did not start")
    found = by_rail(NCCL, {"mlx5_0": ran(48.0), "mlx5_1": lost})
    assert found.verdict is Verdict.ERROR
    assert found.reasons == ("mlx5_1: it did not start",)
    assert found.metrics == {"busbw_peak.mlx5_0": 48.0}, "the worst is not known"
    assert by_rail(NCCL, {"mlx5_0": lost, "mlx5_1": ran(48.0)}).metrics == {"busbw_peak.mlx5_1": 48.0}
    assert required_metrics(NCCL) == ("busbw_peak", "busbw_peak.mlx5_0", "busbw_peak.mlx5_1")
    assert required_metrics(replace(NCCL, args={"rails": "mlx5_0,mlx5_1"})) == ("busbw_peak",)


def test_rails_that_run_other_versions_are_not_judged_together() -> None:
    found = by_rail(NCCL, {"mlx5_0": ran(48.0), "mlx5_1": replace(ran(48.0), tool_version="2.16.0")})
    assert found.verdict is Verdict.UNJUDGED
