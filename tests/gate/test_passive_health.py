"""The test of passive health judges hardware, and not the programs around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest
from reconciler.model.gate import Verdict
from reconciler.model.observed import ClockState, Daemons, DcgmIncident, Xid
from tests import builders as b


def verdict(**facts: Any) -> Verdict:
    test = GateTest("xid", "xid", {}, (), 60.0)
    return TOOLS["xid"].judge(test, b.node(), b.observed(host=b.facts(**facts)), ()).verdict


@pytest.mark.parametrize(
    "facts",
    [
        {"clock": ClockState(synchronised=False)},  # a site without time servers
        {"clock": ClockState(True, 90.0)},
        {"daemons": Daemons(4, fabric_manager=False)},
        {"dcgm": (DcgmIncident("GPU 0", "Thermal system", "Warning", "warm"),)},
    ],
)
def test_a_setting_or_a_warning_of_a_program_keeps_no_node_out(facts: dict[str, Any]) -> None:
    assert verdict() is Verdict.PASS
    assert verdict(**facts) is Verdict.PASS


def test_what_dcgm_judges_as_failed_does() -> None:
    assert verdict(dcgm=(DcgmIncident("GPU 0", "Memory system", "Failure", "DBE"),)) is Verdict.FAIL


@pytest.mark.parametrize(("code", "found"), [(13, Verdict.PASS), (119, Verdict.PASS), (79, Verdict.FAIL)])
def test_a_code_that_isolates_fails_a_gate_whoever_ignores_it(code: int, found: Verdict) -> None:
    policy = replace(b.REMEDIATION, ignore_xids=(code,))
    test = GateTest("xid", "xid", {}, (), 60.0)
    seen = b.observed(host=b.facts(xids=(Xid(code, "0000:03:00", 1),)))
    assert TOOLS["xid"].judge(test, b.node(profile=b.profile(remediation=policy)), seen, ()).verdict is found
