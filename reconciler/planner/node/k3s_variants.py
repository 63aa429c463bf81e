"""The variants of the actions that put K3s on a node, and what of an observation decides them."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.k3s import K3sRole
from reconciler.model.observed import Answered, Observed
from reconciler.planner.node.traits import NodeTraits, Variant


def k3s_stopped(observed: Observed) -> bool:
    """Return whether the host answers, and runs no unit of K3s."""
    found = observed.host.value.k3s if isinstance(observed.host, Answered) else None
    return found is not None and not any(found.units.values())


def install_k3s(node: NodeTraits) -> Iterable[Variant]:
    """Kubernetes supports another version of the kubelet on a drained node alone ("Version Skew Policy")."""
    if node.desired.profile.k3s is not None:
        yield Variant(requires=node.before_k3s, breaks=node.operators)


def configure_k3s(node: NodeTraits) -> Iterable[Variant]:
    """A restart of an agent disturbs no pod; one of a server takes a member of etcd away, which the budget counts.

    The kubelet restarts with K3s, and offers devices again once their plugins have registered with it anew
    (kubernetes.io, "Device Plugins").
    """
    k3s = node.desired.profile.k3s
    if k3s is not None and k3s.role is K3sRole.AGENT:
        yield Variant(breaks=node.operators)
    elif k3s is not None:
        yield Variant(requires=node.before_k3s, breaks=node.operators, only_out_of_service=True)
