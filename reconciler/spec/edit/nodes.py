"""Add nodes to pools of a spec, and give nodes other values of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from reconciler.model.desired import Desired, Endpoints, Fleet
from reconciler.model.errors import Refused
from reconciler.model.inventory import InventoryDifference, NodeStep
from reconciler.model.vocab import NodeState
from reconciler.spec import check_spec
from reconciler.spec.edit.accept import DOMAINS, entry_of, set_own
from reconciler.spec.edit.files import Location, SpecFiles
from reconciler.spec.edit.table import Table
from reconciler.strict_yaml.parse import Steps

_COLUMNS = {"endpoints.bmc": "bmc", "endpoints.host": "host"}


def write_steps(files: SpecFiles, fleet: Fleet, difference: InventoryDifference) -> None:
    """Edit `files`, which `fleet` was loaded from.

    Raise Refused for a place that can't be edited, and unless the edited spec is valid and differs in these alone.
    """
    edits: dict[str, dict[str, tuple[tuple[str, str], ...]]] = defaultdict(dict)
    for step in (*difference.changed, *difference.retired):
        edits[step.pool][step.node] = tuple((one.path, _written(one.path, one.after)) for one in step.edits)
    for pool, own in edits.items():
        set_own(files, files.pool(pool), own)
    new: dict[str, list[NodeStep]] = defaultdict(list)
    for step in difference.added:
        new[step.pool].append(step)
    for pool, steps in new.items():
        _add(files, files.pool(pool), steps)
    if difference.steps:
        _prove(files, fleet, difference)


def _written(path: str, value: str) -> str:
    return value.removesuffix(":22") if path == "endpoints.host" else value


def _add(files: SpecFiles, pool: Location, steps: Sequence[NodeStep]) -> None:
    """Add rows to the pool's CSV file, where it has one with the columns that a node needs; entries otherwise."""
    spec = files.yaml(pool.file).value(pool.document, ("spec",))
    table = Table(files.text(spec["inventory"])) if spec.get("inventory") else None
    values, rows = dict[Steps, object](), list[dict[str, str]]()
    number = len(spec.get("nodes") or ())
    for step in steps:
        row = {"name": step.node} | {
            _COLUMNS.get(one.path, one.path): _written(one.path, one.after) for one in step.edits
        }
        if table is not None and row.keys() <= set(table.columns):
            rows.append(row)
            continue
        values |= {("spec", "nodes", number, key): value for key, value in entry_of(row).items()}
        number += 1
    if table is not None:
        table.add(rows)
        files.write(spec["inventory"], table.text)
    if values:
        files.write(pool.file, files.yaml(pool.file).set(pool.document, values, before=("inventory",)).text)


# --- the proof -----------------------------------------------------------------------------------------------------


def _prove(files: SpecFiles, before: Fleet, difference: InventoryDifference) -> None:
    after, problems = check_spec(files.contents(), directory=files.directory, origin=before.source)
    if after is None:
        raise Refused(f"the spec would not be valid, so nothing is proposed: {problems[0]}")
    added = {step.node for step in difference.added}
    if after.nodes.keys() != before.nodes.keys() | added:
        raise Refused("other nodes would be added or removed, so nothing is proposed")
    steps = {step.node: step for step in difference.steps}
    for name, node in after.nodes.items():
        wanted = before.nodes.get(name, node)
        if name in steps:
            wanted = _edited(wanted, steps[name])
        if _values(node) != _values(wanted):
            raise Refused(f"{name} would change in other values, too, so nothing is proposed: edit the spec by hand")


def _edited(node: Desired, step: NodeStep) -> Desired:
    values = {one.path: one.after for one in step.edits}
    own = {path.removeprefix(DOMAINS): to for path, to in values.items() if path.startswith(DOMAINS)}
    reached = Endpoints(
        values.get("endpoints.bmc", node.endpoints.bmc), values.get("endpoints.host", node.endpoints.host)
    )
    state = NodeState(values["state"]) if "state" in values else node.state
    return replace(node, endpoints=reached, domains={**node.domains, **own}, state=state, pool=step.pool)


def _values(node: Desired) -> Desired:
    """Return a node without the lines of the spec, which an edit moves."""
    return replace(node, provenance={}, profile=replace(node.profile, provenance={}))
