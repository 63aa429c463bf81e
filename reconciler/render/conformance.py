"""Show what a conformance suite found: as text, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from reconciler.model.conformance import FORMAT, CheckOutcome, CheckResult, ConformanceReport
from reconciler.render.tables import markdown_table
from reconciler.render.text import markdown, plain

_LINE: Final = 400  # characters of a machine's own words
_INDENT: Final = " " * 13


def as_json(report: ConformanceReport) -> str:
    document: dict[str, Any] = {
        "format_version": FORMAT,
        "suite": report.suite,
        "address": report.address,
        "about": dict(report.about),
        "counts": {result.value: number for result, number in report.counts.items()},
        "checks": [_entry(outcome) for outcome in report.outcomes],
    }
    return json.dumps(document, indent=1) + "\n"


def _entry(outcome: CheckOutcome) -> dict[str, Any]:
    check = outcome.check
    return {
        "name": check.name,
        "result": outcome.result.value,
        "detail": outcome.detail,
        "clause": check.clause,
        "pitfalls": list(check.pitfalls),
        "writes": check.writes,
        "without": check.without,
    }


def human(report: ConformanceReport) -> str:
    """Return a line for each check, and under one that did not pass why, and what follows from it."""
    about = "".join(f", {value}" for value in report.about.values())
    lines = [plain(f"{report.suite} {report.address}{about}", _LINE), ""]
    for why, group in groupby(report.outcomes, key=_why_not_tried):
        for outcome in group:
            lines += _lines(outcome)
        lines += [_INDENT + plain(why, _LINE)] if why else []
    return "\n".join([*lines, "", headline(report), ""])


def _why_not_tried(outcome: CheckOutcome) -> str:
    """Return why a check was left out: a reason that several have in a row is told once, after them."""
    return outcome.detail if outcome.result is CheckResult.NOT_TRIED else ""


def headline(report: ConformanceReport) -> str:
    return ", ".join(f"{number} {result}" for result, number in report.counts.items())


def _lines(outcome: CheckOutcome) -> Iterator[str]:
    check = outcome.check
    yield plain(f"{outcome.result:<11}  {check.name}", _LINE)
    if outcome.result in (CheckResult.PASS, CheckResult.NOT_TRIED):
        return
    yield _INDENT + plain(outcome.detail, _LINE)
    yield _INDENT + plain(f"without it: {check.without}", _LINE)
    yield _INDENT + plain(", ".join((check.clause, *(f"pitfall {one}" for one in check.pitfalls))), _LINE)


def as_markdown(report: ConformanceReport) -> str:
    rows = [
        (one.check.name, one.result.value, markdown(one.detail, _LINE), markdown(one.check.clause), one.check.without)
        for one in report.outcomes
    ]
    title = f"**{report.suite} {markdown(report.address)}**: {headline(report)}"
    return "\n".join([title, "", *markdown_table(("check", "result", "detail", "clause", "without it"), rows), ""])
