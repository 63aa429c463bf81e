"""The expected times in plans. Hours are UTC; in a lab they are the fleet's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from reconciler.model.plan import NodePlan, Plan
from reconciler.model.units import format_duration
from reconciler.planner.fleet.permit import waits
from reconciler.render.text import clock

UNSAID = "nobody can say"
STARTS = 4  # at most; with more, one entry covers them all


def finish(plan: Plan) -> str:
    """Say when all of it will be done, as far as anybody can."""
    going = [node for node in plan.nodes.values() if node.actions]
    timed = sum(node.end is not None for node in going)
    if not timed:
        return f"{UNSAID} when it will be done"
    text = f"done in about {duration(plan.totals.finish_s, plan.time_scale)}"
    return text if timed == len(going) else f"{timed} of {len(going)} {text}, of the others {UNSAID}"


def duration(seconds: float, time_scale: float) -> str:
    if time_scale == 1.0:
        return format_duration(seconds)
    return f"{format_duration(seconds)} of the fleet's time ({format_duration(seconds / time_scale)} of yours)"


def validity(plan: Plan) -> str:
    """Say how long a plan is valid, by the clock of the person who approves it, which a lab's time does not follow."""
    until = clock(plan.expires_at)
    if plan.time_scale == 1.0:
        return f"valid until {until}"
    own = (plan.expires_at - plan.created_at).total_seconds() / plan.time_scale
    return f"valid for {format_duration(own)} of your time ({until} of the fleet's)"


def hour(at: datetime, made: datetime) -> str:
    """Return a time like 10:42, with its date where that is not the day on which the plan was made."""
    return f"{at:%H:%M}" if at.date() == made.date() else f"{at:%Y-%m-%d %H:%M}"


def is_relative(plan: Plan) -> bool:
    """Return whether all times of a plan move with the apply that it waits for: no window or pause fixes any.

    A pull request is merged hours or days later. So its comment tells such times from then on: T+0, T+37m.
    """
    return not any(node.actions and node.blocked and node.blocked.until for node in plan.nodes.values())


def _after(at: datetime, made: datetime) -> str:
    minutes = round((at - made).total_seconds() / 60)
    return f"T+{format_duration(60 * minutes)}" if minutes > 0 else "T+0"


def span(start: datetime | None, end: datetime | None, made: datetime, *, relative: bool = False) -> str:
    """Return from when to when. `relative`: after the apply begins."""
    if relative:
        if start is None or end is None:
            return f"until {_after(end, made)}" if end is not None else ""
        first, last = _after(start, made), _after(end, made)
        return first if first == last else f"{first} - {last}"
    if start is None or end is None:
        return f"until {hour(end, made)}" if end is not None else ""
    first, last = hour(start, made), hour(end, start if start.date() != made.date() else made)
    return first if (end - start).total_seconds() < 60 else f"{first} - {last}"


def expected(nodes: Sequence[NodePlan], made: datetime, *, relative: bool = False) -> str:
    """Return from when to when these nodes are expected to be at work, and for how many nobody can say."""
    starts = [node.start for node in nodes if node.start is not None]
    ends = [node.end for node in nodes if node.end is not None]
    if not starts or not ends:
        return f"{UNSAID} when"
    unsaid = len(nodes) - len(ends)
    text = f"expected {span(min(starts), max(ends), made, relative=relative)}{'' if relative else ' UTC'}"
    return f"{text}, and of {unsaid} of them {UNSAID} when" if unsaid else text


def by_start(nodes: Sequence[NodePlan], made: datetime) -> Mapping[str, Sequence[NodePlan]]:
    """Group nodes by when they are expected to begin; "" for nodes that do not wait."""
    found: dict[str, list[NodePlan]] = {}
    timed = [node for node in nodes if node.start is not None and _waits(node)]
    for node in sorted(timed, key=lambda node: node.start or made):
        found.setdefault(hour(node.start or made, made), []).append(node)
    if len(found) > STARTS:
        found = {f"{next(iter(found))} - {list(found)[-1]}": timed}
    for node in nodes:
        if node.start is None or not _waits(node):
            found.setdefault(UNSAID if _waits(node) else "", []).append(node)
    return found


def _waits(node: NodePlan) -> bool:
    return bool(node.actions) and node.blocked is not None and waits(node.blocked)
