"""The reliability of a period as sections of the report, and all of its figures as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from reconciler.model.period_report import PeriodReport
from reconciler.model.reliability import Lemon, Reliability, Times
from reconciler.model.units import format_duration
from reconciler.planner.fleet.lemons import POINTS
from reconciler.render.section import Section, percent
from reconciler.render.text import NodeNames, count

_ANY = "(no model)"
_NO_PERSONA = "(none)"


def sections(made: Reliability) -> Iterator[Section]:
    if made.objectives:
        yield _objectives(made)
    if any(one.failures or one.demand for one in made.spares):
        yield _spares(made)
    if made.incidents:
        rows = [
            (
                one.scope, one.cause, f"{one.since:%Y-%m-%d %H:%M}",
                "still" if one.until is None else f"{one.until:%Y-%m-%d %H:%M}", ", ".join(one.signals),
                NodeNames(one.nodes),
            )
            for one in made.incidents
        ]  # fmt: skip
        head = ("domain", "cause", "since (UTC)", "until (UTC)", "signals", "nodes")
        yield Section("Incidents of failure domains", (), head, rows)
    if made.signals:
        yield _signals(made)
    if made.rungs:
        yield _rungs(made)
    if any(one.failures for one in made.parts):
        yield _parts(made)
    if made.lemons:
        yield _lemons(made)


def _objectives(made: Reliability) -> Section:
    rows = [
        (
            one.persona or _NO_PERSONA, f"{one.nodes:,}",
            "unknown" if one.availability is None else percent(one.availability),
            "" if one.objective is None else f"{one.objective:.4%}".replace("00%", "%"),
            "" if one.budget_h is None else f"{one.budget_h:,.1f}", f"{one.out_h:,.1f}",
            "" if one.burn is None else f"{one.burn:.0%}",
        )
        for one in made.objectives
    ]  # fmt: skip
    head = ("persona", "nodes", "availability", "objective", "budget (node-hours)", "out (node-hours)", "budget spent")
    says = ("The budget is what the objective allows to be out of service in the hours observed, whoever took it out.",)
    return Section("Availability by persona", says if any(row[3] for row in rows) else (), head, rows)


def _spares(made: Reliability) -> Section:
    rows = [
        (
            one.persona or _NO_PERSONA, f"{one.nodes:,}", f"{one.failures:,}", _span(one.lead_s), f"{one.target:.2%}",
            f"{one.spares:,}", f"{one.spares_high:,}", f"{one.demand:,}",
        )
        for one in made.spares
    ]  # fmt: skip
    head = ("persona", "nodes", "failures", "lead time", "covered", "spares", "at the upper limit", "most out at once")
    says = (
        "Spares that keep a persona at strength with the probability of its objective, or 99%: failures are taken as "
        "Poisson, nodes out as binomial. At the upper limit: with the greatest rate that these failures allow (95%).",
    )
    return Section("Spares", says, head, rows)


def _signals(made: Reliability) -> Section:
    rows = [
        (
            one.model or _ANY, one.signal, f"{one.failures:,}", "" if one.mtbf_h is None else f"{one.mtbf_h:,.0f} h",
            _span(one.detect.mean_s), _span(one.repair.mean_s), _span(one.repair.p90_s),
        )
        for one in sorted(made.signals, key=lambda one: (-one.failures, one.model, one.signal))
    ]  # fmt: skip
    head = ("model", "signal", "began", "MTBF", "MTTD", "MTTR", "90% within")
    says = (
        "MTBF: node-hours observed for each time. MTTD: from the first reading that shows it to the first action for "
        "it; how long it was there before that reading, no source tells. MTTR: until it is gone.",
    )
    return Section("Signals of illness", says, head, rows)


def _rungs(made: Reliability) -> Section:
    rows = [
        (
            one.model or _ANY, one.signal, one.rung, f"{one.attempts:,}", f"{one.healed:,}",
            f"{one.healed / one.attempts:.0%}", _span(one.heal.median_s),
        )
        for one in made.rungs
    ]  # fmt: skip
    says = tuple(
        f"{one.model or _ANY}, {one.signal}: {', '.join(one.rungs)} heals sooner than the policy's "
        f"{', '.join(one.ladder)}; a person changes the ladder, or `rungs` of the signal's row"
        for one in made.proposals
    )
    head = ("model", "signal", "rung", "attempts", "healed", "share", "healed after (median)")
    return Section("Which rung healed what", says, head, rows)


def _parts(made: Reliability) -> Section:
    rows = [
        (
            one.model or _ANY, one.part, f"{one.failures:,}", f"{one.part_hours:,.0f}", f"{one.per_million_h:,.1f}",
            f"{one.low:,.1f} to {one.high:,.1f}",
        )
        for one in made.parts
        if one.failures
    ]  # fmt: skip
    says = ("Failures for a million hours of the part, with the exact 95% interval of a Poisson count.",)
    return Section("Failure rates", says, ("model", "part", "failures", "part-hours", "rate", "95%"), rows)


def _lemons(made: Reliability) -> Section:
    rows = [
        (
            one.node, f"{one.score:,}", f"{one.isolations:,}", f"{one.repairs:,}", f"{one.gate_failures:,}",
            f"{one.xids:,}", ", ".join(f"{many} {kind}" for kind, many in one.signals.items()),
        )
        for one in made.lemons
    ]  # fmt: skip
    head = ("node", "score", "isolations", "repairs", "gate failures", "XIDs", "other signals by class")
    return Section("Lemon scores over 28 days", (lemon_formula(),), head, rows)


def lemon_formula() -> str:
    return "Points: " + ", ".join(f"{points} for each {what}" for what, points in POINTS.items()) + "; none acts on it."


def lemon_sentence(one: Lemon) -> str:
    parts = (
        (one.isolations, "isolation"), (one.repairs, "repair"), (one.gate_failures, "gate failure"), (one.xids, "XID"),
    )  # fmt: skip
    told = [count(many, what) for many, what in parts if many]
    told += [f"{many} other {kind}" for kind, many in one.signals.items()]
    return f"{one.score} in 28 days ({', '.join(told)})"


def _span(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


# --- CSV -------------------------------------------------------------------------------------------------------------

_SUBJECTS = ("persona", "model", "node", "scope", "part", "signal", "rung")


def as_csv(report: PeriodReport) -> str:
    """Return one line for each figure: what it is of, its name, its value. One that is not known has no line.

    Names are those of the JSON document, whose endings are units: `_s` seconds, `_h` hours. Lists are counted.
    """
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n")
    writer.writerow(("table", *_SUBJECTS, "measure", "value"))
    made = report.reliability
    for table in (report.hours, report.recover):
        name = "hours" if table is report.hours else "recover"
        writer.writerows((name, *[""] * len(_SUBJECTS), *figure) for figure in _numbers(table))
    for field in fields(made):
        for one in getattr(made, field.name):
            subjects = [getattr(one, subject, "") for subject in _SUBJECTS]
            writer.writerows((field.name, *subjects, *figure) for figure in _numbers(one))
    return "".join(lines).rstrip("\n")


def _numbers(one: Any) -> Iterator[tuple[str, float]]:
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, Times):
            yield from ((f"{field.name}_{name}", number) for name, number in _numbers(value))
        elif isinstance(value, tuple):
            yield field.name, len(value)
        elif isinstance(value, int | float):
            yield field.name, value
