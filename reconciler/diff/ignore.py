"""Apply ignore rules. The diff applies them, so drift, plan and apply all see the same effect."""

from __future__ import annotations

from datetime import date, datetime
from fnmatch import fnmatchcase

from reconciler.model.desired import Desired, IgnoreRule


class IgnoreRules:
    """The ignore rules that are valid now. Rules past their date ignore nothing, and are in `expired`."""

    def __init__(self, rules: tuple[IgnoreRule, ...], now: datetime) -> None:
        today = now.date()
        self.valid = tuple(rule for rule in rules if not rule.expires or date.fromisoformat(rule.expires) >= today)
        self.expired = tuple(rule for rule in rules if rule not in self.valid)

    def match(self, desired: Desired, path: str) -> IgnoreRule | None:
        for rule in self.valid:
            if rule.covers(path) and _matches_node(rule, desired):
                return rule
        return None

    def key(self, desired: Desired) -> tuple[int, ...]:
        """Return the indexes of the rules that apply to this node; equal nodes with equal keys share a comparison."""
        return tuple(at for at, rule in enumerate(self.valid) if _matches_node(rule, desired))


def _matches_node(rule: IgnoreRule, desired: Desired) -> bool:
    if not rule.pools and not rule.nodes:
        return True
    return desired.pool in rule.pools or any(fnmatchcase(desired.node, pattern) for pattern in rule.nodes)
