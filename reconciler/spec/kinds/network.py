"""The network of one node."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from reconciler.model.vocab import LinkKind
from reconciler.strict_yaml.models import Checked, Matching, Model


def _interface(text: str) -> None:
    try:
        found = ip_interface(text)
    except ValueError:
        found = None
    if found is None or "/" not in text:
        raise ValueError(f"{text!r} is not an address with prefix length, like 10.0.0.7/24")
    plain = found.network.prefixlen < found.max_prefixlen - 1
    if plain and found.ip == found.network.network_address:
        raise ValueError(f"{text!r} is a network, and no address in it")


def _address(text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


LinkName = Annotated[
    str, Matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "a name of an interface: up to 15 letters, digits, '_', '.', '-'")
]
Mac = Annotated[
    str,
    Matching(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", "a MAC address like a0:88:c2:00:00:01"),
    AfterValidator(lambda text: text.lower().replace("-", ":")),
]
InterfaceAddress = Annotated[str, Checked(_interface, examples=["10.0.0.7/24", "2001:db8::7/64"])]
IpAddress = Annotated[str, Checked(_address, examples=["10.0.0.1"])]

# Keys of each kind, beside those that all have.
_OF_KIND = {
    LinkKind.ETHERNET: ("mac",),
    LinkKind.BOND: ("members", "mode"),
    LinkKind.VLAN: ("parent", "vlan"),
}
_NEEDED = {LinkKind.ETHERNET: "mac", LinkKind.BOND: "members", LinkKind.VLAN: "parent"}


class NodeLink(Model):
    """An interface of the installed system: a port, a bond or a VLAN."""

    name: LinkName = Field(description="Name in the installed system.")
    kind: LinkKind = Field(default=LinkKind.ETHERNET, description="ethernet (RoCE and IPoIB ports too), bond or vlan.")
    mac: Mac | None = Field(default=None, description="Of an ethernet port: what finds it.")
    members: tuple[LinkName, ...] = Field(default=(), description="Of a bond: names of its ports.")
    mode: LinkName | None = Field(default=None, description="Of a bond: 802.3ad, active-backup and so on.")
    parent: LinkName | None = Field(default=None, description="Of a VLAN: the link that it is on.")
    vlan: int | None = Field(default=None, ge=1, le=4094, description="Of a VLAN: its id.")
    addresses: tuple[InterfaceAddress, ...] = Field(default=(), description="With prefix length: 10.0.0.7/24.")
    gateway: IpAddress | None = Field(default=None, description="Default route by this link.")
    mtu: int | None = Field(default=None, ge=68, le=65535, description="Largest packet in bytes.")

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> NodeLink:
        given = {key for keys in _OF_KIND.values() for key in keys if getattr(self, key)}
        strange = sorted(given - set(_OF_KIND[self.kind]))
        if strange:
            raise ValueError(f"{self.kind} {self.name} can't have {strange[0]}")
        if _NEEDED[self.kind] not in given:
            raise ValueError(f"{self.kind} {self.name} needs {_NEEDED[self.kind]}")
        if self.kind is LinkKind.VLAN and self.vlan is None:
            raise ValueError(f"vlan {self.name} needs vlan, its id")
        if self.gateway is not None and not any(
            ip_address(self.gateway) in ip_interface(address).network for address in self.addresses
        ):
            raise ValueError(f"gateway {self.gateway} of {self.name} is in none of its networks")
        return self


class NodeNetwork(Model):
    """The network of a node. What is not here is not set up."""

    links: tuple[NodeLink, ...] = Field(min_length=1, description="Interfaces of the installed system.")
    dns: tuple[IpAddress, ...] = Field(default=(), description="Name servers.")
    provision: LinkName | None = Field(
        default=None,
        description="The link that the installer uses. Absent: the first with a gateway. It brings up one port: of a "
        "bond, the first.",
    )
