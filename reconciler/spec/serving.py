"""Resolve which nodes serve together, and check that each of them can be told so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.serving import DesiredServing
from reconciler.model.serving_sync import DesiredSync
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.serving import Serving, Sync
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.ranges import expand
from reconciler.strict_yaml.parse import Steps


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that serve together. `steps`: where a pool says so."""

    steps: Steps
    names: tuple[str, ...]


def serving_of(declared: Declarations, nodes: Sequence[NodeSource]) -> Mapping[str, DesiredServing]:
    """Return what is declared for each node that serves in a group, by its name."""
    found: dict[str, DesiredServing] = {}
    for pool in declared.pools.values():
        if (spec := pool.spec.serving) is not None:
            own = {node.name: node for node in nodes if node.pool == pool.name}
            for group in _groups(spec, list(own.values())):
                found |= {name: _desired(spec, group.names, own[name]) for name in group.names}
    return found


def _desired(spec: Serving, names: tuple[str, ...], node: NodeSource) -> DesiredServing:
    return DesiredServing(
        group=names,
        degrade=spec.degrade.command,
        restore=spec.restore.command,
        timeout_s=parse_duration(spec.timeout),
        ready_url=spec.ready.url,
        ready_s=parse_duration(spec.ready.timeout),
        sync=None if spec.sync is None else _sync(spec.sync, node),
    )


def _sync(spec: Sync, node: NodeSource) -> DesiredSync:
    return DesiredSync(spec.paths, spec.link, _address(spec, node), spec.gbps, spec.images)


def _address(spec: Sync, node: NodeSource) -> str | None:
    """Return the first address of a node on the link that is copied by; None where it has none."""
    links = () if node.network is None else node.network.links
    found = next((link for link in links if link.name == spec.link and link.addresses), None)
    return None if found is None else str(ip_interface(found.addresses[0]).ip)


def _groups(spec: Serving, nodes: Sequence[NodeSource]) -> Iterator[_Group]:
    """Yield the groups of a pool. Raise ValueError for a range that is none."""
    for at, texts in enumerate(spec.groups or ()):
        yield _Group(("serving", "groups", at), tuple(sorted(name for text in texts for name in expand(text))))
    if spec.domain is not None:
        members: defaultdict[str, list[str]] = defaultdict(list)
        for node in nodes:
            if (value := node.domains.get(spec.domain)) is not None:
                members[value].append(node.name)
        for value in sorted(members):
            yield _Group(("serving", "domain"), tuple(sorted(members[value])))


def check_serving(declared: Declarations, nodes: Sequence[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problems of serving groups: who is unknown, alone, in two of them or can't be told."""
    for pool in declared.pools.values():
        if pool.spec.serving is not None:
            yield from _of_pool(pool, {node.name: node for node in nodes if node.pool == pool.name})


def _of_pool(pool: DeclaredResource[Any], nodes: Mapping[str, NodeSource]) -> Iterator[Diagnostic]:
    spec: Serving = pool.spec.serving
    try:
        groups = list(_groups(spec, list(nodes.values())))
    except ValueError as error:
        yield pool.problem(("serving", "groups"), str(error))
        return
    if not groups:
        problem = "no node of the pool serves in a group"
        yield pool.problem(("serving",), problem, f"give nodes the domain {spec.domain!r}" if spec.domain else "")
    taken: dict[str, Steps] = {}
    for group in groups:
        if len(set(group.names)) < 2:
            problem = f"{', '.join(group.names)} is alone in its serving group, and nobody could serve without it"
            yield pool.problem(group.steps, problem)
        for name in group.names:
            node = nodes.get(name)
            if name in taken:
                yield pool.problem(group.steps, f"node {name!r} is named twice: it serves in one group, and once")
            elif node is None:
                yield pool.problem(group.steps, f"the pool has no node {name!r}", did_you_mean(name, nodes))
            elif node.endpoints.host is None:
                problem = f"node {name!r} has no host address, so it can't be told how to serve"
                yield pool.problem(group.steps, problem, f"give it a host ({node.at})")
            elif spec.sync is not None and _address(spec.sync, node) is None:
                problem = f"node {name!r} has no address on link {spec.sync.link!r}, by which its data are copied"
                yield pool.problem(("serving", "sync", "link"), problem, f"declare it in its `network` ({node.at})")
            taken[name] = group.steps
