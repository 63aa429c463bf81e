"""The `get` use case: nodes and pools of the spec, with what the ledger knows of them. Nothing is contacted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.app.node_selection import select_nodes
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.model.desired import Desired
from reconciler.model.records import NodeRecord
from reconciler.model.status import NodeStatus
from reconciler.planner.node.holds import is_active

if TYPE_CHECKING:
    from reconciler.model.period_report import StatusInterval


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as the spec declares it and the ledger knows it. None, "": nothing is declared, or known.

    `status`, `in_service`, `since`, `why`: as the last pass found it, which ended at `seen`. `under_way`: how far an
    action that is not finished is.
    """

    name: str
    pool: str
    persona: str
    state: str
    status: str
    in_service: bool | None
    since: datetime | None
    seen: datetime | None
    why: str
    held: str
    under_way: str
    image: str
    bmc: str
    host: str
    serial: str
    domains: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool: how many nodes it has, and of how many the last pass found what. `statuses`: nodes by status."""

    name: str
    nodes: int
    in_service: int
    out: int
    unknown: int
    held: int
    statuses: dict[str, int] = field(default_factory=dict)


def node_rows(
    workspace: Workspace, expressions: tuple[str, ...], statuses: Collection[NodeStatus] = ()
) -> Sequence[NodeRow]:
    """Return the selected nodes in the order of the fleet. `statuses`: only nodes of one of these; () = of any.

    Raise UsageError for an expression that matches no node.
    """
    fleet = workspace.fleet
    names, _ = select_nodes(fleet, expressions, ())
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        now = workspace.clock.now()
        records, known, acting = ledger.nodes(names), ledger.last_statuses(), under_way(ledger, now)
    return [
        _row(fleet.nodes[name], records[name], known.get(name), acting.get(name), now)
        for name in names
        if not statuses or (known[name].status if name in known else NodeStatus.UNKNOWN) in statuses
    ]


def _row(
    desired: Desired, record: NodeRecord, found: StatusInterval | None, acting: str | None, now: datetime
) -> NodeRow:
    holds = [hold for hold in record.holds if is_active(hold, now)]
    image, begun = desired.profile.image, [one for one in record.attempts if one.ended_at is None]
    doing = acting or (begun[-1].action if begun and acting is not None else "")
    return NodeRow(
        name=desired.node,
        pool=desired.pool,
        persona=desired.persona,
        state=desired.state.value,
        status=(NodeStatus.UNKNOWN if found is None else found.status).value,
        in_service=None if found is None or found.out is None else not found.out,
        since=None if found is None else found.since,
        seen=None if found is None else found.seen,
        why="" if found is None else found.why,
        held="; ".join(f"{hold.owner}: {hold.reason}" for hold in holds),
        under_way=doing,
        image="" if image is None else f"{image.name} {image.version}",
        bmc=desired.endpoints.bmc or "",
        host=desired.endpoints.host or "",
        serial=desired.serial or record.serial or "",
        domains=dict(desired.domains),
    )


def pool_rows(rows: Sequence[NodeRow]) -> Sequence[PoolRow]:
    """Return the pools of these nodes, in their order."""
    found = []
    for pool in dict.fromkeys(row.pool for row in rows):
        own = [row for row in rows if row.pool == pool]
        service = Counter(row.in_service for row in own)
        statuses = dict(sorted(Counter(row.status for row in own).items()))
        held = sum(bool(row.held) for row in own)
        found.append(PoolRow(pool, len(own), service[True], service[False], service[None], held, statuses))
    return found
