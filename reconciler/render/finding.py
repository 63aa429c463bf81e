"""The finding of a node's health, as explain shows it."""

from __future__ import annotations

from typing import Any

from reconciler.health.finding import Finding, finding
from reconciler.health.signals import Signal
from reconciler.health.table import table_of
from reconciler.model.vocab import Source
from reconciler.render.explanation import Explanation
from reconciler.render.text import plain
from reconciler.spec.signals import PREFIX


def finding_of(made: Explanation) -> Finding | None:
    """Return the finding from the signals that the plan shows as drift; None where nothing was looked at."""
    seen, plan = made.observed, made.node_plan
    if seen is None or plan is None or made.path:
        return None
    table = table_of(made.desired.profile)
    shown = [
        Signal(item.path.removeprefix(PREFIX), str(item.observed), rule, item.source or Source.LEDGER)
        for item in plan.drift
        if (rule := table.rule_at(item.path)) is not None
    ]
    return finding(made.desired.profile, seen, shown, made.desired.domains)


def finding_lines(made: Explanation) -> list[str]:
    found = finding_of(made)
    if found is None:
        return []
    lines = [f"health: {plain(found.cause)}"]
    lines += [f"  evidence: {one.name} ({plain(one.detail)})" for one in found.evidence]
    lines += [f"  not explained by it: {one.name} ({plain(one.detail)})" for one in found.apart]
    lines += [f"  ruled out: {plain(said)}" for said in found.ruled_out]
    return lines + [f"  open: {plain(said)}" for said in found.open]


def finding_document(made: Explanation) -> dict[str, Any] | None:
    found = finding_of(made)
    if found is None:
        return None
    return {
        "cause": found.cause,
        "evidence": [{"path": one.path, "detail": one.detail} for one in found.evidence],
        "apart": [{"path": one.path, "detail": one.detail} for one in found.apart],
        "ruledOut": list(found.ruled_out),
        "open": list(found.open),
    }
