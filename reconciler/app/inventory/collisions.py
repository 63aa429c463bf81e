"""Steps that would give one address to two nodes. The spec would not be valid with them, and so without all others."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from reconciler.app.inventory.fields import InventoryRow
from reconciler.model.desired import Fleet
from reconciler.model.inventory import NodeEdit, NodeStep
from reconciler.model.vocab import NodeState

ENDED: Final = (NodeState.RETIRED, NodeState.DECOMMISSIONED)
_COLUMNS: Final[Mapping[str, str]] = {"endpoints.bmc": "bmc", "endpoints.host": "host"}
_SHOWN: Final[Mapping[str, str]] = {"endpoints.bmc": "BMC", "endpoints.host": "host"}


def without_collisions(
    fleet: Fleet, named: Mapping[str, InventoryRow], steps: Sequence[NodeStep]
) -> tuple[list[NodeStep], dict[str, str]]:
    """Return the steps that no other node's address is in the way of, and name -> why for the others.

    Nodes may exchange addresses. A step that is left out keeps its node where it is, and may be in another's way.
    """
    holders = defaultdict[tuple[str, str], set[str]](set)
    moves = {step.node: {edit.path for edit in step.edits} for step in steps}
    for name, node in fleet.nodes.items():
        for path, value in (("endpoints.bmc", node.endpoints.bmc), ("endpoints.host", node.endpoints.host)):
            if value and path not in moves.get(name, ()):
                holders[path, value].add(name)
    kept = {step.node: step for step in steps}
    for step in steps:
        for edit in _of_addresses(step):
            holders[edit.path, edit.after].add(step.node)
    left, waiting = dict[str, str](), deque(kept)
    while waiting:
        name = waiting.popleft()
        if name not in kept or not (why := _in_the_way(fleet, named, kept[name], holders)):
            continue
        left[name] = why
        for edit in _of_addresses(kept.pop(name)):
            if edit.before:
                waiting.extend(holders[edit.path, edit.before])
                holders[edit.path, edit.before].add(name)
    return list(kept.values()), left


def _of_addresses(step: NodeStep) -> list[NodeEdit]:
    return [edit for edit in step.edits if edit.path in _COLUMNS]


def _in_the_way(
    fleet: Fleet, named: Mapping[str, InventoryRow], step: NodeStep, holders: Mapping[tuple[str, str], set[str]]
) -> str:
    """Return why a step can't be taken; "" when it can."""
    for edit in _of_addresses(step):
        for other in sorted(holders[edit.path, edit.after] - {step.node}):
            return f"it has the {_SHOWN[edit.path]} of {other}{_settled(fleet, named, step, edit, other)}"
    return ""


def _settled(fleet: Fleet, named: Mapping[str, InventoryRow], step: NodeStep, edit: NodeEdit, other: str) -> str:
    """Return what the other node is, and what a person can do."""
    node = fleet.nodes.get(other)
    if other in named and named[other].cells.get(_COLUMNS[edit.path]) == edit.after:
        return ", which the inventory names too: correct the inventory"
    if node is not None and node.state in ENDED:
        return f", which is {node.state} in the spec: take {other} out of it once nothing on it is wanted"
    if other in named:
        return f", which keeps it for now: see to {other} first"
    if step.node not in fleet.nodes:
        return " of the spec: if it was renamed, rename it in the spec by hand"
    return f" of the spec, which the inventory lacks: take {other} out of the spec once nothing on it is wanted"
