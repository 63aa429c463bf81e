"""A node's story for people: how it stands, then what came about and what was done, one line for each.

It is read by somebody who was woken up. So it begins with what counts now; an action and its end are one line; what
came about together is told together; and commit, plan and run stand where they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from reconciler.model.privacy import FreeValue, NodeName, PublicText, SpecValue, ValuePath
from reconciler.model.records import JournalEntry, NodeRecord, RunRecord
from reconciler.model.units import format_duration
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import brief, clock, count, markdown, page, plain, value, warnings

_DETAIL = 200  # characters of a line's last column
_NEVER = datetime.min.replace(tzinfo=UTC)
_VALUES = 6  # drifted values told one by one; of more there are names


@dataclass(frozen=True, slots=True)
class OpenDrift:
    path: ValuePath
    kind: PublicText
    desired: SpecValue
    observed: FreeValue
    since: datetime


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """`limited`: there is more than `entries`, older."""

    node: NodeName
    record: NodeRecord
    drift: Sequence[OpenDrift]
    entries: Sequence[JournalEntry]
    runs: Mapping[PublicText, RunRecord]
    now: datetime
    time_scale: float = 1.0
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    what: str
    ended: str
    detail: str
    run: str = ""

    @property
    def words(self) -> tuple[str, str, str]:
        return self.what, self.ended, brief(self.detail)


def human(story: NodeHistory) -> str:
    said = [*warnings((), story.time_scale), f"{story.node}, as the ledger knows it at {clock(story.now)}", ""]
    said += table(("", ""), list(_standing(story)))[1:]
    told = [(clock(line.at), line.what, line.ended, plain(brief(line.detail), _DETAIL)) for line in lines(story)]
    said += ["", *table(("when", "what", "how it went", "detail"), told)]
    if story.limited:
        said.append(f"  There is more before {clock(story.entries[0].at)}: --last, --since")
    return page(said)


def as_markdown(story: NodeHistory) -> str:
    said = [f"## History of {markdown(story.node)}", ""]
    said += [f"- **{markdown(name)}**: {markdown(text, _DETAIL)}" for name, text in _standing(story)]
    rows = [
        (clock(line.at), markdown(line.what), markdown(line.ended), markdown(brief(line.detail), _DETAIL))
        for line in lines(story)
    ]
    said += ["", *markdown_table(("when", "what", "how it went", "detail"), rows)]
    note = " ".join(warnings((), story.time_scale))
    return "\n".join([*said, *(["", f"<sub>{markdown(note, 300)}</sub>"] if note else []), ""])


# --- how it stands ---------------------------------------------------------------------------------------------------


def _standing(story: NodeHistory) -> Iterator[tuple[str, str]]:
    record, now = story.record, story.now
    if record.malformed:
        yield "damaged", f"{record.malformed}; nothing is done to it until its row is restored"
    holds = [hold for hold in record.holds if hold.until is None or hold.until > now]
    for hold in holds:
        yield "held", f"by {hold.owner} since {_ago(hold.since, now)}: {hold.reason}"
    open_attempts = [attempt for attempt in record.attempts if attempt.ended_at is None]
    for attempt in open_attempts:
        action = f"{attempt.action}:{attempt.target}" if attempt.target else attempt.action
        yield "in flight", f"{action}, begun {_ago(attempt.at, now)}, for {attempt.cause}"
    if record.silent_since:
        yield "silent", ", ".join(f"{source} since {_ago(at, now)}" for source, at in record.silent_since.items())
    yield "drift", _drift(story)
    found = record.certificate
    if found is None:
        yield "certificate", "none"
    else:
        verdicts = ", ".join(f"{result.test} {result.verdict.value}" for result in found.results)
        yield "certificate", f"{'adopted' if found.adopted else verdicts}, {_ago(found.issued_at, now)}"


def _drift(story: NodeHistory) -> str:
    if not story.drift:
        return "none is open"
    first = min(story.drift, key=lambda item: item.since)
    told = [f"{item.path} {item.kind}: {_instead(item.observed, item.desired)}" for item in story.drift[:_VALUES]]
    more = f"; and {len(story.drift) - _VALUES} more" if len(story.drift) > _VALUES else ""
    return f"{count(len(story.drift), 'path')}, the first since {_ago(first.since, story.now)}: {'; '.join(told)}{more}"


def _ago(at: datetime, now: datetime) -> str:
    return f"{clock(at)} ({format_duration(max((now - at).total_seconds(), 0.0))} ago)"


def _instead(observed: Any, desired: Any) -> str:
    return f"{value(observed)} instead of {value(desired)}"


# --- what happened ---------------------------------------------------------------------------------------------------


def lines(story: NodeHistory) -> Iterator[Line]:
    """An outcome is told with its intent, unless that lies before the story's beginning."""
    ends = {entry.attempt: entry for entry in story.entries if entry.event == "outcome"}
    begun = {entry.attempt for entry in story.entries if entry.event == "intent"}
    run, before = "", story.entries[0].at if story.limited else _NEVER
    for (_, event, _), group in groupby(story.entries, key=_together):
        entries = [entry for entry in group if not (event == "outcome" and entry.attempt in begun)]
        for line in _told(event, entries, ends):
            if line.run and line.run != run:
                run = line.run
                yield _run(run, before, entries[0], story.runs)
            yield line
            before = line.at


def _together(entry: JournalEntry) -> tuple[datetime, str, int]:
    """What came about in one look is told together; everything else by itself."""
    return entry.at, entry.event, 0 if entry.event == "drift" else id(entry)


def _told(event: str, entries: Sequence[JournalEntry], ends: Mapping[int | None, JournalEntry]) -> Iterator[Line]:
    if event == "drift":
        yield from _drifts(entries)
        return
    for entry in entries:
        match event:
            case "intent":
                yield _action(entry, ends.get(entry.attempt))
            case "outcome":
                yield Line(entry.at, entry.action, _ended(entry), _after_colon(entry), entry.run)
            case "resume":
                yield Line(entry.at, entry.action, "gone on with", entry.detail)
            case "certificate":
                yield from _certificate(entry)
            case _:
                yield Line(entry.at, _subject(entry), "", entry.detail, entry.run)


def _subject(entry: JournalEntry) -> str:
    """Whom it is about, where that is more than the node."""
    return f"{entry.event} of {entry.node.replace('fleet/*', 'the fleet')}" if "/" in entry.node else entry.event


def _run(name: str, before: datetime, entry: JournalEntry, runs: Mapping[str, RunRecord]) -> Line:
    """At its start; at its first entry that is told, if what is told begins later."""
    found = runs.get(name)
    if found is None:
        return Line(entry.at, "run", "", f"{name}, commit {entry.commit[:12] or 'unknown'}")
    took = (
        ""
        if found.ended_at is None
        else f" after {format_duration((found.ended_at - found.started_at).total_seconds())}"
    )
    ended = "not ended" if found.exit_code is None else f"exit {found.exit_code}{took}"
    plan = f", plan {found.plan}" if found.plan not in ("", name) else ""
    where = f"commit {found.commit[:12]}" if found.commit else "a spec that is not in git"
    at = found.started_at if found.started_at >= before else entry.at
    return Line(at, found.command, ended, f"{name} of {where}{plan}")


def _action(intent: JournalEntry, end: JournalEntry | None) -> Line:
    facts = [f"{name.replace('_', ' ')} {said}" for name, said in intent.evidence.items() if name == "task"]
    cause = intent.detail if intent.detail.startswith("required by ") or not intent.detail else f"for {intent.detail}"
    if end is None:
        return Line(intent.at, intent.action, "not ended", "; ".join(filter(None, (cause, *facts))), intent.run)
    # Long causes of what went well are the least that anybody looks for.
    detail = _after_colon(end)
    return Line(intent.at, intent.action, _ended(end), "; ".join(filter(None, (detail, cause, *facts))), intent.run)


def _ended(outcome: JournalEntry) -> str:
    took = f", {format_duration(outcome.seconds)}" if outcome.seconds is not None else ""
    return f"{value(outcome.evidence.get('outcome'))}{took}"


def _after_colon(outcome: JournalEntry) -> str:
    """Its detail, without the word that it begins with."""
    return outcome.detail.partition(": ")[2]


def _certificate(entry: JournalEntry) -> Iterator[Line]:
    results = entry.evidence.get("results", ())
    yield Line(entry.at, "certificate", "", entry.detail)
    for result in results:
        numbers = ", ".join(
            f"{name} {_number(measured)}" for name, measured in sorted(result.get("metrics", {}).items())
        )
        reasons = "; ".join(map(str, result.get("reasons", ())))
        told = "; ".join(filter(None, (numbers, reasons)))
        yield Line(entry.at, f"  {result.get('test')}", str(result.get("verdict", "")), told)


def _number(measured: Any) -> str:
    return f"{measured:g}" if isinstance(measured, int | float) else str(measured)


def _drifts(entries: Sequence[JournalEntry]) -> Iterator[Line]:
    at, run = (entries[0].at, entries[0].run) if entries else (None, "")
    if at is None:
        return
    bare = [entry for entry in entries if "path" not in entry.evidence]  # of older versions
    gone = [entry for entry in entries if "since" in entry.evidence]
    seen = [entry for entry in entries if "kind" in entry.evidence]
    yield from (Line(at, "drift", "", entry.detail, run) for entry in bare)
    for kind, some in groupby(sorted(seen, key=_kind), key=_kind):
        items = [entry.evidence for entry in some]
        if kind == "unknown" or len(items) > _VALUES:
            yield Line(at, f"drift, {kind}", "appeared", f"{len(items)}: {_names(items)}", run)
            continue
        for item in items:
            told = f"{item['path']}: {_instead(item['observed'], item['desired'])}"
            yield Line(at, f"drift, {kind}", "appeared", told, run)
    if gone:
        longest = max(entry.seconds or 0.0 for entry in gone)
        told = f"as desired again: {_names([entry.evidence for entry in gone])}"
        yield Line(at, "drift", f"gone, {format_duration(longest)}", told, run)


def _kind(entry: JournalEntry) -> str:
    return str(entry.evidence["kind"])


def _names(items: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(str(item["path"]) for item in items)
