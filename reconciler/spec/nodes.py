"""Expand pools into nodes: the ranges of their entries, then the rows of their CSV inventories."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reconciler.model.addresses import normalise_bmc
from reconciler.model.desired import Endpoints, Outlet, RootDisk, SpecHold
from reconciler.model.errors import Diagnostic, Position
from reconciler.model.units import parse_size
from reconciler.spec.inventory import InventoryReader
from reconciler.spec.kinds.limits import Hold
from reconciler.spec.kinds.node_pool import NodeEntry, NodePoolSpec
from reconciler.spec.kinds.settings import RootDiskRule
from reconciler.spec.network import desired_network
from reconciler.spec.node_source import NO_MACHINE, NORMALISERS, DomainCache, Expansion, NodeSource
from reconciler.spec.parse import DeclaredResource
from reconciler.spec.ranges import count, expand
from reconciler.spec.tree import SpecTooLarge
from reconciler.strict_yaml.parse import UnreadableFile, show_path

_OUTLET: Final = re.compile(r"([A-Za-z0-9._-]{1,32}/)?[A-Za-z0-9._-]{1,32}")
_PER_NODE: Final = ("name", "bmc", "host", "hostname", "serial", "uuid")  # ranges here are as long as that of the name


def expand_pool(pool: DeclaredResource[NodePoolSpec], expansion: Expansion) -> list[NodeSource]:
    """Return the nodes of a pool in order of declaration, and add the problems of its entries to the expansion.

    Raise SpecTooLarge when the spec has more nodes than a spec may have.
    """
    nodes: list[NodeSource] = []
    for index, entry in enumerate(pool.spec.nodes):
        nodes += _expand_entry(pool, index, entry, expansion)
    file, tree = pool.spec.inventory, expansion.tree
    if file is not None:
        try:
            text = tree.text(file)
        except SpecTooLarge:
            raise
        except UnreadableFile as problem:
            expansion.problems.append(pool.problem(("inventory",), f"{file!r}: {problem.diagnostic.problem}"))
        else:
            nodes += InventoryReader(pool, str(tree.where(file)), expansion).read(text)
    return nodes


def _expand_entry(
    pool: DeclaredResource[NodePoolSpec], index: int, entry: NodeEntry, expansion: Expansion
) -> list[NodeSource]:
    problems = expansion.problems
    before = len(problems)
    steps = ("nodes", index)
    columns: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for name in _PER_NODE:
        text = getattr(entry, name)
        if text is None:
            continue
        try:
            counts[name] = count(text)
        except ValueError as error:
            problems.append(pool.problem((*steps, name), str(error)))
    size = counts.get("name", 0)
    expansion.allowance.take(size, pool.at(*steps, "name"), show_path(("spec", *steps, "name")))
    for name, number in counts.items():  # only ranges of the right length are expanded
        try:
            if number in {size, 1}:
                columns[name] = [NORMALISERS[name](value) for value in expand(getattr(entry, name))]
        except ValueError as error:
            problems.append(pool.problem((*steps, name), str(error)))
            size = 0 if name == "name" else size  # an invalid name has no length to compare with
            continue
        if size and number != size:
            share = f"all {size} nodes would share one {name}" if number == 1 else ""
            many = f"{number} values for {size} {'name' if size == 1 else 'names'}"
            hint = "write a range as long as that of the names, or entries of their own"
            problems.append(pool.problem((*steps, name), share or many, hint))
    outlets = _outlets(pool, index, entry, size, problems)
    if entry.bmc is None and entry.host is None:
        problems.append(pool.problem(steps, "the node has no address", "give bmc, host or both"))
    if entry.provision is not None and entry.serial is None and entry.uuid is None:
        problems.append(pool.problem((*steps, "provision"), *NO_MACHINE))
    problems += [
        pool.problem((*steps, key), f"{size} nodes can't share it", "give these nodes entries of their own")
        for key, value in _single(entry)
        if value is not None and size > 1
    ]
    if len(problems) > before:
        return []
    nodes = _nodes_of(pool, index, entry, columns, expansion.domains)
    return [replace(node, outlets=own) for node, own in zip(nodes, outlets, strict=True)]


def _outlets(
    pool: DeclaredResource[NodePoolSpec], index: int, entry: NodeEntry, size: int, problems: list[Diagnostic]
) -> list[tuple[Outlet, ...]]:
    """Return the outlets of each node of an entry, and add what is wrong with them to the problems."""
    feeds: list[list[Outlet]] = []
    for at, text in enumerate(entry.outlets):
        try:
            feeds.append([outlet_of(one) for one in expand(text)])
        except ValueError as error:
            problems.append(pool.problem(("nodes", index, "outlets", at), str(error)))
            continue
        if len(feeds[-1]) != size:
            many = f"{len(feeds[-1])} outlets for {size} nodes: write a range as long as that of the names"
            problems.append(pool.problem(("nodes", index, "outlets", at), many))
    fit = [feed for feed in feeds if len(feed) == size]
    return [tuple(feed[number] for feed in fit) for number in range(size)]


def outlet_of(text: str) -> Outlet:
    """Return the outlet of https://PDU#A1. Raise ValueError, in words, for anything else."""
    address, _, name = text.partition("#")
    if not _OUTLET.fullmatch(name):
        raise ValueError(f"{text!r} names no outlet: write https://PDU#OUTLET, like https://10.20.9.1#A1")
    return Outlet(normalise_bmc(address), name)


def _single(entry: NodeEntry) -> Iterator[tuple[str, str | None]]:
    """Yield the keys that can belong to one node only, with their values: they can't be ranges."""
    yield "hostKey", entry.host_key
    if entry.root_disk is not None:
        yield "rootDisk", entry.root_disk.serial or entry.root_disk.wwn
    if entry.network is not None:
        yield "network", "addresses"
    if entry.erase is not None:
        yield "erase", "drives"


def _nodes_of(
    pool: DeclaredResource[NodePoolSpec],
    index: int,
    entry: NodeEntry,
    columns: Mapping[str, list[str]],
    shared: DomainCache,
) -> list[NodeSource]:
    at = {
        key: pool.at("nodes", index, key)
        for key in (*_PER_NODE, "outlets", "rootDisk", "provision", "erase", "network")
    }
    provenance = {"node": at["name"]} | {
        path: at[key]
        for key, path, value in (
            ("bmc", "endpoints.bmc", entry.bmc),
            ("host", "endpoints.host", entry.host),
            ("serial", "identity.serial", entry.serial),
            ("uuid", "identity.uuid", entry.uuid),
            ("hostname", "host.hostname", entry.hostname),
            ("rootDisk", "image.root_disk", entry.root_disk),
            ("provision", "provision", entry.provision),
            ("erase", "erase", entry.erase),
            ("outlets", "outlets", entry.outlets or None),
            ("network", "network", entry.network),
            ("network", "installed.network", entry.network),
        )
        if value is not None
    }
    domains = shared({**pool.spec.domains, **entry.domains})
    disk = root_disk(entry.root_disk)
    settings = index if entry.has_settings else None

    def value_of(name: str, number: int) -> str | None:
        return columns[name][number] if name in columns else None

    return [
        NodeSource(
            name=name,
            pool=pool.name,
            at=at["name"],
            endpoints=Endpoints(value_of("bmc", number), value_of("host", number)),
            state=entry.state or pool.spec.state,
            domains=domains,
            serial=value_of("serial", number),
            uuid=value_of("uuid", number),
            hostname=value_of("hostname", number),
            root_disk=disk,
            entry=settings,
            provision=entry.provision,
            network=None if entry.network is None else desired_network(entry.network),
            erase=None if entry.erase is None else tuple(entry.erase.serials),
            hold=None if entry.hold is None else spec_hold(name, entry.hold, pool.at("nodes", index, "hold")),
            provenance=provenance,
        )
        for number, name in enumerate(columns["name"])
    ]


def spec_hold(subject: str, hold: Hold, at: Position) -> SpecHold:
    return SpecHold(subject, hold.reason, hold.owner, hold.until, str(at))


def root_disk(rule: RootDiskRule | None) -> RootDisk | None:
    if rule is None:
        return None
    return RootDisk(
        serial=rule.serial,
        wwn=rule.wwn,
        model=rule.model,
        min_bytes=parse_size(rule.min_size) if rule.min_size else None,
        max_bytes=parse_size(rule.max_size) if rule.max_size else None,
    )
