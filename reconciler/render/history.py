"""A node's history for people: its status now, then what came about and what was done, one line for each.

It is read by somebody who was woken up. So it begins with what counts now; an action and its end are one line; what
came about together is told together; and commit, plan and run stand where they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from reconciler.model.privacy import FreeText, FreeValue, NodeName, PublicText, SpecValue, ValuePath
from reconciler.model.records import (
    BAD,
    COUNTED,
    HEALED,
    IDLE,
    LASTS,
    LOG_READ,
    NO_CLUSTER,
    SHARED,
    WAS_SHARED,
    JournalEntry,
    NodeRecord,
    RunRecord,
    unhealed_paths,
)
from reconciler.model.units import format_duration
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import brief, clock, count, markdown, page, plain, value, warnings

_DETAIL = 200  # characters of a line's last column
_NEVER = datetime.min.replace(tzinfo=UTC)
_NO_SOURCE = (BAD, IDLE, NO_CLUSTER)  # keys beside a node's silences
_VALUES = 6  # drifted values with their details; of more, the names alone


@dataclass(frozen=True, slots=True)
class OpenDrift:
    path: ValuePath
    kind: PublicText
    desired: SpecValue
    observed: FreeValue
    since: datetime


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """The journal and the record of a node. `entries`: oldest first; `limited`: there are older ones."""

    node: NodeName
    record: NodeRecord
    drift: Sequence[OpenDrift]
    entries: Sequence[JournalEntry]
    runs: Mapping[PublicText, RunRecord]
    now: datetime
    time_scale: float = 1.0
    limited: bool = False
    remarks: tuple[FreeText, ...] = ()  # on its certificate: bars that don't count, metrics that decline


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


def human(history: NodeHistory) -> str:
    said = [*warnings((), history.time_scale), f"{history.node}, as the ledger knows it at {clock(history.now)}", ""]
    said += table(("", ""), list(_status(history)))[1:]
    rows = [(clock(line.at), line.what, line.ended, plain(brief(line.detail), _DETAIL)) for line in lines(history)]
    said += ["", *table(("when", "what", "how it went", "detail"), rows)]
    if history.limited:
        said.append(f"  There is more before {clock(history.entries[0].at)}: --last, --since")
    return page(said)


def as_markdown(history: NodeHistory) -> str:
    said = [f"## History of {markdown(history.node)}", ""]
    said += [f"- **{markdown(name)}**: {markdown(text, _DETAIL)}" for name, text in _status(history)]
    rows = [
        (clock(line.at), markdown(line.what), markdown(line.ended), markdown(brief(line.detail), _DETAIL))
        for line in lines(history)
    ]
    said += ["", *markdown_table(("when", "what", "how it went", "detail"), rows)]
    note = " ".join(warnings((), history.time_scale))
    return "\n".join([*said, *(["", f"<sub>{markdown(note, 300)}</sub>"] if note else []), ""])


# --- its status now ---------------------------------------------------------------------------------------------------


def _status(history: NodeHistory) -> Iterator[tuple[str, str]]:
    record, now = history.record, history.now
    if record.malformed:
        yield "damaged", f"{record.malformed}; nothing is done to it until its row is restored"
    holds = [hold for hold in record.holds if hold.until is None or hold.until > now]
    for hold in holds:
        yield "held", f"by {hold.owner} since {_ago(hold.since, now)}: {hold.reason}"
    open_attempts = [attempt for attempt in record.attempts if attempt.ended_at is None]
    for attempt in open_attempts:
        action = f"{attempt.action}:{attempt.target}" if attempt.target else attempt.action
        yield "in flight", f"{action}, begun {_ago(attempt.at, now)}, for {attempt.cause}"
    events = unhealed_paths(record.silent_since)
    kept = (SHARED, WAS_SHARED, COUNTED, HEALED, LOG_READ, LASTS)  # by the planner for itself: no silence
    silences = {
        key: at for key, at in record.silent_since.items() if not key.startswith(kept) and key not in _NO_SOURCE
    }
    if (at := record.silent_since.get(NO_CLUSTER)) is not None:
        yield "cluster", f"none since a teardown took K3s from it {_ago(at, now)}"
    if silent := {source: at for source, at in silences.items() if source not in events}:
        yield "silent", ", ".join(f"{source} since {_ago(at, now)}" for source, at in silent.items())
    if events:
        seen = (f"{path} since {_ago(record.silent_since[key], now)}" for key, path in events.items())
        yield "not proved healed", ", ".join(seen)
    yield "drift", _drift(history)
    found = record.certificate
    if found is None:
        yield "certificate", "none"
    else:
        verdicts = ", ".join(f"{result.test} {result.verdict.value}" for result in found.results)
        yield "certificate", f"{'adopted' if found.adopted else verdicts}, {_ago(found.issued_at, now)}"
    for remark in history.remarks:
        yield "measured", remark


def _drift(history: NodeHistory) -> str:
    if not history.drift:
        return "none is open"
    first = min(history.drift, key=lambda item: item.since)
    items = [f"{item.path} {item.kind}: {_instead(item.observed, item.desired)}" for item in history.drift[:_VALUES]]
    more = f"; and {len(history.drift) - _VALUES} more" if len(history.drift) > _VALUES else ""
    paths = count(len(history.drift), "path")
    return f"{paths}, the first since {_ago(first.since, history.now)}: {'; '.join(items)}{more}"


def _ago(at: datetime, now: datetime) -> str:
    return f"{clock(at)} ({format_duration(max((now - at).total_seconds(), 0.0))} ago)"


def _instead(observed: Any, desired: Any) -> str:
    return f"{value(observed)} instead of {value(desired)}"


# --- what happened ---------------------------------------------------------------------------------------------------


def lines(history: NodeHistory) -> Iterator[Line]:
    """Yield the lines of a history. An outcome joins its intent, unless the intent is older than the first entry."""
    ends = {entry.attempt: entry for entry in history.entries if entry.event == "outcome"}
    begun = {entry.attempt for entry in history.entries if entry.event == "intent"}
    run, before = "", history.entries[0].at if history.limited else _NEVER
    for (_, event, _), group in groupby(history.entries, key=_together):
        entries = [entry for entry in group if not (event == "outcome" and entry.attempt in begun)]
        for line in _lines_of(event, entries, ends):
            if line.run and line.run != run:
                run = line.run
                yield _run(run, before, entries[0], history.runs)
            yield line
            before = line.at


def _together(entry: JournalEntry) -> tuple[datetime, str, int]:
    """Return a key that drift found by one pass shares; every other entry has one of its own."""
    return entry.at, entry.event, 0 if entry.event == "drift" else id(entry)


def _lines_of(event: str, entries: Sequence[JournalEntry], ends: Mapping[int | None, JournalEntry]) -> Iterator[Line]:
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
    """Name the event, and its subject where that is more than the node."""
    return f"{entry.event} of {entry.node.replace('fleet/*', 'the fleet')}" if "/" in entry.node else entry.event


def _run(name: str, before: datetime, entry: JournalEntry, runs: Mapping[str, RunRecord]) -> Line:
    """Return the line of a run, at its start; at its first entry here if the history begins later."""
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
    # The cause comes last: it is long, and nobody looks for it when the action went well.
    detail = _after_colon(end)
    return Line(intent.at, intent.action, _ended(end), "; ".join(filter(None, (detail, cause, *facts))), intent.run)


def _ended(outcome: JournalEntry) -> str:
    took = f", {format_duration(outcome.seconds)}" if outcome.seconds is not None else ""
    return f"{value(outcome.evidence.get('outcome'))}{took}"


def _after_colon(outcome: JournalEntry) -> str:
    """Return the detail without the word that it begins with."""
    return outcome.detail.partition(": ")[2]


def _certificate(entry: JournalEntry) -> Iterator[Line]:
    results = entry.evidence.get("results", ())
    yield Line(entry.at, "certificate", "", entry.detail)
    for result in results:
        numbers = ", ".join(
            f"{name} {_number(measured)}" for name, measured in sorted(result.get("metrics", {}).items())
        )
        reasons = "; ".join(map(str, result.get("reasons", ())))
        detail = "; ".join(filter(None, (numbers, reasons)))
        yield Line(entry.at, f"  {result.get('test')}", str(result.get("verdict", "")), detail)


def _number(measured: Any) -> str:
    return f"{measured:g}" if isinstance(measured, int | float) else str(measured)


def _drifts(entries: Sequence[JournalEntry]) -> Iterator[Line]:
    at, run = (entries[0].at, entries[0].run) if entries else (None, "")
    if at is None:
        return
    bare = [entry for entry in entries if "path" not in entry.evidence]  # written by older versions
    gone = [entry for entry in entries if "since" in entry.evidence]
    seen = [entry for entry in entries if "kind" in entry.evidence]
    yield from (Line(at, "drift", "", entry.detail, run) for entry in bare)
    for kind, some in groupby(sorted(seen, key=_kind), key=_kind):
        items = [entry.evidence for entry in some]
        if kind == "unknown" or len(items) > _VALUES:
            yield Line(at, f"drift, {kind}", "appeared", f"{len(items)}: {_names(items)}", run)
            continue
        for item in items:
            detail = f"{item['path']}: {_instead(item['observed'], item['desired'])}"
            yield Line(at, f"drift, {kind}", "appeared", detail, run)
    if gone:
        longest = max(entry.seconds or 0.0 for entry in gone)
        detail = f"as desired again: {_names([entry.evidence for entry in gone])}"
        yield Line(at, "drift", f"gone, {format_duration(longest)}", detail, run)


def _kind(entry: JournalEntry) -> str:
    return str(entry.evidence["kind"])


def _names(items: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(str(item["path"]) for item in items)
