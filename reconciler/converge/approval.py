"""Decide whether a node may still be changed under an approved plan (DESIGN 8).

An approval covers a node while its inputs are the same, its actions are among the approved ones and its disruption is
no higher. Inputs are all values that an action may use (planner/node/fingerprint.py). If one changes after work on the
node has begun, the node is parked. The plan only predicts what follows a boot. So once work has begun, drift that the
plan's own actions caused is ignored, and actions that are not certain yet are judged once the node has been read. An
approved reimage also covers the restart that it would have included, and the other way to write the same image.
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
_SHOWN = 3  # changed inputs that a message names
_EMPTY = ("null", "{}", "[]")


@dataclass(frozen=True, slots=True)
class Shared:
    """Inputs that nodes of one profile share, by key: the approved ones and those of now.

    `place` returns where the spec sets an input.
    """

    approved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fresh: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    place: Callable[[str], Position | None] = lambda _path: None


_NOTHING_SHARED = Shared()


def stale_because(approved: NodePlan | None, fresh: NodePlan, *, begun: bool, shared: Shared = _NOTHING_SHARED) -> str:
    """Return why `fresh` goes beyond what was approved; "" when it does not. `begun`: work on the node has begun."""
    if not fresh.actions:
        return ""
    if approved is None:
        return "this node is not part of the plan"
    if approved.actions and (why := other_inputs(approved, fresh, shared)):
        return why + (_PARKED if begun else "")
    allowed = {action.id for action in approved.actions}
    covered = frozenset[str]().union(*(spec_of(action.name).covers for action in approved.actions))
    sure = [action for action in fresh.actions if not begun or action.certainty is Certainty.EXACT]
    beyond = [action.id for action in sure if action.id not in allowed and action.name not in covered]
    if beyond:
        return f"it needs {', '.join(dict.fromkeys(beyond))} beyond what was approved"
    if fresh.disruption > approved.disruption:
        return f"it needs {fresh.disruption.label}, approved was {approved.disruption.label}"
    return _other_drift(approved, fresh, begun=begun)


def other_inputs(approved: NodePlan, fresh: NodePlan, shared: Shared) -> str:
    """Name the inputs that differ from the approved ones, as `path: old -> new (file:line:column)`; "" = none does."""
    changes = changed_inputs(approved.inputs, fresh.inputs)
    if approved.shared != fresh.shared:
        before, now = shared.approved.get(approved.shared), shared.fresh.get(fresh.shared)
        if before is None or now is None:
            return "the plan does not hold the values that it shares with other nodes; make a new plan"
        changes = [*changed_inputs(before, now), *changes]
    telling = [one for one in changes if not (None in one[1:] and (one[1] in _EMPTY or one[2] in _EMPTY))] or changes
    shown = [_described(*one, shared.place(one[0])) for one in telling[:_SHOWN]]
    more = f"; and {len(telling) - _SHOWN} more" if len(telling) > _SHOWN else ""
    return f"changed since it was approved: {'; '.join(shown)}{more}" if shown else ""


def _described(path: str, old: str | None, new: str | None, at: Position | None) -> str:
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
