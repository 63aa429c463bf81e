"""The lemon score: what a node has cost in 28 days, by the ledger. It is shown, and nothing acts on it.

RSC found nodes that fail jobs again and again by counting XIDs, tickets and times out of service over 28 days (arXiv
2410.21680; they were 1.2 % of the nodes and in 13 % of the daily jobs). Its thresholds were set by hand for its fleet,
so here is a score that is easy to explain, and a person compares: POINTS for each event, none for what a failure domain
caused. Application codes of GPUs are no signals, so they never count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Final

from reconciler.health.ladder import REMEDIATION
from reconciler.health.table import Effect, HealthTable
from reconciler.model.period_report import Episode
from reconciler.model.records import Attempt, isolated_for
from reconciler.model.reliability import Lemon

DAYS: Final = timedelta(days=28)
POINTS: Final[Mapping[str, int]] = {"isolation": 3, "repair": 2, "gate failure": 2, "XID": 1, "other signal": 1}
_NO_TRY = ("started", "refused")


def lemons(
    illness: Mapping[str, Sequence[Episode]],
    attempts: Mapping[str, Sequence[Attempt]],
    table: HealthTable,
    shared: AbstractSet[tuple[str, str]],
) -> tuple[Lemon, ...]:
    """Return the nodes with points, the most first. `shared`: (node, value path) of what a failure domain caused."""
    found = [
        _lemon(node, illness.get(node, ()), attempts.get(node, ()), table, shared) for node in {*illness, *attempts}
    ]
    return tuple(sorted((one for one in found if one.score), key=lambda one: (-one.score, one.node)))


def _lemon(
    node: str,
    episodes: Sequence[Episode],
    attempts: Sequence[Attempt],
    table: HealthTable,
    shared: AbstractSet[tuple[str, str]],
) -> Lemon:
    tried = [one for one in attempts if one.outcome not in _NO_TRY]
    repairs = sum(one.cause == REMEDIATION for one in tried)
    isolations = sum(
        one.action == "mark" and any((node, path) not in shared for path in isolated_for(one.cause)) for one in tried
    )
    gates = sum(one.action == "run_gate" and one.outcome == "permanent" for one in tried)
    own = [(one.path, rule) for one in episodes if (rule := table.rule_at(one.path)) and (node, one.path) not in shared]
    ill = [(path, rule) for path, rule in own if rule.effect is not Effect.REPORTS]
    xids = sum(path.startswith("health.xid_") for path, _ in ill)
    score = (
        POINTS["isolation"] * isolations + POINTS["repair"] * repairs + POINTS["gate failure"] * gates
        + POINTS["XID"] * xids + POINTS["other signal"] * (len(ill) - xids)
    )  # fmt: skip
    classes = Counter(rule.row.cause.value for path, rule in own if not path.startswith("health.xid_"))
    return Lemon(node, score, repairs, isolations, gates, xids, dict(sorted(classes.items())))
