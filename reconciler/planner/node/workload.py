"""What a sequence of actions amounts to. Of many nodes it is the very same sequence, which is summed up once."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Disruption
from reconciler.planner.node.actions import spec_of

_KEPT = 256  # a fleet has few; each pass has its own


@dataclass(frozen=True, slots=True)
class Work:
    """`takes_s`: all of it. `need_s`: to the end of the last disruptive step, as nine of ten runs go; what follows,
    brings the node back. `out_s`: from the first disrupting one on, of a node that is in service till then."""

    disrupts: bool
    shakes: bool
    flashes: bool
    takes_s: float
    need_s: float
    out_s: float


def disrupts(action: PlannedAction) -> bool:
    """Whether it ends the node's service, or would if the node were in service."""
    return spec_of(action.name).takes_out or action.disruption >= Disruption.DRAIN


def shakes(action: PlannedAction) -> bool:
    """Whether the storm brake forbids it: what disrupts, on nodes in service or not, and whatever else moves power.

    Also the mark of a sick node, which protects jobs and takes capacity: if it is the network that is sick, the mark
    would empty a rack that works. To switch on at once all that lost its power is for a person to decide (pitfall C5).
    """
    return disrupts(action) or bool(spec_of(action.name).activates)


def flashes(action: PlannedAction) -> bool:
    return spec_of(action.name).flashes


_known: dict[int, tuple[tuple[PlannedAction, ...], Work]] = {}


def work(actions: tuple[PlannedAction, ...]) -> Work:
    """By identity: to compare the actions would take longer than to sum them up. What is kept keeps its id."""
    found = _known.get(id(actions))
    if found is None or found[0] is not actions:
        if len(_known) >= _KEPT:
            _known.clear()
        found = _known[id(actions)] = (actions, _sum(actions))
    return found[1]


def _sum(actions: tuple[PlannedAction, ...]) -> Work:
    first = next((at for at, action in enumerate(actions) if disrupts(action)), len(actions))
    last = max((at for at, action in enumerate(actions) if action.disruption >= Disruption.DRAIN), default=0)
    return Work(
        disrupts=first < len(actions),
        shakes=any(map(shakes, actions)),
        flashes=any(map(flashes, actions)),
        takes_s=sum(action.estimate_s for action in actions),
        need_s=sum(action.p90_s or action.estimate_s for action in actions[: last + 1]),
        out_s=sum(action.estimate_s for action in actions[first:]),
    )
