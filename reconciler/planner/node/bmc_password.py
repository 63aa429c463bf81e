"""Tell whether the password of a node's BMC is to be changed, and which nodes may begin: one of each pool at a time.

The attempts at it in the ledger say when it was changed last. A password that was never changed by us is due: it may be
the one that the machine came with, or that of a whole fleet. What was begun is ended first, so that in no pool two
secrets hold two passwords. A node waits while its BMC is at work, or may be: a flash, an installation, a change of
power.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.node import conditions as c
from reconciler.planner.node.bmc_reset import is_in_use
from reconciler.planner.node.conditions import ConditionBuilder, Context
from reconciler.planner.node.foreign_holds import foreign_hold
from reconciler.planner.node.goals import failed_often

ACTION: Final = "rotate_bmc_password"


def passwords_to_rotate(
    fleet: Fleet, observed: Mapping[str, Observed], records: Mapping[str, NodeRecord], now: datetime
) -> frozenset[str]:
    """Return the nodes whose password may be changed now: of each pool one at most.

    Each day another node of a pool is the first, so that one that can't be changed now keeps the others a day at most.
    """
    after_s = fleet.settings.rotate_after_s
    firsts: dict[str, tuple[bool, int, str]] = {}
    for name in observed.keys() & fleet.nodes.keys() if after_s is not None else ():
        desired, record = fleet.nodes[name], records.get(name) or NodeRecord(name)
        if not _is_due(record, after_s, now) or not _may_begin(desired, observed[name], record, now):
            continue
        last = _last(record)
        begun = last is not None and last.outcome not in ("done", "refused")
        rank = (not begun, zlib.crc32(f"{name} {now:%Y%m%d}".encode()), name)
        firsts[desired.pool] = min(rank, firsts.get(desired.pool, rank))
    return frozenset(name for _, _, name in firsts.values())


def assess_bmc_password(builder: ConditionBuilder, desired: Desired, record: NodeRecord, context: Context) -> None:
    """Tell whether the password needs no change now. Of a node that waits for others of its pool, it does not."""
    after_s = context.settings.rotate_after_s
    due = desired.node in context.passwords_to_rotate and _is_due(record, after_s, context.now)
    builder.set(c.BMC_PASSWORD, not due, _since(record))


def _since(record: NodeRecord) -> str:
    at = _changed_at(record)
    return "BMC password: never changed by this ledger" if at is None else f"BMC password: of {at:%Y-%m-%d %H:%M} UTC"


def _is_due(record: NodeRecord, after_s: float | None, now: datetime) -> bool:
    at = _changed_at(record)
    return after_s is not None and (at is None or at + timedelta(seconds=after_s) <= now)


def _may_begin(desired: Desired, observed: Observed, record: NodeRecord, now: datetime) -> bool:
    idle = isinstance(observed.hot, Answered) and not observed.hot.value.tasks
    mine = desired.state is NodeState.ACTIVE and not foreign_hold(observed)
    return idle and mine and not is_in_use(record) and not failed_often(record, ACTION, "", now)


def _last(record: NodeRecord) -> Attempt | None:
    return next((one for one in reversed(record.attempts) if one.action == ACTION), None)


def _changed_at(record: NodeRecord) -> datetime | None:
    done = (one for one in reversed(record.attempts) if one.action == ACTION and one.outcome == "done")
    return next((one.ended_at or one.at for one in done), None)
