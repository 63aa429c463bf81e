"""Add to the drift what decides how it is removed: what a node's BMC can't do, and which way an image takes."""

from __future__ import annotations

from dataclasses import replace

from reconciler.model.drift import ACTIONABLE, DriftItem
from reconciler.model.vocab import Concern
from reconciler.planner.node.catalogue import Catalogue
from reconciler.planner.node.conditions import Conditions
from reconciler.planner.node.evaluate import condition_of


def with_remarks(
    items: tuple[DriftItem, ...], full: Catalogue, state: Conditions, kept: tuple[str, ...] = ()
) -> tuple[DriftItem, ...]:
    """Return the drift, and say of which the BMC can't remove, and of an image who would write it.

    `kept`: the mount points of which an installer keeps what is there.
    """
    if not any(item.kind in ACTIONABLE for item in items):
        return items  # as of nearly all nodes
    refused = _refused(full, state)
    way = _way(state, kept)
    if not refused and not way:
        return items
    return tuple([_with_remark(item, refused.get(condition_of(item) or "", ""), way) for item in items])


def _refused(full: Catalogue, state: Conditions) -> dict[str, str]:
    """Return the conditions that an action can't bring about in any way, each with the reason."""
    possible = {(row.name, name) for row in full.rows if row.id not in state.impossible for name in full.brings(row)}
    return {
        name: why
        for row in full.rows
        if (why := state.impossible.get(row.id))
        for name in full.brings(row)
        if (row.name, name) not in possible
    }


def _way(state: Conditions, kept: tuple[str, ...]) -> str:
    if state.needs_installer is None:
        return ""
    if not state.needs_installer:
        return "in place, by the running system"
    return f"by the installer{', which keeps ' + ' and '.join(kept) if kept else ''}: {state.needs_installer}"


def _with_remark(item: DriftItem, refused: str, way: str) -> DriftItem:
    if item.kind not in ACTIONABLE:
        return item
    told = [item.detail, way if item.concern is Concern.IMAGE else "", f"its BMC can't change it: {refused}"]
    shown = "; ".join(filter(None, told if refused else told[:2]))
    return item if shown == item.detail else replace(item, detail=shown)
