"""Nodes as declared, by an entry of a pool or by a row of a CSV file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.model.addresses import normalise_bmc, normalise_host
from reconciler.model.desired import Endpoints, Outlet, RootDisk, SpecHold
from reconciler.model.errors import Diagnostic, Position
from reconciler.model.network import DesiredNetwork
from reconciler.model.vocab import NodeState, Provision
from reconciler.spec.ranges import MAX_NODES
from reconciler.spec.tree import SpecTooLarge, SpecTree

_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_SERIAL = re.compile(r"[!-~]([ -~]{0,126}[!-~])?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


NO_MACHINE = "nothing says which machine may be wiped", "give its serial or uuid, as the BMC shows it"


@dataclass(frozen=True, slots=True)
class NodeSource:
    """One node as declared. `entry` is the index of its entry where that has settings; None: the pool's apply."""

    name: str
    pool: str
    at: Position
    endpoints: Endpoints
    state: NodeState
    domains: Mapping[str, str]
    serial: str | None = None
    uuid: str | None = None
    hostname: str | None = None
    root_disk: RootDisk | None = None
    entry: int | None = None
    hold: SpecHold | None = None
    provision: Provision | None = None
    erase: tuple[str, ...] | None = None
    network: DesiredNetwork | None = None
    outlets: tuple[Outlet, ...] = ()
    provenance: Mapping[str, Position] = field(default_factory=dict)


class DomainCache:
    """Shares the failure domains of nodes: thousands of nodes have the same few combinations."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def __call__(self, domains: Mapping[str, str]) -> Mapping[str, str]:
        return self._known.setdefault(tuple(sorted(domains.items())), domains)


class NodeAllowance:
    """Counts down how many nodes a spec may still declare, over all its pools, entries and files."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def take(self, count: int, at: Position, path: str = "") -> None:
        """Count `count` more nodes. Raise SpecTooLarge at `at` when the spec has too many."""
        self._left -= count
        if self._left < 0:
            problem = f"with {'this node' if count == 1 else f'these {count} nodes'} the spec has more than {MAX_NODES}"
            raise SpecTooLarge(at, problem, "a fleet this large needs several specs", path)


@dataclass(slots=True)
class Expansion:
    """The state that the expansion of all pools shares: the files, the limit on nodes, and the problems found."""

    tree: SpecTree
    domains: DomainCache = field(default_factory=DomainCache)
    allowance: NodeAllowance = field(default_factory=NodeAllowance)
    problems: list[Diagnostic] = field(default_factory=list)


def _node_name(text: str) -> str:
    if not _NODE_NAME.fullmatch(text) or len(text) > 253:
        raise ValueError(
            f"{text!r} is not a node name; use lower-case letters, digits, '-' and '.', ranges as [001-008]"
        )
    return text


def _uuid(text: str) -> str:
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not a UUID")
    return text


def _serial(text: str) -> str:
    if not _SERIAL.fullmatch(text):
        raise ValueError(
            f"{text[:128]!r} is not a serial number; it is one line of up to 128 printable ASCII characters"
        )
    return text


NORMALISERS: Final[Mapping[str, Callable[[str], str]]] = {
    "name": _node_name,
    "bmc": normalise_bmc,
    "host": normalise_host,
    "hostname": _node_name,
    "serial": _serial,
    "rootDisk": _serial,
    "uuid": _uuid,
}


def find_overlaps(nodes: Iterable[NodeSource]) -> list[Diagnostic]:
    """Return a problem for nodes that share a name, an address or an identity; overlapping ranges give one problem."""
    first: dict[tuple[str, str], NodeSource] = {}
    groups: dict[tuple[str, Position, Position], list[tuple[str, NodeSource, NodeSource]]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: (node.at, node.name)):
        for what, value in (
            ("name", node.name),
            ("bmc", node.endpoints.bmc),
            ("host", node.endpoints.host),
            ("hostname", node.hostname),
            ("serial", node.serial),
            ("uuid", node.uuid and node.uuid.lower()),
        ):
            if value is None:
                continue
            other = first.setdefault((what, value), node)
            if other is not node:
                groups[what, node.at, other.at].append((value, node, other))
    return [_overlap(what, at, found) for (what, at, _), found in groups.items()]


def _overlap(what: str, at: Position, found: list[tuple[str, NodeSource, NodeSource]]) -> Diagnostic:
    value, node, other = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    hint = f"the other is at {other.at}"
    if what == "name":
        return Diagnostic(at, "", f"node {value!r}{more} is declared twice", hint)
    return Diagnostic(at, "", f"{what} {value!r}{more} is given to two nodes, {other.name} and {node.name}", hint)
