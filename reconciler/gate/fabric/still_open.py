"""The parts that are still held for faulty: a search named them, and none has found them well since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from reconciler.model.fabric_report import BlamedPart, FabricReport, OpenPart


def still_open(before: Sequence[OpenPart], report: FabricReport) -> tuple[OpenPart, ...]:
    """Return what is open after a search. `before`: what was open after the one before it."""
    known = {key_of(one.part): one for one in before}
    named = list(_named(report))
    found = {
        key_of(part): OpenPart(
            part, incident, report.test, _nodes(part, report), report.run, _since(known, part, report)
        )
        for part, incident in named
    }
    kept = [one for key, one in known.items() if key not in found and not _is_over(one, report)]
    return (*kept, *found.values())


def key_of(part: BlamedPart) -> str:
    """Return what makes a part one and the same in all searches."""
    return "/".join((part.kind, part.name, part.rail)).replace(" ", "-")


def _named(report: FabricReport) -> Iterator[tuple[BlamedPart, bool]]:
    yield from ((part, False) for part in report.at_fault)
    yield from ((part, True) for part in report.incidents)


def _since(known: dict[str, OpenPart], part: BlamedPart, report: FabricReport) -> datetime:
    one = known.get(key_of(part))
    return report.ended_at if one is None else one.since


def _nodes(part: BlamedPart, report: FabricReport) -> tuple[str, ...]:
    """Return the nodes that a part is about: its own, those that saw it low, or all where nobody tells."""
    if part in report.at_fault:
        return (part.name,)
    return tuple(node for node in part.partners if node in report.nodes) or report.nodes


def _is_over(one: OpenPart, report: FabricReport) -> bool:
    """Return whether a search shows that a part is well, or names it otherwise: the NIC of what was a link.

    Only the same test shows it. What nodes share is well when most of its nodes are good.
    """
    if one.test != report.test:
        return False
    if not one.incident and any(part.name in one.nodes for part in report.at_fault):
        return True
    return sum(node in report.good for node in one.nodes) * 2 > len(one.nodes)
