"""The actions under way on nodes, as the events of the loop tell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from reconciler.converge.events import ActionFinished, ActionStarted, ActionStep, Event, NodeSettled
from reconciler.model.live import AtWork
from reconciler.model.plan import Plan

_PERCENT: Final = re.compile(r"\b(\d{1,3}) ?%")


@dataclass(frozen=True, slots=True)
class _Started:
    action: str
    since: datetime
    estimate_s: float
    step: str = ""


class Activity:
    """The actions under way, by node. It is told by the loop's thread, and read by others: values are replaced whole.

    Two actions of one node don't overlap.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._started: Mapping[str, _Started] = {}
        self._turned: Mapping[str, datetime] = {}  # when each node was last begun on, or left

    def tell(self, event: Event) -> bool:
        """Take an event. Return whether what is done to a node has changed."""
        match event:
            case ActionStarted(node, action):
                self._set(node, _Started(action.id, self._now(), action.estimate_s))
            case ActionStep(node, action, step):
                known = self._started.get(node) or _Started(action, self._now(), 0.0)
                self._set(node, replace(known, action=action, step=step))
            case ActionFinished(node) | NodeSettled(node):
                self._set(node, None)
            case _:
                return False
        return True

    def clear(self) -> None:
        """Forget everything, as a process does that leads no more."""
        self._started, self._turned = {}, {}

    def forget(self, before: datetime) -> None:
        """Forget who turned before, and is not at work: a pass that ended then has seen it."""
        self._turned = {node: at for node, at in self._turned.items() if at >= before or node in self._started}

    def _set(self, node: str, started: _Started | None) -> None:
        others = {name: one for name, one in self._started.items() if name != node}
        if (started is None) == (node in self._started):
            self._turned = {**self._turned, node: self._now()}
        self._started = others if started is None else {**others, node: started}

    def nodes(self) -> frozenset[str]:
        return frozenset(self._started)

    def words(self) -> Mapping[str, str]:
        """Return what is done to each node, without the steps of it."""
        return {node: f"{one.action} is under way" for node, one in self._started.items()}

    def turned(self) -> Mapping[str, datetime]:
        """Return since when each node has been at work, or no longer is, of those that it was told of."""
        return self._turned

    def at_work(self, plan: Plan | None, far: Mapping[str, str]) -> tuple[AtWork, ...]:
        """Return them, the oldest first. `far`: how far the ledger knows actions to be that tell no steps here."""
        found = []
        for name, one in sorted(self._started.items(), key=lambda item: (item[1].since, item[0])):
            own = None if plan is None else plan.nodes.get(name)
            ids = [action.id for action in own.actions] if own is not None else []
            later = ids[ids.index(one.action) + 1 :] if one.action in ids else []
            step = one.step or far.get(name, "")
            percent = _PERCENT.search(step)
            found.append(
                AtWork(
                    name, "" if own is None else own.pool, one.action, step,
                    min(int(percent[1]), 100) if percent else None, one.since, one.estimate_s, tuple(later),
                )
            )  # fmt: skip
        return tuple(found)
