"""The one disruption budget: who may be taken out of service now.

Charged when an action takes an in-service node out. Nodes already out, whoever took them out, use it up. The smallest
of the fleet's, the pool's and every failure domain's limit decides. Nothing declared means one node.

Invariant: a node is admitted by `allows` only while every limit that it falls under has room, and `charge` records it
at once, so that no prefix of any sequence of charges exceeds a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.model.desired import BudgetLimit, Desired
from reconciler.model.plan import BlockCode, Blocked, BudgetLine
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import NodeState

DEFAULT = (BudgetLimit("fleet", "1"),)


@dataclass(slots=True)
class _Group:
    name: str
    limit: int
    total: int
    rule: str
    out: list[str] = field(default_factory=list)


class Budget:
    """`out`: nodes out of service; `unknown`: nodes whose service state can't be read, which may not be touched."""

    def __init__(
        self,
        limits: tuple[BudgetLimit, ...],
        nodes: Mapping[str, Desired],
        *,
        out: Iterable[str],
        unknown: Iterable[str] = (),
    ) -> None:
        active = {name: node for name, node in nodes.items() if node.state is NodeState.ACTIVE}
        self._unknown = frozenset(unknown) & active.keys()
        self._out: set[str] = set()
        self._of: dict[str, list[_Group]] = {name: [] for name in active}
        self._groups: list[_Group] = []
        for limit in limits or DEFAULT:
            self._add(limit, active)
        # What can't be read counts as out: it may well be.
        for name in sorted((frozenset(out) | self._unknown) & active.keys()):
            self.charge(name)

    def _add(self, limit: BudgetLimit, active: Mapping[str, Desired]) -> None:
        members: dict[str, list[str]] = {}
        for name, node in active.items():
            key = {"fleet": "", "pool": node.pool}.get(limit.scope, node.domains.get(limit.scope))
            if key is not None:
                members.setdefault(key, []).append(name)
        for key in sorted(members):
            total = len(members[key])
            count = parse_nodes(limit.nodes, total)
            shown = f"{limit.nodes} of {total} = {count}" if limit.nodes.endswith("%") else limit.nodes
            group = _Group(f"{limit.scope} {key}".strip(), count, total, shown)
            self._groups.append(group)
            for name in members[key]:
                self._of[name].append(group)

    def is_out(self, node: str) -> bool:
        return node in self._out

    def allows(self, node: str) -> Blocked | None:
        """None when `node` may be taken out of service now; acting on one that is out already costs nothing."""
        if node in self._unknown:
            return Blocked(BlockCode.BUDGET, "whether it is in service can't be read: the budget is zero")
        if node in self._out:
            return None
        for group in self._of.get(node, ()):
            if len(group.out) >= group.limit:
                shown = ", ".join(group.out[:5]) + (f" and {len(group.out) - 5} more" if len(group.out) > 5 else "")
                detail = f"budget of {group.name} is used up: {len(group.out)} of {group.limit} out ({shown})"
                return Blocked(BlockCode.BUDGET, detail)
        return None

    def charge(self, node: str) -> None:
        """Count `node` as out of service. Charging twice counts once."""
        if node in self._out:
            return
        self._out.add(node)
        for group in self._of.get(node, ()):
            group.out.append(node)

    def groups_of(self, node: str) -> tuple[tuple[str, int], ...]:
        """(name, limit) of every limit that `node` falls under."""
        return tuple((group.name, group.limit) for group in self._of.get(node, ()))

    def lines(self) -> tuple[BudgetLine, ...]:
        return tuple(BudgetLine(g.name, g.limit, g.total, tuple(g.out), g.rule) for g in self._groups)
