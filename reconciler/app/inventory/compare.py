"""How the nodes of a spec differ from those that an inventory names.

An inventory says which nodes there are, where they are reached, and in which failure domains they stand. Everything
else is the spec's. A node that it lacks is retired and never taken out of the spec: a retired node is not acted upon,
and the data on its drives stays where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from reconciler.app.inventory.collisions import ENDED, without_collisions
from reconciler.app.inventory.fields import InventoryRow
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import Refused
from reconciler.model.inventory import InventoryDifference, InventoryPolicy, NodeEdit, NodeStep
from reconciler.model.records import NodeRecord
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import NodeState
from reconciler.spec.node_source import NORMALISERS
from reconciler.strict_yaml.characters import check_line


def compare(
    fleet: Fleet, policy: InventoryPolicy, rows: Sequence[InventoryRow], records: Mapping[str, NodeRecord]
) -> InventoryDifference:
    """Return what the spec lacks to be in step. `records`: what the ledger knows of nodes, as evidence.

    Raise Refused for an inventory that names no node, too few, or too many in another way: an answer of nothing or of
    half retires nobody.
    """
    if not rows:
        raise Refused(
            f"{policy.kind} answers with no node at all, so nothing is proposed: look whether the query or the file of "
            "Fleet.inventory is right"
        )
    named, left, held = _named(rows)
    mine = {name: node for name, node in fleet.nodes.items() if not policy.pools or node.pool in policy.pools}
    steps = list[NodeStep]()
    for name in (name for name in named if name not in fleet.nodes):
        held |= _addresses(named[name])
        if isinstance(step := _addition(fleet, policy, named[name]), str):
            left[name] = step
        else:
            steps.append(step)
    steps += [step for name, node in mine.items() if name in named for step in _changes(node, named[name])]
    left |= {name: why for name, node in mine.items() if name in named and (why := _differs(node, named[name]))}
    steps, taken = without_collisions(fleet, named, steps)
    left |= taken
    absent = [node for name, node in mine.items() if node.state not in ENDED and name not in named]
    left = {node.node: why for node in absent if (why := _may_be_renamed(node, held))} | left
    gone = [node for node in absent if node.node not in left]
    changed = tuple(step for step in steps if step.node in fleet.nodes)
    _guard(policy, gone, changed, sum(node.state not in ENDED for node in mine.values()))
    retired = [_retirement(node, records.get(node.node) or NodeRecord(node.node), len(rows)) for node in gone]
    added = tuple(step for step in steps if step.node not in fleet.nodes)
    return InventoryDifference(len(rows), added, changed, tuple(retired), tuple(sorted(left.items())))


def _named(rows: Sequence[InventoryRow]) -> tuple[dict[str, InventoryRow], dict[str, str], dict[str, str]]:
    """Return the nodes by name with normal addresses, name -> why for rows that are none, and the addresses of these.

    Each address is with the place of its row in the inventory.
    """
    found, left, held = dict[str, InventoryRow](), dict[str, str](), dict[str, str]()
    times = Counter(row.cells.get("name", "") for row in rows)
    for row in rows:
        name, cells = row.cells.get("name", ""), dict(row.cells)
        normal, problem = _normal(cells)
        if why := _unfit(cells, times[name]) or problem:
            left[name or row.where] = f"{row.where}: {why}"
            held |= _addresses(InventoryRow(normal, row.where))
        else:
            found[name] = replace(row, cells=cells | normal)
    return found, left, held


def _normal(cells: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the cells with a normal form in that form, and what is wrong with one of the others; "" = nothing."""
    found, problem = dict[str, str](), ""
    for column, cell in cells.items():
        try:
            if column in ("name", "bmc", "host"):
                found[column] = NORMALISERS[column](cell)
            else:
                check_line(cell)
        except ValueError as error:
            problem = problem or str(error)
    return found, problem


def _addresses(row: InventoryRow) -> dict[str, str]:
    return {row.cells[column]: row.where for column in ("bmc", "host") if column in row.cells}


def _may_be_renamed(node: Desired, held: Mapping[str, str]) -> str:
    """Return why a node that the inventory does not name may still be there. `held`: addresses of other rows."""
    found = next((address for address in (node.endpoints.bmc, node.endpoints.host) if address in held), None)
    if found is None:
        return ""
    return (
        f"the inventory lacks this name, and {held[found]} has its address: if it was renamed, rename it in the spec "
        "by hand, else correct the inventory"
    )


def _unfit(cells: Mapping[str, str], times: int) -> str:
    """Return why a row is no node; "" when it may be one. `times`: rows of its name."""
    if "name" not in cells:
        return "it has no name"
    if times > 1:
        return f"{times} of the inventory have this name"
    if "bmc" not in cells and "host" not in cells:
        return "it has no address, neither of a BMC nor of a host"
    return ""


def _addition(fleet: Fleet, policy: InventoryPolicy, row: InventoryRow) -> NodeStep | str:
    """Return the step that adds a node; a sentence where nobody says to which pool."""
    pool = row.cells.get("pool") or policy.pool
    if not pool:
        return "the inventory names no pool for it, and Fleet.inventory has no `pool` for such nodes"
    if pool not in fleet.rollouts:
        return f"its pool is {pool} in the inventory, and the spec has no such pool"
    if policy.pools and pool not in policy.pools:
        return f"its pool is {pool}, which is not among `pools` of Fleet.inventory"
    edits = tuple(NodeEdit(path, "", value) for path, value in _values(row).items())
    return NodeStep(row.cells["name"], pool, edits, f"{row.where} is not in the spec")


def _changes(node: Desired, row: InventoryRow) -> Iterator[NodeStep]:
    now = {"endpoints.bmc": node.endpoints.bmc, "endpoints.host": node.endpoints.host}
    now |= {f"domains.{label}": value for label, value in node.domains.items()}
    said = _values(replace(row, cells={key: cell for key, cell in row.cells.items() if key not in row.guessed}))
    edits = tuple(NodeEdit(path, now.get(path) or "", to) for path, to in said.items() if now.get(path) != to)
    if edits and node.state not in ENDED:
        yield NodeStep(node.node, node.pool, edits, f"{row.where} says so")


def _values(row: InventoryRow) -> dict[str, str]:
    """Return the values that an inventory has a say in, by path."""
    found = {f"endpoints.{column}": row.cells[column] for column in ("bmc", "host") if column in row.cells}
    domains = {"domains.rack": row.cells["rack"]} if "rack" in row.cells else {}
    return found | domains | {key: value for key, value in row.cells.items() if key.startswith("domains.")}


def _differs(node: Desired, row: InventoryRow) -> str:
    """Return what only a person can settle of a node that both know; "" for none."""
    if node.state in ENDED:
        return f"it is {node.state} in the spec, and the inventory still has it"
    pool = row.cells.get("pool", "")
    if pool and pool != node.pool:
        return (
            f"its pool is {node.pool} in the spec and {pool} in the inventory: with another pool it wants other things"
        )
    return ""


def _guard(policy: InventoryPolicy, gone: Sequence[Desired], changed: Sequence[NodeStep], known: int) -> None:
    most = parse_nodes(policy.retire, known)
    if len(gone) > most:
        raise Refused(
            f"{policy.kind} lacks {len(gone)} of {known} nodes of the spec ({_first([node.node for node in gone])}), "
            f"and one proposal retires {most} at most (Fleet.inventory.retire: {policy.retire}), so nothing is "
            "proposed: if it has not answered with half, raise `retire` in the spec, or retire them by hand"
        )
    most = parse_nodes(policy.change, known)
    if len(changed) > most:
        raise Refused(
            f"{policy.kind} has other addresses or failure domains for {len(changed)} of {known} nodes of the spec "
            f"({_first([step.node for step in changed])}; {_first_edit(changed[0])}), and one proposal changes {most} "
            f"at most (Fleet.inventory.change: {policy.change}), so nothing is proposed: if it is right, raise "
            "`change` in the spec, else correct the inventory or `columns`"
        )


def _first(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:5]) + (", ..." if len(nodes) > 5 else "")


def _first_edit(step: NodeStep) -> str:
    edit = step.edits[0]
    return f"{edit.path} of {step.node}: {edit.before or 'none'} -> {edit.after}"


def _retirement(node: Desired, record: NodeRecord, known: int) -> NodeStep:
    image = record.applied.get("image.version")
    holds = f"runs {image.value}" if image is not None else "runs what its last installation left"
    serves = ", is certified for work" if record.certificate is not None else ""
    why = (
        f"none of the {known} nodes of the inventory is it. It {holds}{serves}, and its drives keep their data: "
        "retired, it is left alone and nothing is erased"
    )
    return NodeStep(node.node, node.pool, (NodeEdit("state", node.state.value, NodeState.RETIRED.value),), why)
