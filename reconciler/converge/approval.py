"""Whether a node may still be changed under an approved plan (DESIGN 8).

Approval holds per node: the same inputs, a subset of the actions, no higher disruption. Inputs are every value that
an action may use (planner/node/fingerprint.py), and no work that has begun excuses another one: such a node is
parked. What lies behind a boot is predicted in the plan, so once work on a node has begun, drift that the plan's own
actions caused is no news; what a machine that is silent half way may need besides is judged when it has been read;
and where an approved reimage turns out not to be needed, the restart that it would have brought is covered by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.errors import Position
from reconciler.model.inputs import changed_inputs
from reconciler.model.plan import NodePlan
from reconciler.model.vocab import Certainty
from reconciler.planner.node.actions import spec_of

_PARKED = "; work on it has begun, so it is left parked, drained and marked: make a new plan to go on with it"
_SAID = 3  # changed inputs that are told one by one
_EMPTY = ("null", "{}", "[]")


@dataclass(frozen=True, slots=True)
class Shared:
    """Inputs that nodes share, by key: of the approved plan and of now; and where the spec sets an input."""

    approved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fresh: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    place: Callable[[str], Position | None] = lambda _path: None


_NOTHING_SHARED = Shared()


def stale_because(approved: NodePlan | None, fresh: NodePlan, *, begun: bool, shared: Shared = _NOTHING_SHARED) -> str:
    """Why `fresh` goes beyond what was approved; "" when it does not."""
    if not fresh.actions:
        return ""
    if approved is None:
        return "this node is not part of the plan"
    if approved.actions and (why := other_inputs(approved, fresh, shared)):
        return why + (_PARKED if begun else "")
    allowed = {action.id for action in approved.actions}
    allowed = allowed.union(*(spec_of(action.name).covers for action in approved.actions))
    sure = [action for action in fresh.actions if not begun or action.certainty is Certainty.EXACT]
    beyond = [action.id for action in sure if action.id not in allowed]
    if beyond:
        return f"it needs {', '.join(dict.fromkeys(beyond))} beyond what was approved"
    if fresh.disruption > approved.disruption:
        return f"it needs {fresh.disruption.label}, approved was {approved.disruption.label}"
    return _other_drift(approved, fresh, begun=begun)


def other_inputs(approved: NodePlan, fresh: NodePlan, shared: Shared) -> str:
    """The inputs that differ from the approved ones, as `path: old -> new (file:line:column)`; "" when none does."""
    changes = changed_inputs(approved.inputs, fresh.inputs)
    if approved.shared != fresh.shared:
        before, now = shared.approved.get(approved.shared), shared.fresh.get(fresh.shared)
        if before is None or now is None:
            return "the plan does not hold the values that it shares with other nodes; make a new plan"
        changes = [*changed_inputs(before, now), *changes]
    telling = [one for one in changes if not (None in one[1:] and (one[1] in _EMPTY or one[2] in _EMPTY))] or changes
    told = [_told(*one, shared.place(one[0])) for one in telling[:_SAID]]
    more = f"; and {len(telling) - _SAID} more" if len(telling) > _SAID else ""
    return f"changed since it was approved: {'; '.join(told)}{more}" if told else ""


def _told(path: str, old: str | None, new: str | None, at: Position | None) -> str:
    return f"{path}: {_value(old)} -> {_value(new)}" + (f" ({at})" if at is not None else "")


def _value(text: str | None) -> str:
    return "none" if text is None or text == "null" else text


def _other_drift(approved: NodePlan, fresh: NodePlan, *, begun: bool) -> str:
    wanted = {item.path: item.desired for item in approved.drift}
    ignored = {item.path for item in approved.drift if item.kind is DriftClass.IGNORED}
    for item in fresh.drift:
        if item.kind not in ACTIONABLE:
            continue
        if item.path not in wanted:
            if not begun:
                return f"{item.path} differs now, and did not when the plan was made"
        elif item.path in ignored:
            return f"{item.path} was ignored by a rule when the plan was made, and is not now"
        elif item.desired != wanted[item.path]:
            return f"the spec now wants {item.path} to be {item.desired!r}, approved was {wanted[item.path]!r}"
    return ""
