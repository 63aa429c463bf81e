"""The signs of illness of a node, as items of its drift."""

from __future__ import annotations

from reconciler.diff.ignore import IgnoreRules
from reconciler.health.signals import Signal
from reconciler.health.table import Effect
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.vocab import Concern
from reconciler.planner.node.conditions import Conditions


def signal_items(desired: Desired, state: Conditions, rules: IgnoreRules) -> list[DriftItem]:
    """Return an item for each signal: what is acted upon, what waits to be told anew, and what is only shown."""
    told = [
        *((signal, DriftClass.DRIFTED, "") for signal in state.signals),
        *((signal, DriftClass.UNKNOWN, why) for signal, why in state.withheld),
        *((signal, DriftClass.REPORTED, _reported(signal)) for signal in state.reported),
        *((s, DriftClass.IGNORED, rule.reason) for s in state.ignored if (rule := rules.match(desired, s.path))),
    ]
    return [
        DriftItem(
            desired.node, Concern.HEALTH, signal.path, kind, "absent", signal.detail, source=signal.source,
            detail=detail,
        )
        for signal, kind, detail in told
    ]  # fmt: skip


def _reported(signal: Signal) -> str:
    return "reported only" if signal.effect is Effect.REPORTS else "retracted: reported only"
