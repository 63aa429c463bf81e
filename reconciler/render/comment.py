"""Reports as comments on a pull request, or as one Markdown document. A pure function of the document and its place.

One comment per kind, fleet and environment: its hidden first line says which it is, so that it is found again. Order as
reviewers read (conventions R4): verdict, what is dangerous, what is held back, then details. Written by `writer`, which
sees to its size; plan_comment, drift and outcome say what stands in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from reconciler.model.json_text import parse_json
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render import drift, outcome, plan_comment
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import CHARACTERS, MarkdownWriter, Written, is_link, write
from reconciler.render.text import markdown, plain

Document = Plan | DriftReport | ApplyOutcome

_MARK: Final = re.compile(r"\A<!-- reconciler:v1 (\{.*\}) -->$", re.MULTILINE)
_KEEP: Final = 2000  # characters for the hidden line and for what is added later
_NAME: Final = 64  # characters of a name in it
_URL: Final = 300
_LOG: Final = 8000  # characters of the end of a log


class Kind(StrEnum):
    PLAN = "plan"
    DRIFT = "drift"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a report: "" where nobody said."""

    environment: str = ""
    run_url: str = ""  # of the job that made it
    head: str = ""  # commit that it is about

    def rest(self, file: str) -> str:
        """Say where the reader finds what the comment has no room for."""
        return f"all of it is in {file}" + (", an artifact of the run" if self.run_url else "")


@dataclass(frozen=True, slots=True)
class Comment:
    key: str
    title: str  # one line, for a commit status or an issue
    verdict: Verdict
    text: str
    truncated: bool


def key_of(kind: Kind, fleet: str, environment: str) -> str:
    return f"{kind}/{plain(fleet, _NAME)}/{plain(environment, _NAME)}"


def comment(document: Document, place: Place, most: int = CHARACTERS) -> Comment:
    """`most`: characters that there is room for."""
    match document:
        case Plan():
            kind, said, about, file = Kind.PLAN, plan_comment.headline(document), "Plan for", "plan.json"
        case DriftReport():
            kind, said, about, file = Kind.DRIFT, drift.headline(document), "Drift of", "drift.json"
        case ApplyOutcome():
            kind, said, about, file = Kind.APPLY, outcome.headline(document), "Applied to", "outcome.json"

    def body(writer: MarkdownWriter) -> None:
        where = f", {place.environment}" if place.environment else ""
        writer.heading(f"{said.sign} {about} fleet {document.fleet}{where}: {said.text}", 2)
        match document:
            case Plan():
                plan_comment.write(writer, document)
            case DriftReport():
                drift.write(writer, document)
            case ApplyOutcome():
                outcome.write(writer, document)
        writer.links(place.run_url, file)

    fingerprint = document.fingerprint if isinstance(document, Plan) else ""
    title = f"{about} fleet {plain(document.fleet, _NAME)}: {said.text}"
    key = key_of(kind, document.fleet, place.environment)
    return _comment(key, title, said.verdict, write(body, place.rest(file), most=most - _KEEP), place, fingerprint)


class Missing(StrEnum):
    """A report whose document does not exist."""

    PLAN = "plan"
    DRIFT = "drift"
    APPLY = "apply"
    FORK = "fork"  # a plan that was to be made offline

    @property
    def kind(self) -> Kind:
        return Kind.PLAN if self is Missing.FORK else Kind(self.value)


_MISSING: Final = {
    Missing.PLAN: (
        Headline("❌", "there is no plan", Verdict.BROKEN),
        "**The command failed, so nobody knows what this change would do to any node.** "
        "No earlier plan speaks for this commit.",
    ),
    Missing.DRIFT: (
        Headline("❌", "there is no drift report", Verdict.BROKEN),
        "**The command failed, so nobody knows whether the nodes are as specified.**",
    ),
    Missing.APPLY: (
        Headline("❌", "there is no report of what was applied", Verdict.BROKEN),
        "**There is no outcome: it was not approved, or the command failed.** If it had begun, what was done by then "
        "is in the ledger: `reconciler history NODE` tells.",
    ),
    Missing.FORK: (
        Headline("❌", "there is no plan", Verdict.BROKEN),
        "**The command failed, so nobody knows what this change would do to any node.** A fork gets no credentials: it "
        "is planned offline, from what the drift workflow published last. If that has not run yet, run it, and then "
        "the job of this report again.",
    ),
}


def failure(what: Missing, fleet: str, log: str, place: Place) -> Comment:
    """Return a comment without a report: that there is none, the end of the log, and what was not checked."""
    said, unchecked = _MISSING[what]

    def body(writer: MarkdownWriter) -> None:
        where = f", {place.environment}" if place.environment else ""
        writer.heading(f"{said.sign} Fleet {fleet}{where}: {said.text}", 2)
        writer.raw(unchecked)
        writer.log(log[-_LOG:])
        writer.links(place.run_url)

    written = write(body, "the log of the run has all of it", most=CHARACTERS - _KEEP)
    title = f"Fleet {plain(fleet, _NAME)}: {said.text}"
    return _comment(key_of(what.kind, fleet, place.environment), title, said.verdict, written, place)


def as_markdown(document: Document) -> str:
    """The same for a file or a terminal: without its hidden line."""
    return comment(document, Place()).text.partition("\n")[2]


def _comment(key: str, title: str, verdict: Verdict, written: Written, place: Place, fingerprint: str = "") -> Comment:
    said = {
        "key": key,
        "fingerprint": fingerprint[:_NAME],
        "head": place.head[:_NAME],
        "run": place.run_url[:_URL],
        "truncated": written.truncated,
    }
    # Nothing in it may end an HTML comment.
    text = json.dumps(said).replace("<", "\\u003c").replace(">", "\\u003e").replace("--", "-\\u002d")
    mark = f"<!-- reconciler:v1 {text} -->"
    return Comment(key, title, verdict, f"{mark}\n{written.text}", written.truncated)


def mark_of(text: str) -> Mapping[str, Any]:
    """Return the data in the hidden line of a comment of ours; None for any other comment."""
    found = _MARK.match(text.replace("\r\n", "\n"))
    if found is None:
        return {}
    try:
        said = parse_json(found[1])
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def status_line(applied: Comment, place: Place) -> str:
    """Return what a plan's comment says once the plan was applied."""
    said = markdown(applied.title, 300)
    return f"**{said}** ([run]({place.run_url}))" if is_link(place.run_url) else f"**{said}**"


def with_status(text: str, line: str) -> str:
    """The comment with what became of it under its title: the report itself stays as it was (conventions R3)."""
    head, _, body = text.partition("\n\n")
    added = f"{head}\n\n> {line}\n\n{body}"
    return added if len(added) <= len(text) + _KEEP and line not in text else text
