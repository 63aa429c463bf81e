"""Check what the spec says of nodes that leave the fleet for good: what is destroyed is named exactly, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from reconciler.model.errors import Diagnostic
from reconciler.model.vocab import NodeState
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations

_GONE = NodeState.DECOMMISSIONED


def check_decommissioned(declared: Declarations, nodes: Iterable[NodeSource]) -> Iterator[Diagnostic]:
    for pool in declared.pools.values():
        if pool.spec.state is _GONE:
            problem = "a pool can't be decommissioned as a whole"
            yield pool.problem(("state",), problem, "set it for each of its nodes, with the drives to erase")
        for index, entry in enumerate(pool.spec.nodes):
            serials = Counter(entry.erase.serials if entry.erase is not None else ())
            for at, serial in enumerate(serials):
                if serials[serial] > 1:
                    yield pool.problem(("nodes", index, "erase", "serials", at), f"drive {serial!r} is named twice")
    for node in nodes:
        yield from _node(node)


def _node(node: NodeSource) -> Iterator[Diagnostic]:
    at = node.provenance.get("erase", node.at)
    if node.erase is not None and node.state is not _GONE:
        problem = f"{node.name} is {node.state}, and erase is for nodes that are decommissioned"
        yield Diagnostic(at, "", problem, "write `state: decommissioned` too, or take it away")
    if node.state is not _GONE:
        return
    if node.erase is None:
        problem = f"{node.name} is to be decommissioned, and nothing says what to erase"
        yield Diagnostic(node.at, "", problem, "write `erase: {serials: [...]}`, with [] to erase nothing")
    if node.serial is None:
        problem = f"{node.name} is to be decommissioned, and has no serial number"
        yield Diagnostic(node.at, "", problem, "give `serial`: a consent to erase is for one machine alone")
