"""The variants of the actions of a node that a person reimages."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.planner.node.traits import NodeTraits, Variant


def hold_for_reimage(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.profile.image is not None and node.desired.by_person:
        yield Variant(requires=node.saved)


def await_reimage(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.by_person:  # also where the spec wants no image any more since one was written
        yield Variant(requires=node.saved, breaks=node.lost_by_install)
