"""A node's certificate, judged by today's thresholds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reconciler.gate.certificate import judge_test, valid_until
from reconciler.model.desired import GateTest
from reconciler.model.gate import TestResult
from reconciler.render.explanation import Explanation
from reconciler.render.html.interned import Interned
from reconciler.render.html.material import Material

_METRICS: Final = 12  # of one test; those with a threshold come first

Metric = tuple[int, float | None, float | None]  # name, and what it must be at least and at most
Row = tuple[int, int, int, int, int, tuple[Metric, ...]]


class Evidence:
    """The certificates on the page. Their raw output, serials and digests stay in the ledger: the page is passed on."""

    def __init__(self, material: Material, text: Callable[[str], int]) -> None:
        self._now = material.now
        self._text = text
        self._tests: Interned[Row] = Interned()

    @property
    def tests(self) -> list[Row]:
        return self._tests.all

    def of(self, made: Explanation) -> dict[str, Any] | None:
        """Return the JSON value of a certificate, None when the node has none."""
        found = made.record.certificate if made.record is not None else None
        acceptance = made.desired.profile.acceptance
        if found is None:
            return None
        declared = {test.name: test for phase in acceptance.phases for test in phase.tests} if acceptance else {}
        results = {result.test: result for result in found.results}
        names = dict.fromkeys((*declared, *results))
        until = valid_until(found, acceptance)
        return {
            "issued": round((found.issued_at - self._now).total_seconds()),
            "until": None if until is None else round((until - self._now).total_seconds()),
            "adopted": int(found.adopted),
            "tests": [] if found.adopted else [self._test(declared.get(n), results.get(n)) for n in names],
        }

    def _test(self, test: GateTest | None, result: TestResult | None) -> tuple[int, list[float | None]]:
        """Return the index of the test's row, which nodes share, and what was measured on this node."""
        bars = test.thresholds if test is not None else ()
        measured = result.metrics if result is not None else {}
        others = [name for name in sorted(measured) if name not in {bar.metric for bar in bars}]
        metrics: list[Metric] = [(self._text(bar.metric), bar.min, bar.max) for bar in bars]
        metrics += [(self._text(name), None, None) for name in others[: max(0, _METRICS - len(bars))]]
        names = [bar.metric for bar in bars] + others[: max(0, _METRICS - len(bars))]
        name, tool, version, verdict, reasons = map(self._text, self._words(test, result))
        row = (name, tool, version, verdict, reasons, tuple(metrics))
        return self._tests.at(row), [_finite(measured.get(metric)) for metric in names]

    def _words(self, test: GateTest | None, result: TestResult | None) -> tuple[str, str, str, str, str]:
        name = test.name if test is not None else result.test if result is not None else ""
        tool = result.tool if result is not None else test.tool if test is not None else ""
        version = result.tool_version if result is not None else ""
        if test is not None:
            verdict, reasons = judge_test(test, result)
            return name, tool, version, verdict.value, "; ".join(reasons)
        assert result is not None
        return name, tool, version, result.verdict.value, "no longer asked for"


def _finite(measured: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have and which are no evidence."""
    return measured if measured is not None and abs(measured) < float("inf") else None
