"""Lift the marks of nodes that were isolated for signals which a person has retracted, without a gate.

A node that was drained or treated since keeps its mark: its plan leads it through its gate.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from reconciler.converge.actions.context import Stop
from reconciler.converge.actions.membership import lift_mark
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError
from reconciler.model.ledger_ports import RunStore
from reconciler.model.observed import ClusterState
from reconciler.model.ports import Clock
from reconciler.model.records import OWNER_ANNOTATION, Mark, NodeRecord, isolated_for, read_mark
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.signal_history import first_seen
from reconciler.planner.node.holds import Holds, held
from reconciler.planner.node.record import isolating_signals


@dataclass(frozen=True, slots=True)
class IsolatedNode:
    """A node that our mark isolates. `signals`: what for, as value paths. `drained`: drained or treated since."""

    node: str
    signals: tuple[str, ...]
    mark: Mark
    drained: bool


def isolated_nodes(state: ClusterState, records: dict[str, NodeRecord], ledger: str) -> list[IsolatedNode]:
    """Return those nodes of `records` that carry our mark because of evidence of illness."""
    found = []
    for name, record in sorted(records.items()):
        member = state.members.get(name)
        mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
        if mark is not None and mark.ledger == ledger and (signals := isolated_for(mark.reason)):
            found.append(IsolatedNode(name, signals, mark, drained=not isolating_signals(record, mark)))
    return found


def why_it_stays(
    one: IsolatedNode, desired: Desired, record: NodeRecord, holds: Holds, retracted: AbstractSet[str], now: datetime
) -> str:
    """Return why a node keeps its mark though its signals are retracted, as far as the ledger knows; "" = it does not.

    `retracted`: value paths.
    """
    if desired.state is not NodeState.ACTIVE:
        return f"the spec says `state: {desired.state.value}`"
    if record.malformed or record.fleet:
        return f"its ledger record can't be read: {record.malformed}" if record.malformed else "another fleet's"
    if (hold := held(desired, record, holds, now)) is not None:
        return hold.detail
    if one.drained:
        return "it was drained or treated: its gate brings it back"
    others = sorted({signal for key in record.silent_since if (signal := first_seen(key)[0])} - retracted)
    return f"the ledger has evidence of {', '.join(others)} as well" if others else ""


async def take_back(cluster: TimedCluster, ledger: RunStore, node: str, signals: tuple[str, ...], clock: Clock) -> str:
    """Lift the mark and record that in the journal. Return why the mark stays; "" = it is lifted."""
    try:
        await lift_mark(cluster, node, ledger.id)
    except Stop as stop:
        return stop.outcome.detail
    except DriverError as error:
        return error.detail
    ledger.note(node, "retracted", f"no longer isolated for {', '.join(signals)}", clock.now())
    return ""
