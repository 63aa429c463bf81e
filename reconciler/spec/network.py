"""Check the declared networks: each by itself, and MAC addresses and addresses across all nodes."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_interface

from reconciler.model.errors import Diagnostic, Position, did_you_mean
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.vocab import LinkKind
from reconciler.spec.kinds.network import NodeNetwork
from reconciler.spec.kinds.node_pool import NodePoolSpec
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.strict_yaml.parse import Steps


def desired_network(spec: NodeNetwork) -> DesiredNetwork:
    links = tuple(
        DesiredLink(
            name=link.name, kind=link.kind, mac=link.mac, members=link.members, mode=link.mode, parent=link.parent,
            vlan=link.vlan, addresses=link.addresses, gateway=link.gateway, mtu=link.mtu,
        )
        for link in spec.links
    )  # fmt: skip
    return DesiredNetwork(links, spec.dns, spec.provision or "")


def check_networks(declared: Declarations) -> Iterator[Diagnostic]:
    taken: dict[tuple[str, str], tuple[str, Position]] = {}
    for pool in declared.pools.values():
        for index, entry in enumerate(pool.spec.nodes):
            if entry.network is not None:
                steps: Steps = ("nodes", index, "network")
                yield from _names(pool, steps, entry.network)
                yield from _shared(pool, steps, entry.name, entry.network, taken)


def _names(pool: DeclaredResource[NodePoolSpec], steps: Steps, network: NodeNetwork) -> Iterator[Diagnostic]:
    """Yield a problem for each name that is given twice, unknown, or used in a way that can't be."""
    links = {link.name: link for link in network.links}
    seen: set[str] = set()
    masters: dict[str, str] = {}
    for at, link in enumerate(network.links):
        here = (*steps, "links", at)
        if link.name in seen:
            yield pool.problem((*here, "name"), f"link {link.name!r} is declared twice")
        seen.add(link.name)
        for number, member in enumerate(link.members):
            where = (*here, "members", number)
            if member not in links:
                yield pool.problem(where, f"there is no link {member!r}", did_you_mean(member, links))
            elif links[member].kind is not LinkKind.ETHERNET or links[member].addresses:
                yield pool.problem(where, f"{member} can't be in a bond: a member is a port without addresses")
            elif masters.setdefault(member, link.name) != link.name:
                yield pool.problem(where, f"{member} is in {masters[member]} already")
        if link.parent is not None and link.parent not in links:
            yield pool.problem((*here, "parent"), f"there is no link {link.parent!r}", did_you_mean(link.parent, links))
        elif link.parent is not None and links[link.parent].kind is LinkKind.VLAN:
            yield pool.problem((*here, "parent"), f"{link.parent} is a VLAN itself")
    if network.provision is not None and network.provision not in links:
        hint = did_you_mean(network.provision, links)
        yield pool.problem((*steps, "provision"), f"there is no link {network.provision!r}", hint)


def _shared(
    pool: DeclaredResource[NodePoolSpec],
    steps: Steps,
    node: str,
    network: NodeNetwork,
    taken: dict[tuple[str, str], tuple[str, Position]],
) -> Iterator[Diagnostic]:
    """Yield a problem for each MAC address and address that another link, of this node or another one, has."""
    for at, link in enumerate(network.links):
        values = [("MAC address", link.mac, ("mac",))] if link.mac is not None else []
        named: list[tuple[str, str, Steps]] = [(what, text, where) for what, text, where in values if text]
        named += [
            ("address", str(ip_interface(text).ip), ("addresses", number)) for number, text in enumerate(link.addresses)
        ]
        for what, value, where in named:
            place = pool.at(*steps, "links", at, *where)
            owner, first = taken.setdefault((what, value), (node, place))
            if first != place:
                problem = f"{what} {value} is given twice, to {owner} and {node}"
                yield pool.problem((*steps, "links", at, *where), problem, f"the other is at {first}")
