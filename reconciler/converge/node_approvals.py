"""Plans of nodes that a person has approved while the loop runs, where it would only report or propose them.

An approval binds the plan that was shown: as with `apply --plan`, a node whose plan has gone beyond it by then is left
alone. Approvals are of this process. Whoever leads after it starts without them, as after an `apply` that was cut
short, and the journal keeps who approved what. An approval ends when its node has come to rest, or some hours after the
last attempt: what comes then was never approved.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from reconciler.converge.approval import stale_because
from reconciler.model.errors import Refused, StalePlan, UsageError
from reconciler.model.plan import BlockCode, Goal, NodePlan, Plan
from reconciler.model.records import Attempt, NodeRecord, isolated_for

LASTS: Final = timedelta(hours=2)  # after it, or the last attempt: as long as a plan in a file that nothing began with
_UNSETTLED: Final = frozenset({BlockCode.UNKNOWN, BlockCode.UNDER_WAY})
_NAMED: Final = 5  # nodes that a message names


@dataclass(frozen=True, slots=True)
class NodeApproval:
    """The approved plan of a node, with the inputs that it shares with others, and who approved it."""

    plan: NodePlan
    shared: Mapping[str, Mapping[str, str]]
    by: str
    at: datetime


class NodeApprovals:
    """The approvals of a process. People add some from other threads, and the loop takes them in between its steps.

    `granted` is called after each addition, from the thread of whoever added it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, NodeApproval] = {}
        self._new: set[str] = set()
        self.granted: Callable[[], None] = lambda: None

    @property
    def nodes(self) -> Collection[str]:
        with self._lock:
            return tuple(self._of)

    def by(self, node: str, fingerprint: str) -> str:
        """Return who has approved this plan of a node; "" = nobody."""
        found = self._of.get(node)
        return found.by if found is not None and found.plan.fingerprint == fingerprint else ""

    def grant(self, plan: Plan, shown: Mapping[str, str], by: str, now: datetime) -> None:
        """Approve plans of nodes, by the fingerprints that were shown. All of them are approved, or none.

        Raise StalePlan where a plan is another one by now, and Refused or UsageError where it can't be approved here.
        """
        check_approvable(plan, shown)
        with self._lock:
            for node in shown:
                self._of[node] = NodeApproval(plan.nodes[node], plan.shared, by, now)
                self._new.add(node)
        self.granted()

    def take_new(self) -> Collection[str]:
        """Return the nodes that were approved since the last call."""
        with self._lock:
            found, self._new = self._new, set()
        return found

    def drop_ended(
        self,
        plans: Mapping[str, NodePlan],
        records: Mapping[str, NodeRecord],
        at_work: Collection[str],
        now: datetime,
    ) -> Sequence[tuple[str, str]]:
        """Drop the approvals that have ended by these plans, which are the latest of all nodes.

        Return node and why for those whose plan was not carried out.
        """
        lapsed = []
        with self._lock:
            for node, known in list(self._of.items()):
                if node in at_work:
                    continue
                fresh, record = plans.get(node), records.get(node)
                if fresh is None or (not fresh.changes and fresh.blocked is None):  # gone, or done
                    del self._of[node]
                elif why := _lapsed_because(known, fresh, record, now):
                    del self._of[node]
                    lapsed.append((node, why))
        return lapsed

    def drop_all(self) -> None:
        with self._lock:
            self._of.clear()
            self._new.clear()

    def approved(self, plan: Plan) -> Plan | None:
        """Return the approved plans of nodes in the form of one plan, made from `plan`; None = there are none."""
        with self._lock:
            known = dict(self._of)
        if not known:
            return None
        shared = {key: values for one in known.values() for key, values in one.shared.items()}
        return replace(plan, nodes={node: one.plan for node, one in known.items()}, shared=shared)

    def begun(self, records: Mapping[str, NodeRecord]) -> frozenset[str]:
        """Return the approved nodes that something was tried on since."""
        with self._lock:
            return frozenset(node for node, one in self._of.items() if _tried(one, records.get(node)))


def _lapsed_because(known: NodeApproval, fresh: NodePlan, record: NodeRecord | None, now: datetime) -> str:
    """Return why an approval has ended though its plan was not carried out; "" while it lasts.

    Once work has begun, drift that was not approved is taken for its consequence (converge/approval.py). So what would
    begin after the node has come to rest is no part of it.
    """
    tried = _tried(known, record)
    blocked = fresh.blocked
    if tried and not fresh.changes and blocked is not None and not (blocked.code.passes or blocked.code in _UNSETTLED):
        return f"work on it has come to rest: {blocked.detail}"
    if why := stale_because(known.plan, fresh, begun=bool(tried)):
        return why
    last = max((one.ended_at or one.at for one in tried), default=known.at)
    if now <= last + LASTS:
        return ""
    return f"nothing could {'go on' if tried else 'begin'} for {LASTS.total_seconds() / 3600:g} hours"


def _tried(approval: NodeApproval, record: NodeRecord | None) -> Sequence[Attempt]:
    """Return what was tried on a node since. Isolating it is no part of a plan."""
    attempts = () if record is None else record.attempts
    return [one for one in attempts if one.at >= approval.at and not isolated_for(one.cause)]


def check_approvable(plan: Plan, shown: Mapping[str, str]) -> None:
    """Raise what `NodeApprovals.grant` does."""
    if not shown:
        raise UsageError("name the nodes to approve, each with the fingerprint of its plan")
    if plan.refused:
        raise Refused(f"the plan is refused: {'; '.join(plan.refused)}")
    changed = [node for node, fingerprint in shown.items() if not _is(plan.nodes.get(node), fingerprint)]
    if changed:
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        raise StalePlan(
            f"the plan of {', '.join(sorted(changed)[:_NAMED])}{more} is another one now than was shown, so nothing is "
            "approved: look at it again"
        )
    final = sorted(node for node in shown if plan.nodes[node].goal is Goal.DECOMMISSIONED)
    if final:
        raise Refused(f"{final[0]} is to be decommissioned, which takes `apply --plan` and a typed confirmation")


def _is(plan: NodePlan | None, fingerprint: str) -> bool:
    return plan is not None and plan.changes and plan.fingerprint == fingerprint


def waker(changed: asyncio.Event) -> Callable[[], None]:
    """Return what sets the event of this loop from any thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    return wake
