"""Tell which nodes hang on the same outlets, and whether they can ever be cut off from mains together (pitfall K6).

What is said here follows from the spec alone, so it is known before anything is done to a node. What changes by the
hour, such as holds, work and room in the budget, is asked by converge/siblings.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from reconciler.model.desired import Desired
from reconciler.model.k3s import K3sRole
from reconciler.model.vocab import NodeState
from reconciler.spec.node_source import NodeSource


def with_shared_outlets(nodes: Iterable[NodeSource]) -> list[NodeSource]:
    """Return the nodes, each outlet with the other nodes that it gives power, too."""
    nodes = list(nodes)
    fed: defaultdict[tuple[str | None, str], list[str]] = defaultdict(list)
    for node in nodes:
        for outlet in node.outlets:
            fed[outlet.pdu, outlet.name].append(node.name)
    return [_with_shared(node, fed) if node.outlets else node for node in nodes]


def _with_shared(node: NodeSource, fed: Mapping[tuple[str | None, str], Sequence[str]]) -> NodeSource:
    others = [tuple(sorted({*fed[one.pdu, one.name]} - {node.name})) for one in node.outlets]
    shared = (replace(one, shared_with=other) for one, other in zip(node.outlets, others, strict=True))
    return replace(node, outlets=tuple(shared))


def with_bars(nodes: Mapping[str, Desired]) -> dict[str, Desired]:
    """Return the nodes. One whose outlets give others power carries why it can't be cut off with them, if so."""
    return {
        name: replace(node, uncut=why) if node.cut_with and (why := why_never(node, nodes)) else node
        for name, node in nodes.items()
    }


def why_never(node: Desired, nodes: Mapping[str, Desired]) -> str:
    """Return why a node can't be cut off together with those that share its outlets; "" when it may be, some time."""
    own = {(outlet.pdu, outlet.name) for outlet in node.outlets}
    for name in node.cut_with:
        other = nodes.get(name)
        if other is None:
            return f"{name} is not in the spec any more"
        if why := next(_lacks(other), ""):
            return f"{name} {why}"
        if not {(outlet.pdu, outlet.name) for outlet in other.outlets} <= own:
            return f"{name} has other outlets, too, so that its silence would prove nothing"
    return ""


def _lacks(node: Desired) -> Iterator[str]:
    """Yield why a node can't be drained, shut down, proved silent, tested and admitted for the cut of another."""
    profile = node.profile
    if node.state is not NodeState.ACTIVE:
        yield f"is {node.state}, and nothing is done to it"
    if not node.endpoints.bmc:
        yield "has no BMC, so nobody can shut it down"
    if profile.acceptance is None:
        yield "has no acceptance profile, so nothing could admit it again"
    if profile.membership is None or not profile.drain.provider.asks_cluster:
        yield "is not drained through the cluster, so nobody knows when it is empty"
    if profile.k3s is not None and profile.k3s.role is K3sRole.SERVER:
        yield "is a server of a K3s cluster"
    if node.serving is not None:
        yield "serves in a group, which would have to serve without it"
