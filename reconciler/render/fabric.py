"""The report of a search of the fabric, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconciler.model.fabric_report import BlamedPart, FabricReport
from reconciler.model.units import format_duration
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import markdown, plain

_SHOWN: Final = 20  # rows of the accounts
_HEAD: Final = ("PART", "LOW RUNS", "OF", "WITH")


def fabric_text(report: FabricReport) -> str:
    """Return what is at fault first, then what is not known, then the accounts of all parts that were low."""
    took = format_duration((report.ended_at - report.started_at).total_seconds())
    lines = [f"{report.run}: {len(report.nodes)} nodes, {report.rounds} rounds of {report.test}, {took}"]
    lines += _section("At fault", report.at_fault)
    lines += _section("Incidents, no node's fault", report.incidents)
    if not report.at_fault and not report.incidents:
        lines += ["", "Nothing is at fault."]
    lines += _earlier(report)
    lines += _by_node("Neither good nor bad", report.undecided)
    lines += _by_node("Took no part", report.left_out)
    if report.unrun:
        lines += ["", "Tests that could not run, or were low", *(f"  {plain(why, 200)}" for why in report.unrun)]
    if report.accounts:
        lines += ["", *table(_HEAD, [_cells(part) for part in report.accounts[:_SHOWN]], indent="")]
    return "\n".join([*lines, ""])


def fabric_markdown(report: FabricReport) -> str:
    found = [*report.at_fault, *report.incidents]
    rows = [tuple(markdown(cell, 300) for cell in (*_cells(part), part.detail)) for part in found]
    run, test = markdown(report.run, 100), markdown(report.test, 100)
    head = f"{run}: {len(report.nodes)} nodes, {report.rounds} rounds of {test}"
    return "\n".join([head, "", *markdown_table((*_HEAD, "WHY"), rows), ""])


def _section(title: str, parts: Iterable[BlamedPart]) -> Iterator[str]:
    found = list(parts)
    if found:
        yield from ("", title)
    for part in found:
        seen = f"{part.lows} of {part.runs} runs are low" if part.runs else ""
        yield plain(f"  {part}: {'; '.join(filter(None, (seen, part.detail)))}", 300)


def _earlier(report: FabricReport) -> Iterator[str]:
    """Yield what earlier searches named and this one did not find well."""
    if earlier := [one for one in report.open if one.run != report.run]:
        yield from ("", "Of earlier searches, and not found well since")
    for one in earlier:
        yield plain(f"  {one.part}, by {one.test}: {one.run}, since {one.since:%Y-%m-%d %H:%M} UTC", 300)


def _by_node(title: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield nodes with the same reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for node, why in reasons.items():
        by_reason.setdefault(why, []).append(node)
    if by_reason:
        yield from ("", title)
    for why, nodes in by_reason.items():
        yield plain(f"  {', '.join(nodes[:8])}{f' and {len(nodes) - 8} more' if len(nodes) > 8 else ''}: {why}", 300)


def _cells(part: BlamedPart) -> tuple[str, ...]:
    return str(part), str(part.lows), str(part.runs), ", ".join(part.partners[:8])
