"""The parts that all renderers share: values, node names and escapes.

Strings that come from a BMC, a host or a cluster are untrusted (pitfall M5, conventions R7): `plain` takes the teeth
out of them for a terminal, `markdown` for a comment.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from reconciler.model.node_names import NodeNames as NodeNames
from reconciler.model.node_names import count as count
from reconciler.model.node_names import fold as fold
from reconciler.model.printable import SEALED, visible
from reconciler.model.units import format_duration

if TYPE_CHECKING:  # every command prints, and --help needs no model
    from reconciler.model.desired import SpecSource
    from reconciler.model.errors import Position
    from reconciler.model.plan import Incident, PlannedAction
    from reconciler.model.vocab import Disruption

_NARROWEST = 22  # of a last column: its lines go on below the row when it has less room
MAX_VALUE = 120  # characters of one value in a table; JSON always has all of it
_OURS = "\t\u200b"  # the last parts links and mentions in Markdown
_COMMAND = re.compile(r" *(?:\$|reconciler|export|git|gh|curl|kubectl|source) \S")
_BLANKS = str.maketrans("\t\r\n", "   ")
_DIGEST = re.compile(r"[0-9a-f]{40,128}")
# & begins an entity, which is an @ or # once it is read; % and $ name a milestone and a snippet on GitLab.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&]|%(?=[\w\"])|\$(?=\d))")


def plain(text: str, limit: int = MAX_VALUE) -> str:
    """Return text for a terminal: one line of at most `limit` characters, with unprintable characters as escapes."""
    if text.isprintable() and len(text) <= limit:
        return text
    read = text[: 16 * limit]  # of a megabyte of noise
    clean = visible(read.translate(_BLANKS))
    return clean if len(clean) <= limit and len(read) == len(text) else clean[: limit - 1] + "…"


def page(lines: Iterable[str]) -> str:
    """Return a document of exactly these lines: a line break in a name begins no other."""
    return "".join(visible(line, keep=_OURS) + "\n" for line in lines)


def code(text: str) -> str:
    """Return a code span of Markdown, without backticks, which would end it."""
    return "`" + visible(text).replace("`", "\\x60") + "`"


def markdown(text: str, limit: int = MAX_VALUE) -> str:
    """Return text for a comment: one line, nothing that formats, mentions, links or closes a table cell."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text, limit))
    return escaped.replace("@", "@\u200b").replace("://", ":\u200b//").replace("www.", "www\u200b.")


def html(text: str, limit: int = MAX_VALUE) -> str:
    """Return text for inside a tag of a comment, where Markdown is not read: no tags, mentions or links."""
    escaped = escape(plain(text, limit))
    return escaped.replace("@", "@\u200b").replace("://", ":\u200b//").replace("www.", "www\u200b.")


def fit(text: str, width: int) -> str:
    """Break lines longer than a terminal at spaces, and continue them under their last column.

    No word is broken, so that paths and serials can be copied: a column that is too narrow for one goes on below its
    row. A line that is a command stays whole, as two lines would be two commands.
    """
    lines = []
    for line in text.split("\n"):
        if len(line) <= width or _COMMAND.match(line):
            lines.append(line)
            continue
        leading = len(line) - len(line.lstrip())
        gap = line.rfind("  ", leading, width)  # before the last column
        longest = max(map(len, line[gap + 2 :].split()), default=0)
        column = gap >= 0 and gap + 2 <= width - max(_NARROWEST - 2, longest)
        lines += textwrap.wrap(
            line, width, subsequent_indent=" " * (gap + 2 if column else min(leading + 4, width // 2)),
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    return "\n".join(lines)


def brief(text: str) -> str:
    """Shorten digests to the part that people compare."""
    return _DIGEST.sub(lambda match: match[0][:12] + "…", text)


def value(found: Any) -> str:
    """Return a JSON value as people write it. None is a value that nobody could read."""
    if found is None:
        return "?"
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, list | tuple):
        return ", ".join(value(item) for item in found) or "none"
    if isinstance(found, Mapping):
        return ", ".join(f"{key}={value(item)}" for key, item in sorted(found.items())) or "none"
    text = str(found)
    if _DIGEST.fullmatch(text):
        return text[:12] + "…"
    if text.startswith(SEALED):
        return "another"  # than the spec's: more was not published
    return plain(text) or '""'


def disruption(level: Disruption) -> str:
    return level.label.replace("_", " ")


def estimate(actions: Iterable[PlannedAction]) -> str:
    """Say how long actions take one after another; with enough history, also the 90th percentile.

    Of several, the sum of what each stays within: careful, for they are seldom slow all at once.
    """
    found = tuple(actions)
    text = f"about {format_duration(sum(action.estimate_s for action in found))}"
    most = [action.p90_s for action in found if action.p90_s is not None]
    return f"{text} (90% within {format_duration(sum(most))})" if most and len(most) == len(found) else text


def clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def source(spec: SpecSource) -> str:
    """Describe the commit of the spec: a report without it is worth little."""
    if not spec.commit:
        return f"{spec.directory} (not in git)"
    dirty = ", with uncommitted changes" if spec.dirty else ""
    at = f"{spec.rev} = " if spec.rev and spec.rev != spec.commit else ""
    return f"{spec.directory} at {at}{spec.commit[:12]}{dirty}"


def position(at: Position | None) -> str:
    return str(at) if at is not None else "the default"


def incidents(found: Iterable[Incident]) -> list[str]:
    """Return a line for each incident, which a person must decide."""
    return [
        f"INCIDENT {f'of {one.scope}, ' if one.cause else ''}{one.signal} on {count(len(one.nodes), 'node')}"
        f"{'' if one.cause else f' of {one.scope}'}: {plain(one.detail, 1000)}"
        for one in found
    ]


def stop(stopped: str, braked: str) -> list[str]:
    """Return the sentences above all else while somebody has stopped the fleet, or the storm brake is set."""
    said = {"stopped": stopped, "storm brake": braked}
    return [plain(word.upper() + text.removeprefix(word), 900) for word, text in said.items() if text]


def warnings(insecure: Iterable[str], time_scale: float) -> list[str]:
    """Return what every output must say about how it was made."""
    lines = [f"INSECURE: {sentence}" for sentence in insecure]
    if time_scale != 1.0:
        lines.append(
            f"Lab: all times and durations are the fleet's, whose time runs {time_scale:g} times as fast as yours"
        )
    return lines
