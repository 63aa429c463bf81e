"""Reasons why nodes wait, in the words of `explain`, and the limits that count them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from reconciler.planner.fleet.permit import takes_out
from reconciler.render.explain_waiting import HEADLINES
from reconciler.render.explanation import Explanation
from reconciler.render.html.material import Material
from reconciler.render.plan import limit
from reconciler.render.text import NodeNames, clock
from reconciler.render.waiting import may_go, since

_NAMES: Final = 200  # characters of a list of nodes
_EVERYBODY: Final = ("fleet", "fleet by default")


class Waits:
    """Reasons why the nodes of a plan wait. `limits`: the sentences of all budget limits, by their index."""

    def __init__(self, material: Material) -> None:
        self.limits: list[str] = []
        self._scopes: dict[str, list[int]] = defaultdict(list)
        self._waves: dict[str, list[str]] = defaultdict(list)
        for line in material.plan.budget:
            allows, counts = limit(line)
            used = f"{counts}: {NodeNames(tuple(line.out)).within(_NAMES)}" if line.out else f"none {counts}"
            self._scopes[line.scope].append(len(self.limits))
            self.limits.append(f"{line.scope}: {allows}; {used}")
        for rollout in material.plan.rollouts:
            kind = "rollback" if rollout.rollback else "rollout"
            for at, wave in enumerate(rollout.waves, 1):
                said = f"wave {at} of {len(rollout.waves)} of the {kind} in pool {rollout.pool}: {wave.state.value}"
                for node in wave.nodes:
                    self._waves[node].append(said)

    def of(self, made: Explanation) -> Iterator[tuple[str, str]]:
        """Yield pairs of a label and a sentence about what the node waits for."""
        plan = made.node_plan
        if plan is None:
            return
        yield "goal", plan.situation or plan.goal.value.replace("_", " ")
        if plan.blocked is not None:
            yield "held back", f"{HEADLINES[plan.blocked.code]} ({plan.blocked.code.value}): {plan.blocked.detail}"
            began = since(made)
            if began is not None:
                yield "since", f"{clock(began.at)}, when {began.what}"
        yield from (("may go", said) for said in may_go(made))
        yield from (("part of", said) for said in self._waves.get(plan.node, ()))
        if plan.postponed:
            yield "left for its wave", ", ".join(plan.postponed)

    def limits_of(self, made: Explanation) -> list[int]:
        """Return the indices of the limits that count the node when it is taken out of service."""
        plan, desired = made.node_plan, made.desired
        if plan is None or not plan.actions or not takes_out(plan):
            return []
        own = (f"{label} {name}" for label, name in desired.domains.items())
        scopes = (*_EVERYBODY, f"pool {desired.pool}", f"persona {desired.persona}", *own)
        return [at for scope in scopes for at in self._scopes.get(scope, ())]
