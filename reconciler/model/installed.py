"""The facts of a host that an installer decided: its network, whom its sshd lets in, and its kernel's command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.model.privacy import FreeText, Identifier, PublicText


@dataclass(frozen=True, slots=True)
class HostLink:
    """An interface, as `ip` shows it. `kind`: bond, vlan and so on; ethernet for what is a device of its own."""

    name: PublicText
    kind: PublicText
    mac: Identifier | None = None  # burnt in: in a bond, all ports show the bond's
    master: PublicText | None = None  # the bond that it is a port of
    parent: PublicText | None = None  # of a VLAN
    vlan: int | None = None
    mode: PublicText | None = None  # of a bond
    addresses: tuple[Identifier, ...] = ()  # of global scope, with prefix length
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The interfaces of a host. `gateways`: of its default routes, by interface."""

    links: tuple[HostLink, ...]
    gateways: Mapping[PublicText, tuple[Identifier, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstalledFacts:
    """The parts that are read by commands of their own. None: that one gave no answer."""

    network: HostNetwork | None = None
    user_ca: tuple[PublicText, ...] | None = None  # fingerprints of the keys that certify users, in order
    kernel_arguments: tuple[FreeText, ...] | None = None  # of the running kernel
