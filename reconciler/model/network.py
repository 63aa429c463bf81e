"""The network of a node, as the spec declares it, and as installers are told of it (model/install.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.model.privacy import Identifier, PublicText
from reconciler.model.vocab import LinkKind


@dataclass(frozen=True, slots=True)
class DesiredLink:
    """An interface of the installed system. install.Link says which fields are of which kind."""

    name: PublicText
    kind: LinkKind = LinkKind.ETHERNET
    mac: Identifier | None = None
    members: tuple[PublicText, ...] = ()
    mode: PublicText | None = None
    parent: PublicText | None = None
    vlan: int | None = None
    addresses: tuple[Identifier, ...] = ()
    gateway: Identifier | None = None
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class DesiredNetwork:
    """All interfaces that are set up on a node. `provision`: the one that the installer reaches our server by."""

    links: tuple[DesiredLink, ...]
    dns: tuple[Identifier, ...] = ()
    provision: PublicText = ""


@dataclass(frozen=True, slots=True)
class AttemptNetwork:
    """The network part of model.install.AttemptCredential. All of it empty: the installer asks DHCP on any port."""

    mac: str | None = None
    address: str | None = None
    gateway: str | None = None
    dns: tuple[str, ...] = field(default=())
    vlan: int | None = None


def attempt_network(network: DesiredNetwork | None) -> AttemptNetwork:
    """Return how the installer itself reaches our server: by the declared link, without its bond.

    An installer brings up one port. That of a bond is its first member, which a switch serves alone while the bond is
    down (LACP fallback); where yours does not, name another link in `provision`.
    """
    if network is None or not network.links:
        return AttemptNetwork()
    links = {link.name: link for link in network.links}
    chosen = links.get(network.provision) or next(
        (link for link in network.links if link.gateway is not None), network.links[0]
    )
    vlan, port = chosen.vlan, chosen
    while port.parent is not None or port.members:
        port = links[port.parent or port.members[0]]
    address = chosen.addresses[0] if chosen.addresses else None
    return AttemptNetwork(port.mac, address, chosen.gateway if address else None, network.dns, vlan)
