"""The variants of the actions that decommission a node: each needs those before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import erased
from reconciler.planner.node.traits import NodeTraits, Variant

if TYPE_CHECKING:
    from reconciler.planner.node.decommission import Leaving


def remove_node(node: NodeTraits) -> Iterable[Variant]:
    """While a system is needed for erasing, its kubelet is stopped first: one that starts would register again."""
    if node.leaving is not None and node.clustered:
        needs_host = set(node.leaving.drives) - node.leaving.offline
        yield Variant(requires=(*node.mark, *((c.HOST_UP,) if needs_host else ())))


def revoke(node: NodeTraits) -> Iterable[Variant]:
    if node.leaving is not None:
        yield Variant()


def erase(node: NodeTraits) -> Iterable[Variant]:
    """One variant per declared drive. The running system goes last: it erases the others."""
    if node.leaving is None:
        return
    hosted = [serial for serial in node.leaving.drives if serial not in node.leaving.offline]
    for serial in node.leaving.drives:
        last = serial in node.leaving.offline
        first = tuple(erased(other) for other in hosted) if last else (c.HOST_UP,)
        first += () if last and node.leaving.boots else (c.POWER_ON,)
        yield Variant(serial, requires=first, achieves=(erased(serial),), forbids=(erased(serial),))


def clear_tpm(node: NodeTraits) -> Iterable[Variant]:
    if node.leaving is not None and not node.leaving.no_tpm:
        yield Variant(node.desired.serial or "", requires=tuple(map(erased, node.leaving.drives)))


def power_off(node: NodeTraits) -> Iterable[Variant]:
    if node.leaving is not None:
        yield Variant(requires=(*map(erased, node.leaving.drives), *(() if node.leaving.no_tpm else (c.TPM,))))


def tombstone(node: NodeTraits) -> Iterable[Variant]:
    if node.leaving is not None:
        yield Variant(requires=leaving_requires(node.leaving))


def leaving_requires(leaving: Leaving) -> tuple[str, ...]:
    """Return the conditions that must be true before a machine gets its tombstone."""
    return (c.LEFT, c.REVOKED, *map(erased, leaving.drives), *(() if leaving.no_tpm else (c.TPM,)), c.OFF)
