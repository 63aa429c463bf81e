"""The variants of the actions that tell the serving group of a node to serve without it, and with it again."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.planner.node import conditions as c
from reconciler.planner.node.traits import NodeTraits, Variant


def in_a_group(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.serving is not None:
        yield Variant()


def sync_serving(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.serving is not None and node.desired.serving.sync is not None:
        yield Variant()


def degrade_serving(node: NodeTraits) -> Iterable[Variant]:
    copied = (c.SERVING_SYNCED,) if any(sync_serving(node)) else ()
    yield from (Variant(requires=copied) for _ in in_a_group(node))
