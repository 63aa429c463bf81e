"""The variants of the actions that save and restore a node's own data."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.planner.node.traits import NodeTraits, Variant


def back_up(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.profile.backup is not None:
        yield Variant()


restore_backup = back_up
