"""Sum up a sequence of actions: how long it takes, and what it disrupts. Nodes that share a sequence share the sum."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciler.model.plan import NodePlan, PlannedAction
from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of

_CACHE_SIZE = 256  # a fleet has few different sequences; each pass makes its own


@dataclass(frozen=True, slots=True)
class Need:
    """The time that a window must hold: `seconds`, of which none passes before `after` (None: they begin at once)."""

    seconds: float
    after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The sum of a sequence of actions.

    `takes_s`: all of it. `need_s`: up to the end of the last disruptive action before the tests, by the 90th
    percentile; what follows brings the node back, and no window holds a soak. `out_s`: from the first action on that
    ends the node's service. `waits_s`: of all three, what is waited for work that ends by `waits_until`.
    """

    disrupts: bool
    braked: bool
    flashes: bool
    takes_s: float
    need_s: float
    out_s: float
    waits_s: float = 0.0
    waits_until: datetime | None = None

    @property
    def need(self) -> Need:
        return Need(self.need_s - self.waits_s, self.waits_until)


def disrupts(action: PlannedAction) -> bool:
    """Return whether the action ends the node's service, or would if the node were in service."""
    return spec_of(action.name).takes_out or action.disruption >= Disruption.DRAIN


def is_braked(action: PlannedAction) -> bool:
    """Return whether the storm brake forbids the action: it disrupts, on a node in service or not, or changes power.

    The mark of an ill node is included, since it takes capacity: if the network is at fault, marks would empty a rack
    that works. Whether to switch on at once all nodes that lost power is for a person to decide (pitfall C5).
    """
    return disrupts(action) or bool(spec_of(action.name).activates)


def flashes(action: PlannedAction) -> bool:
    """Return whether the action writes firmware."""
    return spec_of(action.name).flashes


def siblings_of(action: PlannedAction | None) -> tuple[str, ...]:
    """Return the nodes that an action cuts off with its own."""
    if action is None or Activation.AC_CYCLE not in spec_of(action.name).activates or not action.target:
        return ()
    return tuple(action.target.split(","))


def cut_of(plan: NodePlan) -> PlannedAction | None:
    """Return the treatment that a plan leads to, not one that follows if that does not help."""
    return next((action for action in plan.actions if c.TREATED in action.achieves), None)


_known: dict[int, tuple[tuple[PlannedAction, ...], Work]] = {}


def work(actions: tuple[PlannedAction, ...]) -> Work:
    """Return the sum of a plan's actions.

    Sums are kept by the identity of the tuple: comparing actions takes longer than summing them up. An entry holds its
    tuple, so its id is not used again.
    """
    found = _known.get(id(actions))
    if found is None or found[0] is not actions:
        if len(_known) >= _CACHE_SIZE:
            _known.clear()
        found = _known[id(actions)] = (actions, _sum(actions))
    return found[1]


def _sum(actions: tuple[PlannedAction, ...]) -> Work:
    first = next((at for at, action in enumerate(actions) if disrupts(action)), len(actions))
    tests = next((at for at, action in enumerate(actions) if action.concern is Concern.GATE), len(actions))
    last = max((at for at, action in enumerate(actions[:tests]) if action.disruption >= Disruption.DRAIN), default=0)
    return Work(
        disrupts=first < len(actions),
        braked=any(map(is_braked, actions)),
        flashes=any(map(flashes, actions)),
        takes_s=sum(action.estimate_s for action in actions),
        need_s=sum(action.p90_s or action.estimate_s for action in actions[: last + 1]),
        out_s=sum(action.estimate_s for action in actions[first:]),
        waits_s=sum(action.waits_s for action in actions),
        waits_until=max((action.waits_until for action in actions if action.waits_until is not None), default=None),
    )
