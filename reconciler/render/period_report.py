"""The report of a period as text: a sentence, then what was out, what drifted, and what was done about it.

Sections are made once, and written for a terminal or as Markdown. Equal facts about many nodes share a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from reconciler.model.gate import Decline
from reconciler.model.period_report import PeriodReport, Quarantine
from reconciler.model.plan import BlockCode
from reconciler.model.reliability import Times
from reconciler.model.units import format_duration
from reconciler.render import reliability, section
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import Cell
from reconciler.render.section import Section
from reconciler.render.section import percent as percent
from reconciler.render.text import NodeNames, count, page, plain, warnings

T = TypeVar("T")

_ROWS = 12  # of one section on a terminal; JSON has all of them
_NAMES = 300  # characters of the nodes of one row
_WHY = 200
_WORTH_SAYING = 0.01  # of the node-hours: a runner that passes every few minutes always lacks the last of them


def verdict(report: PeriodReport) -> str:
    """Return the one sentence that a person reads first."""
    if report.availability is None:
        serving = "nobody could say of any node whether it was in service"
    else:
        serving = f"{percent(report.availability)} of the observed node-hours in service"
        if report.unobserved_share >= _WORTH_SAYING:
            serving += f" ({100 * report.unobserved_share:.1f}% of all not observed)"
    out = len({one.node for one in report.recoveries if one.until is None})
    drift = (
        f"{count(report.introduced, 'difference')} appeared, {report.removed:,} went, {report.open:,} "
        f"{'is' if report.open == 1 else 'are'} open"
    )
    now = f", {count(out, 'node')} out now" if out else ""
    return f"{serving}{now}; {drift}"


def headline(report: PeriodReport) -> Headline:
    busy = report.open or any(one.until is None for one in report.recoveries)
    return Headline("🔶" if busy or report.availability is None else "✅", verdict(report), Verdict.GOOD)


def human(report: PeriodReport) -> str:
    lines = [f"Fleet {plain(report.fleet)}, {period(report)}: {verdict(report)}"]
    lines += [f"  {line}" for line in notes(report)]
    for part in sections(report):
        lines += part.lines(_ROWS, _NAMES, _WHY)
    return page(lines)


def as_markdown(report: PeriodReport) -> str:
    title = f"{headline(report).sign} Fleet {report.fleet}, {period(report)}"
    return section.as_markdown(title, verdict(report), notes(report), sections(report))


# --- what it is about ---


def period(report: PeriodReport) -> str:
    length = format_duration(_seconds(report.since, report.until))
    return f"{_minute(report.since)} to {_minute(report.until)} UTC ({length})"


def notes(report: PeriodReport) -> list[str]:
    lines = []
    if report.watched_since is None:
        lines.append("nobody has looked at its nodes yet: `reconciler drift`, `apply` and `run` do")
    elif report.watched_since > report.since:
        lines.append(f"the ledger knows nothing of the time before {_minute(report.watched_since)} UTC")
    if report.damaged:
        lines.append(f"{count(report.damaged, 'row')} of the ledger can't be read, and left out here")
    return [*lines, *warnings((), report.time_scale)]


def sections(report: PeriodReport) -> Iterator[Section]:
    yield _availability(report)
    if report.recoveries:
        yield Section("Out of service", (_spread("Back in service", report.recover),), _OUT, list(_out(report)))
    if report.replacements:
        replaced = [
            (one.node, one.spare, _minute(one.until), format_duration(one.seconds)) for one in report.replacements
        ]
        says = (_spread("Capacity back", report.replace), "the repair of each node is told above, apart from this")
        yield Section("Replaced by spares", says, ("node", "spare", "served from", "without capacity"), replaced)
    if report.under_way:
        yield Section("Under way", (), ("node", "how far"), sorted(report.under_way.items()))
    if report.quarantined:
        yield Section("Quarantined", (), _QUARANTINED, list(_quarantined(report.quarantined)))
    yield from reliability.sections(report.reliability)
    if report.introduced or report.removed or report.open:
        yield _drift(report)
        rows = [
            (tally.concern, f"{tally.introduced:,}", f"{tally.removed:,}", f"{tally.open:,}", f"{tally.nodes:,}")
            for tally in report.concerns
        ]
        yield Section("What drifted most", (), ("concern", "appeared", "went", "open", "nodes"), rows)
        yield Section("Which nodes drifted most", (), ("appeared", "open", "concerns", "nodes"), list(_top(report)))
    if report.declines:
        yield Section("Gray decline", (_GRAY,), _DECLINED, [_decline(one) for one in report.declines])
    if report.peerless:
        alone = [(NodeNames(one.nodes), one.why) for one in report.peerless]
        yield Section("Bars by peers that don't count", (), ("nodes", "why"), alone)
    if report.actions:
        actions = [(one.action, one.outcome, f"{one.count:,}", f"{one.nodes:,}") for one in report.actions]
        yield Section("What was done", (), ("action", "outcome", "times", "nodes"), actions)


# --- what the gate measured ---

_GRAY = "less than when the node first passed the test, with the same image and tool; no bar refuses it"
_DECLINED = ("node", "test", "metric", "first", "on", "now", "less by")


def _decline(one: Decline) -> tuple[Cell, ...]:
    first, now = (f"{value:g} {one.unit}".rstrip() for value in (one.first, one.now))
    return one.node, one.test, one.metric, first, f"{one.at:%Y-%m-%d}", now, f"{one.share:.1%}"


# --- availability ---


def _availability(report: PeriodReport) -> Section:
    hours = report.hours
    parts = (
        ("in service", hours.in_service),
        ("out of service", hours.out),
        ("set aside by the spec", hours.aside),
        ("not observed", hours.unobserved),
    )
    rows = [
        (name, f"{spent:,.1f}", f"{100 * spent / hours.total:.1f}%")
        for name, spent in parts
        if spent and hours.total
    ]  # fmt: skip
    says = () if rows else ("there are no node-hours to tell of",)
    return Section("Availability", says, ("", "node-hours", "of all"), rows)


_OUT = ("nodes", "still out", "back", "how long", "why")


def _out(report: PeriodReport) -> Iterator[tuple[Cell, ...]]:
    for some in _alike(report.recoveries, lambda one: (one.cause, one.until is None)):
        times = sorted(one.seconds for one in some)
        took = " to ".join(dict.fromkeys((format_duration(times[0]), format_duration(times[-1]))))
        now = some[0].until is None
        number = f"{len(some):,}"
        yield _nodes(one.node for one in some), number if now else "", "" if now else number, took, some[0].cause


def _spread(what: str, times: Times, noun: str = "time") -> str:
    if times.median_s is None or times.mean_s is None or times.p90_s is None:
        return f"{what}: none in this period"
    mean, median, most = map(format_duration, (times.mean_s, times.median_s, times.p90_s))
    return f"{what}: {count(times.count, noun)}, after {median} at the median; mean {mean}, nine of ten within {most}"


_QUARANTINED = ("nodes", "since (UTC)", "until (UTC)", "by", "why")


def _quarantined(found: Sequence[Quarantine]) -> Iterator[tuple[Cell, ...]]:
    def key(one: Quarantine) -> Hashable:
        return one.code, one.why, _minute(one.since), one.until and _minute(one.until)

    for some in _alike(found, key):
        first = some[0]
        by = "the spec" if first.code == BlockCode.QUARANTINED.value else "the reconciler"
        until = _minute(first.until) if first.until is not None else "still"
        yield _nodes(one.node for one in some), _minute(first.since), until, by, first.why


# --- drift ---


def _drift(report: PeriodReport) -> Section:
    form = "%m-%d %H:%M" if report.bucket_s < 86400 else "%Y-%m-%d"
    rows = [
        (day.start.strftime(form), f"{day.introduced:,}", f"{day.removed:,}", f"{day.open:,}")
        for day in report.days
        if day.introduced or day.removed
    ]
    from_ = "hour from (UTC)" if report.bucket_s < 86400 else "day from"
    return Section(
        "Drift",
        (_spread("As specified again", report.converge, "difference"),),
        (from_, "appeared", "went", "open"),
        rows,
    )


def _top(report: PeriodReport) -> Iterator[tuple[Cell, ...]]:
    for some in _alike(report.top_nodes, lambda one: (one.introduced, one.open, one.concerns)):
        first = some[0]
        each = f"{first.introduced:,}" + (" each" if len(some) > 1 else "")
        yield each, f"{first.open:,}", ", ".join(first.concerns), _nodes(one.node for one in some)


def _alike(found: Iterable[T], key: Callable[[T], Hashable]) -> Iterable[list[T]]:
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return groups.values()


def _nodes(names: Iterable[str]) -> NodeNames:
    return NodeNames(tuple(dict.fromkeys(names)))


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


def _seconds(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds()
