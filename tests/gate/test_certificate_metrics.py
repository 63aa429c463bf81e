"""A certificate is read anew each time: what is not in it, or no finite number, never passes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from reconciler.gate.certificate import judge, judge_test
from reconciler.gate.evidence import required_metrics
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Acceptance, GatePhase, GateTest, Threshold
from reconciler.model.gate import Certificate, GateJudgement, TestResult, Verdict
from tests import builders as b
from tests.gate.cases import GOOD, Case, gate_test
from tests.gate.cases import judge as run_judge

NOT_FINITE: list[Any] = [math.nan, math.inf, -math.inf, None, "480", True, 10**400, [], {}]


def passed(case: Case) -> TestResult:
    return replace(run_judge(case), test=case.test.name)


def read(test: GateTest, *results: TestResult) -> GateJudgement:
    acceptance = Acceptance("gate", (GatePhase("burn", (test,)),), None)
    certificate: Certificate = replace(b.certificate(b.node(), b.observed()), results=results)
    binding = replace(certificate.binding, gpu_serials=tuple("01234567"))
    return judge(replace(certificate, binding=binding), acceptance, binding, b.NOW)


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.tool)
def test_what_a_judge_measures_is_what_a_certificate_must_carry(case: Case) -> None:
    result = passed(case)
    assert required_metrics(case.test)
    assert set(required_metrics(case.test)) <= set(result.metrics)
    assert read(case.test, result).valid, read(case.test, result).reasons


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.tool)
def test_each_part_must_be_in_it_and_finite(case: Case) -> None:
    """Invariant 18, for every part one by one."""
    result = passed(case)
    for name in required_metrics(case.test):
        left = {key: value for key, value in result.metrics.items() if key != name}
        judgement = read(case.test, replace(result, metrics=left))
        assert (judgement.valid, judgement.verdict) == (False, Verdict.UNJUDGED), name
        assert any(name in reason for reason in judgement.reasons)
        for value in NOT_FINITE:
            assert not read(case.test, replace(result, metrics=left | {name: value})).valid, (name, value)
    assert not read(case.test, replace(result, metrics={})).valid


@pytest.mark.parametrize("value", NOT_FINITE, ids=str)
def test_a_bar_is_cleared_by_a_finite_number_alone(value: Any) -> None:
    test = replace(gate_test("nccl-tests"), thresholds=(Threshold("busbw_peak", min=460.0),))
    result = TestResult("nccl-tests", "nccl-tests", Verdict.PASS, (), {"busbw_peak": value})
    assert judge_test(test, result) == (Verdict.UNJUDGED, ("nccl-tests: busbw_peak was not measured",))


@pytest.mark.parametrize("gpus", [0.0, 7.0, 9.0])
def test_as_many_gpus_as_the_node_has(gpus: float) -> None:
    case = GOOD[0]
    result = passed(case)
    for name in required_metrics(case.test):
        judgement = read(case.test, replace(result, metrics=dict(result.metrics) | {name: gpus}))
        assert judgement.verdict is Verdict.UNJUDGED
        assert judgement.reasons == (f"dcgmi-diag: {name} is {gpus:g}, the node has 8 GPUs",)


def test_another_tool_and_two_results_for_one_test() -> None:
    case = GOOD[2]
    result = passed(case)
    assert not read(case.test, replace(result, tool="fio")).valid
    failed = replace(result, verdict=Verdict.FAIL, reasons=("low",))
    assert read(case.test, failed, result).verdict is Verdict.FAIL
    assert read(case.test, result, failed).verdict is Verdict.FAIL


def test_what_may_be_skipped_need_not_be_there() -> None:
    test = replace(gate_test("dcgmi-diag", level=3), allow_skip=("targeted_power", "memory"))
    assert set(required_metrics(test)) == {
        f"{name}.gpus" for name in ("software", "pcie", "diagnostic", "memory_bandwidth", "targeted_stress")
    }
    assert required_metrics(replace(gate_test("nvbandwidth", testcases="a, b"), allow_skip=("b",))) == (
        "a.min",
        "a.max",
        "a.average",
    )
    assert required_metrics(gate_test("inventory")) == ()
    assert {tool for tool in TOOLS if required_metrics(gate_test(tool, metrics="mfu"))} == set(TOOLS) - {"inventory"}
