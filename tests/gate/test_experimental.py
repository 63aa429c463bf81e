"""A tool whose parser was never tried on real output reports: its result is no pass, and keeps nobody out either."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from reconciler.gate.certificate import judge, judge_test
from reconciler.gate.evidence import experimental
from reconciler.model import gate_tools
from reconciler.model.desired import Acceptance, GatePhase
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from tests.gate.cases import gate_test

EXPERIMENTAL = [name for name in gate_tools.TOOLS if experimental(name)]
NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize("tool", EXPERIMENTAL)
@pytest.mark.parametrize("verdict", Verdict)
def test_it_reports_and_never_passes(tool: str, verdict: Verdict) -> None:
    result = TestResult(tool, tool, verdict, (), dict.fromkeys(("gbps", "temperature_c"), 1.0))
    judged, why = judge_test(gate_test(tool), result)
    assert judged is Verdict.UNJUDGED
    assert "experimental" in why[0]


@pytest.mark.parametrize("tool", EXPERIMENTAL)
def test_it_neither_admits_nor_keeps_out(tool: str) -> None:
    binding = Binding("S", ("G",), "", {}, "", "")
    report, fixed = gate_test(tool), gate_test("xid")
    acceptance = Acceptance("a", (GatePhase("p", (report, fixed)),), None)
    passed = TestResult("xid", "xid", Verdict.PASS, (), {"xids": 0.0})
    certificate = Certificate("1.0", "n", NOW, binding, (TestResult(tool, tool, Verdict.PASS, (), {}), passed))
    assert judge(certificate, acceptance, binding, NOW).valid
    assert not judge(replace(certificate, results=certificate.results[:1]), acceptance, binding, NOW).valid
