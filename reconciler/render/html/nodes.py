"""The details of each node on the page, as tables of numbers that its scripts turn into words again.

Ten thousand nodes have few different texts. So the page holds each text once and refers to it by its index, and
likewise each row that many nodes share: a value with the line that sets it, a difference, an action. A node is a row of
such indices. Instants are seconds before (negative) or after the one at which the page was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from reconciler.model.drift import DriftItem
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.plan import NodePlan, PlannedAction
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import Certainty, Concern, Source
from reconciler.render.drift import is_own
from reconciler.render.explain_values import commit
from reconciler.render.explain_waiting import headline
from reconciler.render.explanation import Explanation, Value, found_values, own_values, profile_values
from reconciler.render.history import Line, lines
from reconciler.render.html.evidence import Evidence
from reconciler.render.html.interned import Interned
from reconciler.render.html.material import Material
from reconciler.render.html.waits import Waits
from reconciler.render.text import disruption, estimate, plain, position, value

LONG: Final = 600  # characters of a sentence
_REASONS: Final = 6  # of one action; `explain` has all
_STATUSES: Final = list(NodeStatus)
_CONCERNS: Final = list(Concern)
_READINGS: Final = ("hot", "inventory", "host", "member")
_LEDGER: Final = len(_READINGS)  # the source of a value that no reading has


class Nodes:
    """The tables of the nodes. They fill while nodes are added."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._texts: Interned[str] = Interned()
        self._read: dict[str, int] = {}  # text as it was given -> its place: most are given for many nodes
        self._values: Interned[tuple[int, ...]] = Interned()
        self._shared: Interned[tuple[int, ...]] = Interned()
        self._drifts: Interned[tuple[int, ...]] = Interned()
        self._actions: Interned[tuple[int, ...]] = Interned()
        self._plans: Interned[tuple[int, ...]] = Interned()
        self._events: Interned[tuple[int, ...]] = Interned()
        self._alike: dict[tuple[str, frozenset[str]], tuple[int, frozenset[str]]] = {}
        self._evidence = Evidence(material, self._text)
        self._waits = Waits(material)

    def document(self) -> dict[str, Any]:
        """Return the tables as JSON values, with one column for each key of a node's row."""
        nodes = [self._line(plan) for plan in self._material.plan.nodes.values()]
        columns = {key: [node[key] for node in nodes] for key in (nodes[0] if nodes else ())}
        return {
            "made": round(self._material.now.timestamp()),
            "nodes": columns,
            "values": self._values.all,
            "shared": self._shared.all,
            "drifts": self._drifts.all,
            "actions": self._actions.all,
            "plans": self._plans.all,
            "events": self._events.all,
            "tests": self._evidence.tests,
            "limits": [self._text(line) for line in self._waits.limits],
            "statuses": [status.value for status in NodeStatus],
            "concerns": [concern.value for concern in Concern],
            "texts": self._texts.all,  # last: all of the above fill it
        }

    def _text(self, said: str) -> int:
        place = self._read.get(said)
        if place is None:
            place = self._read[said] = self._texts.at(plain(said, LONG))
        return place

    def _at(self, at: datetime | None) -> int | None:
        return None if at is None else round((at - self._material.now).total_seconds())

    def _line(self, plan: NodePlan) -> dict[str, Any]:
        made = self._material.explained(plan.node)
        desired, seen = made.desired, self._material.observation.nodes[plan.node]
        shared, own = self._node_values(made, seen)
        return {
            "name": plan.node,
            "pool": self._text(desired.pool),
            "domains": {label: self._text(name) for label, name in sorted(desired.domains.items())},
            "status": _STATUSES.index(self._material.statuses[plan.node]),
            "service": 2 if plan.in_service is None else int(plan.in_service),
            "headline": self._text(made.under_way or headline(made)),
            "persona": self._text(desired.persona),
            "shared": shared,
            "own": own,
            "read": [self._reading(getattr(seen, name)) for name in _READINGS],
            "unread": [self._text(line) for line in plan.incomplete],
            "drift": [(self._drift(item), self._at(item.first_seen)) for item in plan.drift],
            "plan": self._plans.at(tuple(self._action(action, plan) for action in plan.actions)),
            "schedule": (self._at(plan.start), self._at(plan.end)),
            "waits": [(self._text(word), self._text(line)) for word, line in self._waits.of(made)],
            "limits": self._waits.limits_of(made),
            "gate": self._evidence.of(made),
            "history": self._history(plan.node),
        }

    # --- values --------------------------------------------------------------------------------------------------

    def _node_values(self, made: Explanation, seen: Observed) -> tuple[int, list[int]]:
        """Return the place of the values that it shares with others, and those that the spec sets for it alone.

        A path may be in both; then its own counts.
        """
        desired = made.desired
        alike = (desired.profile.digest, frozenset(desired.provenance))
        if alike not in self._alike:
            places = set(desired.provenance.values())
            found = list(profile_values(replace(made, plan=None)))  # whatever differs on this one
            shared = [self._value(each, seen) for each in found if each.place not in places]
            own = frozenset(each.path for each in found if each.place in places)
            self._alike[alike] = self._shared.at(tuple(shared)), own
        shared_row, paths = self._alike[alike]
        mine = [*own_values(made), *found_values(made)]
        mine += [each for each in profile_values(made) if each.path in paths] if paths else []
        return shared_row, [self._value(each, seen) for each in mine]

    def _value(self, found: Value, seen: Observed) -> int:
        wanted = "its own" if is_own(found.path) else value(found.wanted)
        words = (found.path, wanted, position(found.place), commit(found.origin))
        return self._values.at((*map(self._text, words), _source(found, seen)))

    def _reading(self, reading: Answered[Any] | Silent) -> int | str:
        if isinstance(reading, Answered):
            return self._at(reading.at) or 0
        return plain(reading.reason.value + (f" ({reading.detail})" if reading.detail else ""), LONG)

    def _drift(self, item: DriftItem) -> int:
        own = is_own(item.path)
        wanted, found = ("its own", "another") if own else (value(item.desired), value(item.observed))
        applied = "" if own or item.applied is None else value(item.applied)
        words = (item.path, item.kind.value, wanted, found, applied, item.detail)
        return self._drifts.at((_CONCERNS.index(item.concern), *map(self._text, words)))

    # --- actions and history---------------------------------------------------------------------------------------

    def _action(self, action: PlannedAction, plan: NodePlan) -> int:
        """Return the index of an action. Without a cause of its own, the situation of the node is its reason."""
        because = action.because or (plan.situation,)
        more = f" and {len(because) - _REASONS} more" if len(because) > _REASONS else ""
        hurts = disruption(action.disruption) if action.disruption else ""
        sure = "if needed" if action.certainty is Certainty.PREDICTED else ""
        words = (action.id, hurts, sure, "; ".join(because[:_REASONS]) + more, estimate([action]))
        return self._actions.at(tuple(map(self._text, words)))

    def _history(self, node: str) -> list[tuple[int | None, int]]:
        history = self._material.histories.get(node)
        events: Iterable[Line] = () if history is None else lines(history)
        return [(self._at(line.at), self._events.at(tuple(map(self._text, line.words)))) for line in events]


def _source(found: Value, seen: Observed) -> int:
    for at, name in enumerate(_READINGS):
        if found.reading is not None and found.reading is getattr(seen, name):
            return at
    return _LEDGER if found.source is Source.LEDGER else _LEDGER + 1
