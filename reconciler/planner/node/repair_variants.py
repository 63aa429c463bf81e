"""The variants of the actions of a repair by a person: which of them its phase has."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.repairs import RepairPhase
from reconciler.planner.node import conditions as c
from reconciler.planner.node.traits import NodeTraits, Variant


def set_indicator(node: NodeTraits) -> Iterable[Variant]:
    """The LED is on while a person may come: until what was put in is accepted."""
    if node.repair is RepairPhase.OUT:
        yield Variant("on", requires=(c.QUIESCED,), achieves=(c.INDICATED,), forbids=(c.INDICATED,))
    elif node.repair is not None:
        yield Variant("off", achieves=(c.NOT_INDICATED,), breaks=(c.INDICATED,), forbids=(c.NOT_INDICATED,))


def shut_down(node: NodeTraits) -> Iterable[Variant]:
    if node.repair is RepairPhase.OUT:
        yield Variant()


def accept_parts(node: NodeTraits) -> Iterable[Variant]:
    if node.repair is RepairPhase.RETURNING:
        yield Variant()
