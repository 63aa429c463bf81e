"""The figures of the period behind, for the page. An unknown figure is a word, never a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.model.period_report import PeriodReport
from reconciler.model.reliability import Times
from reconciler.model.units import format_duration
from reconciler.render.period_report import percent
from reconciler.render.text import count


@dataclass(frozen=True, slots=True)
class Figure:
    label: str
    value: str
    detail: str


def figures(made: PeriodReport) -> Iterator[Figure]:
    drift = f"{made.introduced:,} introduced, {made.removed:,} removed"
    yield Figure("Drift open now", f"{made.open:,}", drift)
    yield Figure("Time until drift is gone", _median(made.converge), _more(made.converge, "removed"))
    yield Figure("Time to recover", _median(made.recover), _more(made.recover, "in service again"))
    hours = made.hours
    if made.availability is None:
        yield Figure("Availability", "unknown", "no node was seen in or out of service")
    else:
        detail = f"{hours.in_service:,.0f} of {hours.in_service + hours.out:,.0f} node-hours seen"
        yield Figure("Availability", percent(made.availability), detail)
    for one in made.reliability.objectives:
        if one.burn is not None and one.budget_h is not None:
            detail = f"{one.out_h:,.1f} of {one.budget_h:,.1f} node-hours that the objective allows"
            yield Figure(f"Error budget of {one.persona}", f"{one.burn:.0%} spent", detail)
    if made.unobserved_share >= 0.0001:
        yield Figure("Not observed", percent(made.unobserved_share), f"{hours.unobserved:,.0f} node-hours")


def _median(times: Times) -> str:
    return "none" if times.median_s is None else format_duration(times.median_s)


def _more(times: Times, what: str) -> str:
    if times.mean_s is None or times.p90_s is None:
        return f"nothing was {what} in the period"
    ninety = f"90% within {format_duration(times.p90_s)}, mean {format_duration(times.mean_s)}"
    return f"median of {count(times.count, 'time')}; {ninety}"
