"""The finding of a node's health, as explain shows it."""

from __future__ import annotations

from typing import Any

from reconciler.health.finding import Finding, finding
from reconciler.render.explanation import Explanation
from reconciler.render.text import plain


def finding_of(made: Explanation) -> Finding | None:
    """Return the finding from those signals that the plan shows as drift; None where nothing was looked at."""
    seen, plan = made.observed, made.node_plan
    if seen is None or plan is None or made.path:
        return None
    shown = {item.path for item in plan.drift}
    return finding(made.desired.profile, seen, lambda signal: signal.path in shown, made.desired.domains)


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
