"""Write values of nodes into the spec where they change nothing for other nodes, in the fewest lines.

Where every node that a line applies to has the value, that line is changed. Where all nodes of a pool have it, the pool
gets it. Otherwise the node's own entry gets it, and an entry of several nodes is split.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import Position, Refused
from reconciler.spec.edit.files import Location, SpecFiles
from reconciler.spec.edit.table import Table
from reconciler.spec.ranges import contract, expand, is_range
from reconciler.strict_yaml.parse import Steps

IMAGE: Final = "image"  # name and version, which are written together
_OWN: Final[Mapping[str, str]] = {
    "identity.serial": "serial",
    "identity.uuid": "uuid",
    "host.hostname": "hostname",
    "endpoints.bmc": "bmc",
    "endpoints.host": "host",
    "state": "state",
}
DOMAINS: Final = "domains."
_RANGES: Final = ("name", "bmc", "host", "hostname", "serial", "uuid")
_FOLLOWING: Final = ("nodes", "inventory")  # new settings of a NodePool go before these keys
_Edits = tuple[tuple[str, Any], ...]  # path and value


class WriteLevel(StrEnum):
    """Where to write."""

    AUTO = "auto"
    NODE = "node"
    POOL = "pool"
    ORIGIN = "origin"  # the line that sets the value now


@dataclass(frozen=True, slots=True)
class WantedValue:
    """A value that a node is to have in the spec. None: the spec no longer asks for any."""

    node: str
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A value that was written: for which nodes, where, and why there."""

    path: str
    nodes: tuple[str, ...]
    where: str
    why: str


@dataclass(slots=True)
class _Group:
    """Nodes that are to get one value of a path, which one line sets for them now."""

    path: str
    value: Any
    origin: Position
    nodes: list[str] = field(default_factory=list)


def accept(
    files: SpecFiles, fleet: Fleet, wanted: Sequence[WantedValue], at: WriteLevel
) -> tuple[list[WrittenValue], list[str]]:
    """Edit `files`. Return what was written, and a sentence for each value that can't be written."""
    written: list[WrittenValue] = []
    refused: list[str] = []
    shared: list[tuple[Location, dict[Steps, Any]]] = []
    own: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    groups = _groups(fleet, wanted)
    places = {group.origin: files.place(group.origin) for group in groups if group.path not in _OWN}
    for group in groups:
        place = places.get(group.origin)
        if (
            place is not None
            and at in (WriteLevel.AUTO, WriteLevel.ORIGIN)
            and _serves_only(fleet, group, files.kind(place))
        ):
            shared.append((place, _at_origin(place, group)))
            many = len(group.nodes) > 1
            why = "all nodes that this line applies to have the value" if many else "this line applies to no other node"
            written.append(WrittenValue(group.path, tuple(group.nodes), str(group.origin), why))
            continue
        for pool, nodes in _by_pool(fleet, group.nodes).items():
            where = _where(files, fleet, group, nodes, place, at)
            if where is WriteLevel.POOL:
                home = files.pool(pool)
                shared.append((home, _as_settings(files, home, ("spec",), ((group.path, group.value),), shared=True)))
                written.append(WrittenValue(group.path, tuple(nodes), f"pool {pool}", "all its nodes have the value"))
            elif where is WriteLevel.NODE:
                for node in nodes:
                    own[node].append((group.path, group.value))
                place_of = "its own entry" if len(nodes) == 1 else "entries of their own"
                written.append(WrittenValue(group.path, tuple(nodes), place_of, "other nodes keep what they have"))
            else:
                refused.append(where)
    _set(files, shared)
    for pool, nodes in _by_pool(fleet, own).items():
        set_own(files, files.pool(pool), {node: tuple(own[node]) for node in nodes})
    return written, refused


def _groups(fleet: Fleet, wanted: Sequence[WantedValue]) -> list[_Group]:
    groups: dict[tuple[str, str, Position], _Group] = {}
    for one in wanted:
        origin = origin_of(fleet.nodes[one.node], one.path)
        assert origin is not None, f"{one.node}.{one.path} is adopted, and the spec does not mention it"
        key = (one.path, json.dumps(one.value, sort_keys=True), origin)
        groups.setdefault(key, _Group(one.path, one.value, origin)).nodes.append(one.node)
    return list(groups.values())


def origin_of(node: Desired, path: str) -> Position | None:
    """Return the position of the line that sets the value now."""
    known = "image.version" if path == IMAGE else path
    return node.provenance.get(known) or node.profile.provenance.get(known)


def _nodes_of_line(fleet: Fleet, group: _Group) -> list[str]:
    """Return the nodes that the line applies to."""
    return [name for name, node in fleet.nodes.items() if origin_of(node, group.path) == group.origin]


def _serves_only(fleet: Fleet, group: _Group, kind: str) -> bool:
    """Return whether the line applies to no other nodes, and may have the value."""
    return set(_nodes_of_line(fleet, group)) <= set(group.nodes) and (
        group.value is not None or kind in ("NodePool", "Fleet")
    )


def _where(
    files: SpecFiles, fleet: Fleet, group: _Group, nodes: Sequence[str], place: Location | None, at: WriteLevel
) -> WriteLevel | str:
    """Return where to write, for the nodes of one pool; a sentence when there is no place."""
    if group.path in _OWN or place is None:
        return (
            WriteLevel.NODE
            if at in (WriteLevel.AUTO, WriteLevel.NODE)
            else f"{group.path} is a node's own, and has no place elsewhere"
        )
    applies_to, kind = _nodes_of_line(fleet, group), files.kind(place)
    if at is WriteLevel.ORIGIN:
        return f"{group.path}: {group.origin} applies to {len(applies_to)} nodes, and not all of them have the value"
    if _settings_steps(group.path, shared=True) is None:
        return (
            f"{group.path}: {group.origin} sets it for {len(applies_to)} nodes, and neither a node nor a pool has a "
            f"place for it: give these nodes a {kind} of their own, or adopt it for all of those nodes if all have it"
        )
    whole = {name for name in applies_to if fleet.nodes[name].pool == fleet.nodes[nodes[0]].pool} <= set(nodes)
    fewer = whole and len(nodes) > 1 and kind != "NodePool"
    return WriteLevel.POOL if at is WriteLevel.POOL or (at is WriteLevel.AUTO and fewer) else WriteLevel.NODE


def _by_pool(fleet: Fleet, nodes: Sequence[str] | Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(fleet.nodes[node].pool, []).append(node)
    return found


# --- shared lines --------------------------------------------------------------------------------------------------


def _set(files: SpecFiles, values: Sequence[tuple[Location, Mapping[Steps, Any]]]) -> None:
    """Set values, each document once. A value that the spec has already is left as it is."""
    documents: dict[tuple[str, int], dict[Steps, Any]] = defaultdict(dict)
    for place, found in values:
        yaml = files.yaml(place.file)
        for steps, value in found.items():
            if not yaml.has(place.document, steps) or yaml.value(place.document, steps) != value:
                documents[place.file, place.document][steps] = value
    for (file, document), changes in documents.items():
        files.write(file, files.yaml(file).set(document, changes, before=_FOLLOWING).text)


def _at_origin(place: Location, group: _Group) -> dict[Steps, Any]:
    """Return the value to set at the line itself; for an image and a taint, its parts."""
    if group.path == IMAGE:
        return {(*place.steps[:-1], key): value for key, value in group.value.items()}
    if group.path.startswith("cluster.taints."):
        return {(*place.steps, key): value for key, value in group.value.items()}
    return {place.steps: group.value}


def _as_settings(files: SpecFiles, place: Location, top: Steps, edits: _Edits, *, shared: bool) -> dict[Steps, Any]:
    """Return the values to set in the settings at `top`: those of a pool (`shared`) or of a node entry."""
    yaml, found = files.yaml(place.file), dict[Steps, Any]()
    listed = (*top, "firmware")
    known = yaml.value(place.document, listed) if yaml.has(place.document, listed) else []
    components = [item["component"] for item in known or ()]
    for path, value in edits:
        steps = _settings_steps(path, shared=shared)
        assert steps is not None
        if steps == ("firmware",):
            component = path.partition(".")[2]
            if component not in components:
                components.append(component)
            item = (*listed, components.index(component))
            found |= {(*item, "component"): component, (*item, "version"): value}
        elif path == IMAGE:
            found |= {(*top, "image", key): part for key, part in value.items()}
        else:
            found[*top, *steps] = value
    return found


def _settings_steps(path: str, *, shared: bool) -> Steps | None:
    """Return the steps to a path in the settings of a pool or a node; None when they have no place for it."""
    if path in _OWN:
        return (_OWN[path],)
    concern, _, rest = path.partition(".")
    if path.startswith(DOMAINS) and not shared:
        return ("domains", path.removeprefix(DOMAINS))
    if concern in (IMAGE, "firmware"):
        return (concern,)
    if concern == "bios":
        return ("bios", "attributes", rest)
    for prefix, steps in (
        ("cluster.labels.", ("labels",)),
        ("host.sysctls.", ("host", "sysctls") if shared else ("sysctls",)),
        ("host.services.", ("host", "services") if shared else ("services",)),
    ):
        if path.startswith(prefix):
            return (*steps, path.removeprefix(prefix))
    return None


# --- a node's own --------------------------------------------------------------------------------------------------


def set_own(files: SpecFiles, pool: Location, own: Mapping[str, _Edits]) -> None:
    """Write values of nodes of one pool, each path with its value, and split entries where nodes differ.

    Paths are those of a node's own values: endpoints.bmc, state, domains.rack, or a setting's. Raise Refused for a row
    of a CSV file that can't be edited.
    """
    edits: dict[int, _Edits] = {}  # by the number that an entry has once entries are split
    splits: dict[int, list[dict[str, str]]] = {}
    entries = _entries(files, pool)
    more = 0
    for index, names in enumerate(entries):
        groups: dict[str, tuple[_Edits, list[str]]] = {}
        for name in names:
            if name in own:
                groups.setdefault(json.dumps(own[name], sort_keys=True), (own[name], []))[1].append(name)
        rest = [name for name in names if name not in own]
        parts = [members for members in (rest, *(members for _, members in groups.values())) if members]
        edits |= dict(enumerate((found for found, _ in groups.values()), index + more + bool(rest)))
        if len(parts) > 1:
            entry = files.yaml(pool.file).value(pool.document, ("spec", "nodes", index))
            splits[index] = [_narrowed(entry, [names.index(name) for name in part]) for part in parts]
            more += len(parts) - 1
    if splits:
        files.write(pool.file, files.yaml(pool.file).split(pool.document, ("spec", "nodes"), splits).text)
    listed = {name for names in entries for name in names}
    rows = {name: found for name, found in own.items() if name not in listed}
    values = _taken_out(files, pool, rows, len(entries) + more) if rows else {}
    for index, found in edits.items():
        values |= _as_settings(files, pool, ("spec", "nodes", index), found, shared=False)
    _set(files, [(pool, values)])


def _entries(files: SpecFiles, pool: Location) -> list[list[str]]:
    """Return the names of the nodes of each entry."""
    spec = files.yaml(pool.file).value(pool.document, ("spec",))
    return [expand(entry["name"]) for entry in spec.get("nodes") or ()]


def _narrowed(entry: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, str]:
    """Return the ranges of an entry, narrowed to some of its nodes."""
    ranges = {key: expand(entry[key]) for key in _RANGES if isinstance(entry.get(key), str) and is_range(entry[key])}
    return {key: contract([values[number] for number in numbers]) for key, values in ranges.items()}


def _taken_out(files: SpecFiles, pool: Location, own: Mapping[str, _Edits], number: int) -> dict[Steps, Any]:
    """Edit the pool's CSV file. A node that needs settings moves to an entry of its own, numbered from `number` on."""
    file = files.yaml(pool.file).value(pool.document, ("spec", "inventory"))
    table, values = Table(files.text(file)), dict[Steps, Any]()
    for name, edits in own.items():
        row = table.row(name)
        if row is None:
            raise Refused(f"{name}: {file} has no row of this node that can be edited; edit it by hand")
        if all(_column(path) in table.columns for path, _ in edits):
            for path, value in edits:
                table.set(name, _column(path), value)
            continue
        table.remove(name)
        top: Steps = ("spec", "nodes", number)
        values |= {(*top, key): value for key, value in entry_of(row).items()}
        values |= _as_settings(files, pool, top, edits, shared=False)
        number += 1
    files.write(file, table.text)
    return values


def _column(path: str) -> str:
    """Return the column of a value that a row has itself; "" = none has it."""
    return path if path.startswith(DOMAINS) else _OWN.get(path, "")


def entry_of(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of the CSV file as an entry of the pool."""
    entry: dict[str, Any] = {}
    for column, cell in row.items():
        if column == "rootDisk":
            entry[column] = {"serial": cell}
        elif column.startswith("domains."):
            entry.setdefault("domains", {})[column.removeprefix("domains.")] = cell
        else:
            entry[column] = cell
    return entry
