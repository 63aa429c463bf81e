"""The texts of messages: plain text of bounded length, which whoever sends it escapes for its channel.

What machines report is part of it, so control characters are shown as escapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from reconciler.model.node_names import NodeNames, count
from reconciler.model.notices import NoticeEvent
from reconciler.model.printable import visible
from reconciler.notify.state import Known

TITLE = 120  # characters
DETAIL = 600
NAMES = 200
GROUPS = 12  # kinds of notices that one message names

_MANY = {
    NoticeEvent.WINDOW: "window",
    NoticeEvent.ISOLATED: "isolated node",
    NoticeEvent.REPAIR: "node to repair",
    NoticeEvent.INCIDENT: "incident",
    NoticeEvent.HALTED: "halt",
}
_PLURAL = {NoticeEvent.REPAIR: "nodes to repair"}


def of_one(fleet: str, one: Known) -> tuple[str, str]:
    """Return title and body of a message about one notice."""
    ended = "" if one.over_at is None else "ended: "
    title = f"{fleet}: {ended}{one.subject} {one.reason}"
    lines = [_cut(one.detail, DETAIL)] if one.detail else []
    if one.nodes and one.nodes != (one.subject,):
        lines.append(f"Nodes: {NodeNames(one.nodes).within(NAMES)}")
    lines.append(f"Since {_clock(one.since)}" + (f", until {_clock(one.over_at)}" if one.over_at is not None else ""))
    if one.times:
        lines.append(f"This is message {one.times + 1} about it")
    return _cut(title, TITLE), "\n".join(lines)


def of_many(fleet: str, notices: Sequence[Known], now: datetime) -> tuple[str, str]:
    """Return title and body of a message about several notices, the first of which matter most."""
    begun = Counter(one.event for one in notices if one.over_at is None)
    said = [count(number, _MANY[event], _PLURAL.get(event, "")) for event, number in begun.items()]
    ended = sum(one.over_at is not None for one in notices)
    if ended:
        said.append(f"{ended:,} ended")
    groups: dict[tuple[bool, str], list[Known]] = {}
    for one in notices:
        groups.setdefault((one.over_at is not None, one.reason), []).append(one)
    lines = [_group(over, reason, members) for (over, reason), members in list(groups.items())[:GROUPS]]
    if len(groups) > GROUPS:
        left = sum(map(len, list(groups.values())[GROUPS:]))
        lines.append(f"and {count(left, 'notice')} more of {count(len(groups) - GROUPS, 'other kind')}")
    lines.append(f"As of {_clock(now)}")
    return _cut(f"{fleet}: {', '.join(said)}", TITLE), "\n".join(lines)


def _group(over: bool, reason: str, members: Sequence[Known]) -> str:
    subjects = NodeNames(tuple(one.subject for one in members)).within(NAMES)
    first = members[0]
    detail = f". {first.detail}" if first.detail and len(members) == 1 and not over else ""
    return _cut(f"{'ended: ' if over else ''}{subjects} {reason}{detail}", DETAIL)


def _cut(text: str, limit: int) -> str:
    """Return one line without control characters."""
    clean = visible(" ".join(text[: 4 * limit].split()))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
