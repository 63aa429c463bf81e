"""Results of gates for people and programs: rows as a table, JSON, Markdown and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from reconciler.gate.certificate import judge_test
from reconciler.gate.cohort import limit, too_few
from reconciler.model.desired import Acceptance, GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.results import Measurement, ResultRow, TestRun

_BATCH: Final = 2_000  # rows that are made into text at once


class ShownMetric(NamedTuple):
    """One figure of a node's last gate, beside its bar. `verdict`: of the bar, or of the test where there is none.

    `value` None: the test measured nothing, and `reasons` say why.
    """

    node: str
    profile: str
    test: str
    tool: str
    tool_version: str
    metric: str
    part: str
    value: float | None
    unit: str
    bar: str
    verdict: str
    reasons: str
    started_at: datetime | None
    output: str


def shown_metrics(
    node: str, runs: Iterable[TestRun], acceptance: Acceptance | None, results: Mapping[str, TestResult] | None
) -> Iterator[ShownMetric]:
    """Yield the figures of a gate in its order, and a row for each test that was not run.

    `acceptance`: whose bars are shown. `results`: what the bars of today judge; None keeps the verdicts of then.
    """
    tests = {} if acceptance is None else {test.name: test for test in acceptance.tests}
    seen = set()
    for run in runs:
        seen.add(run.test)
        test, verdict, reasons = tests.get(run.test), run.verdict, run.reasons
        if test is not None and results is not None:
            verdict, reasons = judge_test(test, results.get(run.test))
        why = "; ".join(reasons)
        common = (run.node, run.profile, run.test, run.tool, run.tool_version)
        end = (run.started_at, run.output)
        if not run.measurements:
            yield ShownMetric(*common, "", "", None, "", "", verdict.value, why, *end)
        barred = [(row, () if test is None else _bars(test, row)) for row in run.measurements]
        by_bar = [Verdict.PASS if test is None else _by_bars(test, bars, run, row) for row, bars in barred]
        told = verdict is Verdict.PASS or any(each is not Verdict.PASS for each in by_bar)
        for (row, bars), each in zip(barred, by_bar, strict=True):
            shown = each if bars and told else verdict  # what no bar tells is of the whole test
            yield ShownMetric(
                *common, row.metric, row.part, row.value, row.unit,
                ", ".join(text for bar in bars for text in _texts(bar, run)), shown.value, why, *end,
            )  # fmt: skip
    for name, test in ((name, test) for name, test in tests.items() if name not in seen):
        yield ShownMetric(node, "", name, test.tool, "", "", "", None, "", "", "unjudged", "not run", None, "")


def _bars(test: GateTest, row: Measurement) -> tuple[Threshold, ...]:
    name = f"{row.metric}.{row.part}" if row.part else row.metric
    return tuple(bar for bar in test.thresholds if bar.metric == name)


def _by_bars(test: GateTest, bars: tuple[Threshold, ...], run: TestRun, row: Measurement) -> Verdict:
    """Return what the gate's judge says of one figure by its bars alone."""
    metrics = {bar.metric: row.value for bar in bars}
    result = TestResult(run.test, run.tool, Verdict.PASS, (), metrics, run.tool_version)
    return judge_test(replace(test, thresholds=bars), result)[0]


def _texts(bar: Threshold, run: TestRun) -> Iterator[str]:
    if bar.min is not None:
        yield f">= {bar.min:g}"
    if bar.max is not None:
        yield f"<= {bar.max:g}"
    if bar.cohort is not None:
        least = limit(bar.cohort, run.tool_version)
        few = f"peers don't count: {too_few(bar.cohort, run.tool_version, run.tool)}"
        yield few if least is None else f">= {least:g} by peers"


def history_cells(row: ResultRow) -> tuple[str, ...]:
    """Return the cells of a table for people."""
    value = "" if row.value is None else f"{row.value:g}"
    return (
        row.node, f"{row.started_at:%Y-%m-%d %H:%M}", row.test, row.metric, row.part, value, row.unit, row.verdict,
        row.tool_version, row.key[:8], row.profile,
    )  # fmt: skip


HISTORY_HEAD: Final = (
    "node", "started", "test", "metric", "part", "value", "unit", "verdict", "tool version", "key", "profile"
)  # fmt: skip
SHOW_HEAD: Final = ("test", "metric", "part", "value", "unit", "bar", "verdict", "why", "output")


def show_cells(row: ShownMetric) -> tuple[str, ...]:
    value = "" if row.value is None else f"{row.value:g}"
    why = row.reasons if row.verdict != "pass" else ""
    test = f"{row.test} ({row.profile})" if row.profile else row.test
    return (test, row.metric, row.part, value, row.unit, row.bar, row.verdict, why, row.output[:12])


def as_json(rows: Iterable[ResultRow | ShownMetric]) -> Iterator[str]:
    """Yield the text of one JSON array, an object on each line, in parts."""
    before = "["
    for batch in _batches(rows):
        objects = [json.dumps(dict(zip(row._fields, _cells(row), strict=True))) for row in batch]
        yield f"{before}\n " + ",\n ".join(objects)
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def as_csv(kind: type[ResultRow | ShownMetric], rows: Iterable[ResultRow | ShownMetric]) -> Iterator[str]:
    """Yield CSV with a head, in parts."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(kind._fields)
    yield lines.taken()
    for batch in _batches(rows):
        writer.writerows(map(_cells, batch))
        yield lines.taken()


class _Lines:
    """The file that csv wants to write to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.write = self._lines.append

    def taken(self) -> str:
        text = "".join(self._lines)
        self._lines.clear()
        return text


def _cells(row: tuple[Any, ...]) -> list[Any]:
    return [cell.isoformat() if isinstance(cell, datetime) else cell for cell in row]


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield batch
