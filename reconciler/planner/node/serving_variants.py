"""The variants of the actions that tell the serving group of a node to serve without it, and with it again."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.planner.node.traits import NodeTraits, Variant


def in_a_group(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.serving is not None:
        yield Variant()
