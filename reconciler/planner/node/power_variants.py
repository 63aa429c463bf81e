"""The variants of the actions that take power or state from a machine for a while, and of the one that gives power."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reconciler.model.plan import PlannedAction
from reconciler.planner.node import conditions as c
from reconciler.planner.node.traits import NodeTraits, Variant

WITH: Final = "with:"  # begins the target of a node that is taken along


def gpu_reset(node: NodeTraits) -> Iterable[Variant]:
    """A reset may end MIG, as a boot does. What was booted stays."""
    yield Variant(breaks=(*node.operators, *((c.GPU,) if node.mig else ())))


def boot(node: NodeTraits) -> Iterable[Variant]:
    yield Variant(breaks=node.lost_by_boot)


def ac_cycle(node: NodeTraits) -> Iterable[Variant]:
    """The target names who loses power, too; or of a node that is taken along, with whom."""
    if node.cut_with:
        breaks = (*node.lost_by_boot, *node.gate_after_cut)
        yield Variant(WITH + node.cut_with, requires=node.mark_if_registered, achieves=(c.CUT,), breaks=breaks)
    elif node.desired.outlets:
        yield Variant(",".join(node.desired.siblings), breaks=node.lost_by_boot)


def siblings_in(actions: Iterable[PlannedAction], *, later: bool = False) -> tuple[str, ...]:
    """Return the other nodes that lose power by these actions. `later`: also if only an earlier treatment fails."""
    for action in actions:
        if action.name == "ac_cycle" and action.target and not action.target.startswith(WITH):
            return tuple(action.target.split(","))
        if c.TREATED in action.achieves and not later:
            return ()
    return ()


def power_on(node: NodeTraits) -> Iterable[Variant]:
    """A node that is off is out of service. It must be marked first, or it would serve as soon as it is up."""
    breaks = (*node.lost_by_boot, *((c.QUIESCED,) if node.busy else ()))
    yield Variant(requires=node.mark_if_registered, breaks=breaks if node.leaving is None else (*breaks, c.OFF))
