"""The variants of the actions that take power or state from a machine for a while, and of the one that gives power."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.planner.node import conditions as c
from reconciler.planner.node.traits import NodeTraits, Variant


def gpu_reset(node: NodeTraits) -> Iterable[Variant]:
    """A reset may end MIG, as a boot does. What was booted stays."""
    yield Variant(breaks=(*node.operators, *((c.GPU,) if node.mig else ())))


def boot(node: NodeTraits) -> Iterable[Variant]:
    yield Variant(breaks=node.lost_by_boot)


def ac_cycle(node: NodeTraits) -> Iterable[Variant]:
    """Its target names the nodes that lose power with it, so that approval and fingerprint bind them."""
    if node.desired.outlets:
        yield Variant(target=",".join(node.desired.cut_with), breaks=node.lost_by_boot)


def power_on(node: NodeTraits) -> Iterable[Variant]:
    """A node that is off is out of service. It must be marked first, or it would serve as soon as it is up."""
    breaks = (*node.lost_by_boot, *((c.QUIESCED,) if node.busy else ()))
    yield Variant(requires=node.mark_if_registered, breaks=breaks if node.leaving is None else (*breaks, c.OFF))
