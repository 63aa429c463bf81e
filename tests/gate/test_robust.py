"""Whatever goes wrong with a run of a tool, its judge says so: never a pass, never an exception (invariant 18).

One table for all tools: a row is a tool, a column a mishap. What the judges are tried on is told in
docs/reference/gate-tools.md, which test_table compares.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import Verdict
from reconciler.model.observed import Observed, Xid
from tests import builders as b
from tests.gate.cases import GPUS, SEEN, gate_test, wanted
from tests.gate.mishaps import MISHAPS, NEVER, OF_THE_GATE, WHOLES, Whole
from tests.gate.test_judges_never_raise import check

PASSIVE = tuple(name for name in TOOLS if TOOLS[name].commands(gate_test(name), wanted(), SEEN) == ())
EACH_WHOLE = pytest.mark.parametrize("whole", WHOLES, ids=lambda whole: whole.name)


def test_every_tool_has_a_row() -> None:
    of_a_package = {"extension"}  # others read what it prints: tests/drivers/test_extension_gate.py
    assert {whole.test.tool for whole in WHOLES} | set(PASSIVE) | of_a_package == set(TOOLS)
    assert set(PASSIVE) == {"inventory", "xid"}


@EACH_WHOLE
def test_what_is_whole_passes(whole: Whole) -> None:
    """Else nothing below would say anything."""
    result = check(whole.judge())
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert result.metrics


@pytest.mark.parametrize("mishap", MISHAPS)
@EACH_WHOLE
def test_no_mishap_is_a_pass(whole: Whole, mishap: str) -> None:
    judged = [(outputs, check(whole.judge(outputs))) for outputs in MISHAPS[mishap](whole)]
    assert bool(judged) != ((whole.test.tool, mishap) in NEVER)
    assert [outputs for outputs, result in judged if result.verdict is Verdict.PASS] == []
    if mishap in OF_THE_GATE:
        assert [outputs for outputs, result in judged if result.verdict is Verdict.FAIL] == []


ALL = tuple(b.gpu(at) for at in range(GPUS))


def seen(**facts: Any) -> Observed:
    whole: dict[str, Any] = {"nvme": SEEN.host.value.nvme, "gpus": ALL}  # type: ignore[union-attr] # it answered
    return b.observed(host=b.facts(**(whole | facts)))


@pytest.mark.parametrize(
    ("mishap", "observed", "fails"),
    [
        ("the host is silent", b.observed(host=b.silent("timeout")), False),
        ("nvidia-smi is missing, hung or killed", seen(gpus=None), False),
        ("GPU lost, and still listed", seen(gpus=(*ALL[:-1], b.gpu(GPUS - 1, lost=True))), True),
        ("GPU lost, and listed no more", seen(gpus=ALL[:-1]), True),
        ("XID 79 in the middle", seen(xids=(Xid(79, "0000:1b:00", 1),)), True),
        ("the kernel's log can't be read", seen(xids=None, kernel_events=None), False),
    ],
)  # fmt: skip
def test_no_mishap_of_a_node_is_a_pass_of_what_is_read_alone(mishap: str, observed: Observed, fails: bool) -> None:
    results = [check(TOOLS[tool].judge(gate_test(tool), wanted(), observed, ())) for tool in PASSIVE]
    assert any(result.verdict is not Verdict.PASS for result in results), mishap
    assert any(result.verdict is Verdict.FAIL for result in results) == fails, results
