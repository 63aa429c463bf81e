"""Say what a node must have before it serves, and give the variants of the actions that bring it there at last."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.desired import Desired
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import firmware_ok
from reconciler.planner.node.traits import NodeTraits, Variant, operators_of


def admission_requires(desired: Desired) -> tuple[str, ...]:
    """Return the conditions that must be known and true before a node may serve (invariant 6)."""
    firmware = tuple(firmware_ok(item.component) for item in desired.profile.firmware)
    k3s = (c.K3S_RELEASE, c.K3S) if desired.profile.k3s is not None else ()
    backup = (c.RESTORED,) if desired.profile.backup is not None else ()
    known_by = c.HOST_IDENTITY if desired.by_person else c.IDENTITY
    return (
        known_by, c.POWER_ON, c.HOST_UP, c.IMAGE, *firmware, c.BIOS, c.BOOT, c.HOST, c.GPU, c.HARDWARE, *k3s, *backup,
        c.HEALTHY, c.MEMBER, c.LABELS, c.TRUST, c.GATE, *operators_of(desired),
    )  # fmt: skip


def await_operators(node: NodeTraits) -> Iterable[Variant]:
    """The last step before labels and admission: what it saw has to hold when the node begins to serve."""
    if node.operators:
        yield Variant(requires=node.mark)


def set_labels(node: NodeTraits) -> Iterable[Variant]:
    if node.clustered:
        yield Variant(requires=() if node.cordoned else (c.IN_SERVICE,))
        # Out of service, labels that attract work come last: after gate and GPU mode, just before admission.
        yield Variant(requires=(c.MARKED, c.GATE, c.GPU), only_out_of_service=True)


def admit(node: NodeTraits) -> Iterable[Variant]:
    """Without a cluster, the ledger alone knows that a node was drained: admission ends that there."""
    yield Variant(requires=(*node.mark, *admission_requires(node.desired)), breaks=node.mark)


def reserve(node: NodeTraits) -> Iterable[Variant]:
    if node.clustered:
        yield Variant(requires=admission_requires(node.desired))
