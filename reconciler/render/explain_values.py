"""The values of `explain`: wanted, since which line and commit, found where and when, and the verdict."""

from __future__ import annotations

from typing import Any

from reconciler.gate.certificate import valid_until
from reconciler.model.desired import LineOrigin
from reconciler.model.drift import DriftClass
from reconciler.model.observed import Answered
from reconciler.model.vocab import Source, UnknownReason
from reconciler.render.explanation import Explanation, Value, values
from reconciler.render.tables import table
from reconciler.render.text import clock, plain, position, value

HEAD = ("value", "wanted", "set by", "commit", "found", "verdict", "read")


def human_values(made: Explanation) -> list[str]:
    """All of them: what needs no attention first, as who reads a terminal reads its end. One path: in full."""
    found = values(made)
    if made.path:
        return [line for v in found for line in (*_in_full(made, v), "")]
    lines: list[str] = []
    for title, head, rows in _groups(made, found):
        if rows:
            lines += [f"{title} ({len(rows)})", *table(head, rows), ""]
    return lines + _commits(found)


_Rows = list[tuple[str, ...]]


def _groups(made: Explanation, found: list[Value]) -> list[tuple[str, tuple[str, ...], _Rows]]:
    """(title, head, rows). Of commits only their names: who and when is told once for each."""
    if made.plan is None:
        rows: _Rows = [(v.path, value(v.wanted), position(v.place), _name(v.origin)) for v in found]
        return [("wanted", ("value", "wanted", "set by", "commit"), rows)]
    well, unknown, ignored, differs = _Rows(), _Rows(), _Rows(), _Rows()
    for v in found:
        set_by = (position(v.place), _name(v.origin))
        if v.item is None:
            well.append((v.path, value(v.wanted), *set_by, read(made, v)))
        elif v.item.kind is DriftClass.UNKNOWN:
            unknown.append((v.path, value(v.wanted), *set_by, v.verdict, read(made, v)))
        else:
            row = (v.path, value(v.wanted), value(v.found), *set_by, v.verdict, read(made, v))
            (ignored if v.item.kind is DriftClass.IGNORED else differs).append(row)
    every = ("value", "wanted", "found", "set by", "commit", "verdict", "read")
    return [
        ("as specified", ("value", "wanted and found", "set by", "commit", "read"), well),
        ("ignored", every, ignored),
        ("not known", ("value", "wanted", "set by", "commit", "verdict", "read"), unknown),
        ("not as specified", every, differs),
    ]


def _name(origin: LineOrigin | None) -> str:
    if origin is None:
        return ""
    return origin.commit[:12] or "not committed"


def _commits(found: list[Value]) -> list[str]:
    origins = {v.origin.commit: v.origin for v in found if v.origin is not None and v.origin.commit}
    newest = sorted(origins.values(), key=lambda origin: str(origin.at), reverse=True)
    rows = [(_name(o), f"{o.at:%Y-%m-%d %H:%M}", o.author, o.summary + _cut_off(o)) for o in newest]
    return [*table(("commit", "set at", "author", "summary"), rows), ""] if rows else []


def _cut_off(origin: LineOrigin) -> str:
    return " (or earlier: this clone is shallow)" if origin.or_earlier else ""


def value_rows(made: Explanation) -> list[tuple[str, ...]]:
    """One row each, as HEAD says."""
    looked = made.observed is not None
    return [
        (
            v.path, value(v.wanted), position(v.place), commit(v.origin),
            value(v.found) if looked else "", v.verdict if looked else "", read(made, v),
        )
        for v in values(made)
    ]  # fmt: skip


def value_documents(made: Explanation) -> list[dict[str, Any]]:
    return [
        {
            "path": v.path,
            "wanted": v.wanted,
            "set_by": position(v.place),
            "commit": None if v.origin is None else _commit_document(v.origin),
            "found": v.found,
            "verdict": v.verdict,
            "kind": "converged" if v.item is None else v.item.kind.value,
            "first_seen": None if v.item is None or v.item.first_seen is None else v.item.first_seen.isoformat(),
            "source": None if v.source is None else v.source.value,
            "read": read(made, v),
            "read_at": v.reading.at.isoformat() if isinstance(v.reading, Answered) else None,
        }
        for v in values(made)
    ]


def _commit_document(origin: LineOrigin) -> dict[str, Any]:
    return {
        "commit": origin.commit,
        "author": origin.author,
        "at": None if origin.at is None else origin.at.isoformat(),
        "summary": origin.summary,
        "or_earlier": origin.or_earlier,
    }


def _in_full(made: Explanation, v: Value) -> list[str]:
    rows = [("wanted", value(v.wanted)), ("set by", position(v.place)), ("commit", commit(v.origin, whole=True))]
    if made.plan is not None:
        applied = v.item.applied if v.item is not None else None
        kept = made.record.applied.get(v.path) if made.record is not None else None
        at = f", since {clock(kept.at)} ({made.ago(kept.at)})" if kept is not None else ""
        rows += [
            ("found", value(v.found)),
            ("read", read(made, v, exactly=True)),
            ("verdict", v.verdict + _age(made, v)),
            ("applied", f"{value(applied)}{at}" if applied is not None else ""),
        ]
    return [v.path, *(plain(f"  {name:<8} {said}", 1000) for name, said in rows if said)]


def _age(made: Explanation, v: Value) -> str:
    return f", {made.ago(v.item.first_seen)}" if v.item is not None and v.item.first_seen is not None else ""


def commit(origin: LineOrigin | None, *, whole: bool = False) -> str:
    """ "0e99677dddbc Jane Doe 2026-11-20"; "" where git can't tell."""
    if origin is None or origin.at is None:
        return _name(origin)
    at = f"{clock(origin.at)}: {origin.summary}" if whole else f"{origin.at:%Y-%m-%d}"
    return f"{_name(origin)} {origin.author} {at}{_cut_off(origin)}"


def read(made: Explanation, v: Value, *, exactly: bool = False) -> str:
    """Say from which source a value was read and how long ago; or why it was not."""
    if v.source is Source.LEDGER and v.path == "gate.certificate":
        return _certificate(made)
    if v.source is None or v.reading is None:
        return ""
    if isinstance(v.reading, Answered):
        at = f", at {clock(v.reading.at)}" if exactly else ""
        return f"{v.source}, {made.ago(v.reading.at)}{at}"
    if v.reading.reason is UnknownReason.EXPLAINED and v.reading.detail:
        return f"{v.source}: {v.reading.detail}"
    detail = f" ({v.reading.detail})" if exactly and v.reading.detail else ""
    return f"{v.source}: {v.reading.reason}{detail}"


def _certificate(made: Explanation) -> str:
    found = made.record.certificate if made.record is not None else None
    if found is None:
        return "ledger"
    end = valid_until(found, made.desired.profile.acceptance)
    until = "" if end is None else f", valid until {end:%Y-%m-%d}"
    earlier = "".join([f"; {', '.join(proof.tests)} {made.ago(proof.issued_at)}" for proof in found.earlier])
    return f"ledger, {'adopted' if found.adopted else 'issued'} {made.ago(found.issued_at)}{earlier}{until}"
