"""Tell whether a BMC that does not answer is to be reset from its host, which answers. No work there notices.

It treats no node: what is wrong is the BMC, and the node serves. The rung reset_bmc of the policy's ladder asks for it
and bounds it, for the reported signals whose rows name it. A BMC that refuses our credentials works, and so does one
that has no session left for us; one that answers 503 and no more does not. Where several are silent in one failure
domain, or more than `FEW` in a fleet, the network fails (pitfall J6): none is reset. Nor is one that may be silent
since we use it: a flash goes on without whoever began it, and is lost with the BMC's power (pitfall F8). No two are
reset at once, whatever the budget allows: it is not known what they share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from reconciler.health.ladder import NOT_TRIED, Treated, limit_reached
from reconciler.health.signals import Signal
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Disruption, NodeState, UnknownReason
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.conditions import ConditionBuilder
from reconciler.planner.node.foreign_holds import foreign_hold
from reconciler.planner.node.record import is_admission
from reconciler.spec.kinds.remediation_policy import RungAction

ACTION: Final = "reset_bmc_from_host"
FEW: Final = 2  # BMCs of a fleet that may be silent at once
_OPEN: Final = frozenset({"started", "ambiguous"})
HANGS: Final = frozenset({UnknownReason.UNREACHABLE, UnknownReason.TIMEOUT, UnknownReason.MALFORMED})


def bmc_to_reset(
    fleet: Mapping[str, Desired], observed: Mapping[str, Observed], records: Mapping[str, NodeRecord], now: datetime
) -> str:
    """Return the one node of the fleet whose BMC may be reset now; "" where none may.

    Of a node that was not asked, the ledger tells whether its BMC was silent when it was.
    """
    silent = [name for name in observed.keys() & fleet.keys() if _is_silent(observed[name], records.get(name))]
    if not silent or len(silent) > FEW:
        return ""
    count = Counter(domain for name in silent for domain in fleet[name].domains.items())
    may = {
        name
        for name in silent
        if all(count[domain] == 1 for domain in fleet[name].domains.items())
        and _may_be_reset(fleet[name], observed[name], records.get(name) or NodeRecord(name), now)
    }
    under_way = {name for name in fleet.keys() & records.keys() if may and _is_under_way(records[name])}
    return min(may & under_way if under_way else may, default="")


def _is_silent(observed: Observed, record: NodeRecord | None) -> bool:
    if not isinstance(observed.hot, Silent):
        return False
    if observed.hot.reason is UnknownReason.NOT_ASKED:
        return record is not None and "redfish" in record.silent_since
    return observed.hot.reason in HANGS


def _may_be_reset(desired: Desired, observed: Observed, record: NodeRecord, now: datetime) -> bool:
    host = isinstance(observed.host, Answered) and desired.state is NodeState.ACTIVE
    return host and not is_in_use(record) and not foreign_hold(observed) and _may_be_tried(desired, record, now)


def _is_under_way(record: NodeRecord) -> bool:
    return any(one.action == ACTION and one.outcome == "started" for one in record.attempts)


def assess_bmc(
    builder: ConditionBuilder,
    desired: Desired,
    observed: Observed,
    record: NodeRecord,
    reported: Collection[Signal],
    now: datetime,
    *,
    chosen: bool,
) -> None:
    """Tell whether the BMC needs no reset. `chosen`: see `bmc_to_reset`."""
    hangs = isinstance(observed.hot, Silent) and observed.hot.reason in HANGS
    shown = [one.path for one in reported if RungAction.RESET_BMC in (one.rule.row.rungs or ())] if hangs else []
    due = bool(shown) and chosen and isinstance(observed.host, Answered) and _may_be_tried(desired, record, now)
    due = due and not is_in_use(record)
    builder.set(c.BMC_ANSWERS, not due, *dict.fromkeys(shown))


def is_in_use(record: NodeRecord) -> bool:
    """Return whether the end of a flash, an installation or a change of power is not known, since the node served.

    A flash whose end nobody saw in time may go on.
    """
    ended: set[tuple[str, str]] = set()
    for attempt in reversed(record.attempts):
        if is_admission(attempt):
            return False
        spec, what = spec_of(attempt.action), (attempt.action, attempt.target)
        if not (spec.activates or spec.disruption >= Disruption.POWER_CYCLE) or what in ended:
            continue
        if attempt.outcome in _OPEN or (spec.flashes and attempt.outcome == "transient"):
            return True
        if attempt.judged:
            ended.add(what)
    return False


def _may_be_tried(desired: Desired, record: NodeRecord, now: datetime) -> bool:
    policy = desired.profile.remediation
    rungs = () if policy is None else [rung for rung in policy.ladder if rung.action == RungAction.RESET_BMC]
    if policy is None or not rungs or limit_reached(policy, record.since_release, now, Treated()):
        return False
    since = now - timedelta(seconds=policy.window_s)
    tried = [one for one in record.attempts if one.action == ACTION and one.outcome not in NOT_TRIED]
    return sum(one.begun > since for one in tried) < sum(rung.attempts for rung in rungs)
