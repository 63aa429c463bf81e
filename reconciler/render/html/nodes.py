"""What the page knows of each node, as tables of numbers that its scripts put into words again.

Ten thousand nodes say few different things. So a text stands once and is meant by its place, and so does a row that
many nodes share: a value with the line that sets it, a difference, an action. A node is a line of such places. Instants
are seconds before or after the one at which the page was made.
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
from reconciler.render.drift import OWN
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
_LEDGER: Final = len(_READINGS)  # where a value was found that stands in no reading


class Nodes:
    """Fills its tables while nodes are added."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._texts: Interned[str] = Interned()
        self._values: Interned[tuple[int, ...]] = Interned()
        self._sheets: Interned[tuple[int, ...]] = Interned()
        self._drifts: Interned[tuple[int, ...]] = Interned()
        self._actions: Interned[tuple[int, ...]] = Interned()
        self._plans: Interned[tuple[int, ...]] = Interned()
        self._told: Interned[tuple[int, ...]] = Interned()
        self._alike: dict[tuple[str, frozenset[str]], tuple[int, frozenset[str]]] = {}
        self._evidence = Evidence(material, self._text)
        self._waits = Waits(material)

    def document(self) -> dict[str, Any]:
        """JSON values. The keys of a node's line are those of the first."""
        nodes = [self._line(plan) for plan in self._material.plan.nodes.values()]
        columns = {key: [node[key] for node in nodes] for key in (nodes[0] if nodes else ())}
        return {
            "made": round(self._material.now.timestamp()),
            "nodes": columns,
            "values": self._values.all,
            "sheets": self._sheets.all,
            "drifts": self._drifts.all,
            "actions": self._actions.all,
            "plans": self._plans.all,
            "told": self._told.all,
            "tests": self._evidence.tests,
            "limits": [self._text(line) for line in self._waits.limits],
            "statuses": [status.value for status in NodeStatus],
            "concerns": [concern.value for concern in Concern],
            "texts": self._texts.all,  # last: all of the above fill it
        }

    def _text(self, said: str) -> int:
        return self._texts.at(plain(said, LONG))

    def _at(self, at: datetime | None) -> int | None:
        return None if at is None else round((at - self._material.now).total_seconds())

    def _line(self, plan: NodePlan) -> dict[str, Any]:
        made = self._material.explained(plan.node)
        desired, seen = made.desired, self._material.observation.nodes[plan.node]
        shared, own = self._sheet(made, seen)
        return {
            "name": plan.node,
            "pool": self._text(desired.pool),
            "domains": {label: self._text(name) for label, name in sorted(desired.domains.items())},
            "status": _STATUSES.index(self._material.statuses[plan.node]),
            "service": 2 if plan.in_service is None else int(plan.in_service),
            "headline": self._text(headline(made)),
            "persona": self._text(desired.persona),
            "sheet": shared,
            "own": own,
            "read": [self._reading(getattr(seen, name)) for name in _READINGS],
            "unread": [self._text(line) for line in plan.incomplete],
            "drift": [(self._drift(item), self._at(item.first_seen)) for item in plan.drift],
            "plan": self._plans.at(tuple(self._action(action, plan) for action in plan.actions)),
            "turn": (self._at(plan.start), self._at(plan.end)),
            "waits": [(self._text(word), self._text(line)) for word, line in self._waits.of(made)],
            "limits": self._waits.limits_of(made),
            "gate": self._evidence.of(made),
            "story": self._story(plan.node),
        }

    # --- values --------------------------------------------------------------------------------------------------

    def _sheet(self, made: Explanation, seen: Observed) -> tuple[int, list[int]]:
        """Its values: the sheet that it shares with others, and those that stand where the spec names the node.

        A path may be in both; then its own counts.
        """
        desired = made.desired
        alike = (desired.profile.digest, frozenset(desired.provenance))
        if alike not in self._alike:
            places = set(desired.provenance.values())
            found = list(profile_values(replace(made, plan=None)))  # whatever differs on this one
            shared = [self._value(each, seen) for each in found if each.place not in places]
            own = frozenset(each.path for each in found if each.place in places)
            self._alike[alike] = self._sheets.at(tuple(shared)), own
        sheet, paths = self._alike[alike]
        mine = [*own_values(made), *found_values(made)]
        mine += [each for each in profile_values(made) if each.path in paths] if paths else []
        return sheet, [self._value(each, seen) for each in mine]

    def _value(self, found: Value, seen: Observed) -> int:
        wanted = "its own" if found.path in OWN else value(found.wanted)
        words = (found.path, wanted, position(found.place), commit(found.origin))
        return self._values.at((*map(self._text, words), _source(found, seen)))

    def _reading(self, reading: Answered[Any] | Silent) -> int | str:
        if isinstance(reading, Answered):
            return self._at(reading.at) or 0
        return plain(reading.reason.value + (f" ({reading.detail})" if reading.detail else ""), LONG)

    def _drift(self, item: DriftItem) -> int:
        own = item.path in OWN
        wanted, found = ("its own", "another") if own else (value(item.desired), value(item.observed))
        applied = "" if own or item.applied is None else value(item.applied)
        words = (item.path, item.kind.value, wanted, found, applied, item.detail)
        return self._drifts.at((_CONCERNS.index(item.concern), *map(self._text, words)))

    # --- actions and story ---------------------------------------------------------------------------------------

    def _action(self, action: PlannedAction, plan: NodePlan) -> int:
        """A sentence that all of a plan's situation repeats is no reason of this action."""
        because = action.because or (plan.situation,)
        more = f" and {len(because) - _REASONS} more" if len(because) > _REASONS else ""
        hurts = disruption(action.disruption) if action.disruption else ""
        sure = "if needed" if action.certainty is Certainty.PREDICTED else ""
        words = (action.id, hurts, sure, "; ".join(because[:_REASONS]) + more, estimate([action]))
        return self._actions.at(tuple(map(self._text, words)))

    def _story(self, node: str) -> list[tuple[int | None, int]]:
        story = self._material.stories.get(node)
        told: Iterable[Line] = () if story is None else lines(story)
        return [(self._at(line.at), self._told.at(tuple(map(self._text, line.words)))) for line in told]


def _source(found: Value, seen: Observed) -> int:
    for at, name in enumerate(_READINGS):
        if found.reading is not None and found.reading is getattr(seen, name):
            return at
    return _LEDGER if found.source is Source.LEDGER else _LEDGER + 1
