"""Lifting the marks of nodes that were isolated for a signal which a person has retracted, without a gate.

A node of which anything was drained or treated since is left to its plan, whose gate judges it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.converge.actions.cluster import lift_mark
from reconciler.converge.actions.context import Stop
from reconciler.converge.guard import TimedCluster
from reconciler.model.errors import DriverError
from reconciler.model.observed import ClusterState
from reconciler.model.ports import Clock, Ledger
from reconciler.model.records import OWNER_ANNOTATION, Mark, NodeRecord, isolated_for, read_mark
from reconciler.planner.past import isolated


@dataclass(frozen=True, slots=True)
class IsolatedNode:
    """`signals`: on which it was isolated, as value paths. `drained`: or treated, since."""

    node: str
    signals: tuple[str, ...]
    mark: Mark
    drained: bool


def isolated_nodes(state: ClusterState, records: dict[str, NodeRecord], ledger: str) -> list[IsolatedNode]:
    """Of the nodes in `records`, those that carry our mark on evidence of illness."""
    found = []
    for name, record in sorted(records.items()):
        member = state.members.get(name)
        mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
        if mark is not None and mark.ledger == ledger and (signals := isolated_for(mark.reason)):
            found.append(IsolatedNode(name, signals, mark, drained=not isolated(record, mark)))
    return found


async def take_back(cluster: TimedCluster, ledger: Ledger, node: str, signals: tuple[str, ...], clock: Clock) -> str:
    """Why the mark stays; "" when it is lifted, and journaled."""
    try:
        await lift_mark(cluster, node, ledger.id)
    except Stop as stop:
        return stop.outcome.detail
    except DriverError as error:
        return error.detail
    ledger.note(node, "retracted", f"no longer isolated for {', '.join(signals)}", clock.now())
    return ""
