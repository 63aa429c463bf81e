"""Compare what an installer decided with what the spec declares: network, CAs of users, kernel command line.

Only what is declared is compared: other interfaces, addresses and arguments are nobody's business here. What differs is
reported and nothing is done about it. A network that is set up anew from afar may take the node off the network for
good, sshd with it, and a command line is measured and signed with the kernel; a new install brings all of them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from ipaddress import ip_address, ip_interface

from reconciler.diff.facts import Managed
from reconciler.diff.readings import ABSENT, Missing, host
from reconciler.model.desired import Desired
from reconciler.model.installed import HostLink, HostNetwork, InstalledFacts
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.observed import HostFacts, Observed
from reconciler.model.vocab import Concern, Source, UnknownReason

_NOT_ASKED = Missing(UnknownReason.NOT_ASKED)  # by an earlier version, or it is not published


def installed_rows(desired: Desired) -> tuple[Managed, ...]:
    """Return what is compared of a node, in the order of reports. Without an image, nothing is installed."""
    image = desired.profile.image
    if image is None:
        return ()
    return (
        *_network_rows(desired.network),
        *_host_rows(image.name, image.version, image.kernel_arguments, desired.profile.host.user_ca),
    )


@lru_cache(maxsize=1 << 10)
def _host_rows(image: str, version: str, arguments: tuple[str, ...], user_ca: tuple[str, ...]) -> tuple[Managed, ...]:
    rows = []
    if arguments:
        rows.append(_row("kernel_arguments", arguments, partial(_arguments, (image, version), arguments)))
    if user_ca:
        keys = tuple(sorted({fingerprint(line) for line in user_ca}))
        rows.append(_row("user_ca", keys, _user_ca))
    return tuple(rows)


def _row(name: str, wanted: Hashable, read: Callable[[Observed], Hashable]) -> Managed:
    shown = list(wanted) if isinstance(wanted, tuple) else wanted
    return Managed(f"installed.{name}", Concern.INSTALLED, Source.SSH, wanted, shown, read)


def fingerprint(line: str) -> str:
    """Return the fingerprint of an OpenSSH public key, as ssh-keygen prints it."""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _facts(observed: Observed) -> tuple[HostFacts, InstalledFacts] | Missing:
    facts = host(observed)
    if isinstance(facts, Missing):
        return facts
    return _NOT_ASKED if facts.installed is None else (facts, facts.installed)


def _why(facts: HostFacts, part: str) -> Missing:
    return Missing(UnknownReason.UNSUPPORTED, facts.unknown.get(f"installed.{part}", "not reported"))


def _arguments(image: tuple[str, str], wanted: tuple[str, ...], observed: Observed) -> Hashable:
    """Return the declared arguments that the kernel has. The command line of another image is that image's."""
    found = _facts(observed)
    if isinstance(found, Missing):
        return found
    facts, installed = found
    if facts.image is None or (facts.image.image, facts.image.version) != image:
        return _NOT_ASKED
    if installed.kernel_arguments is None:
        return _why(facts, "kernel_arguments")
    return tuple(one for one in wanted if one in installed.kernel_arguments)


def _user_ca(observed: Observed) -> Hashable:
    """Return all CAs that sshd trusts: one too many lets strangers in."""
    found = _facts(observed)
    if isinstance(found, Missing):
        return found
    facts, installed = found
    return _why(facts, "user_ca") if installed.user_ca is None else installed.user_ca


# --- network -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def _network_rows(network: DesiredNetwork | None) -> tuple[Managed, ...]:
    return tuple(row for link in network.links for row in _link_rows(link)) if network is not None else ()


def _link_rows(link: DesiredLink) -> list[Managed]:
    """Return the rows of one interface. One that is not there differs in its kind alone."""
    rows = [_row(f"network.{link.name}.kind", link.kind.value, partial(_kind, link))]
    declared: list[tuple[str, Hashable, Callable[[HostLink, HostNetwork], Hashable]]] = [
        ("mac", link.mac, lambda found, _: found.mac or _UNTOLD),
        ("mode", link.mode, lambda found, _: found.mode or _UNTOLD),
        ("parent", link.parent, lambda found, _: found.parent or _UNTOLD),
        ("vlan", link.vlan, lambda found, _: found.vlan or _UNTOLD),
        ("mtu", link.mtu, lambda found, _: found.mtu or _UNTOLD),
        ("members", tuple(sorted(link.members)), lambda found, network: _members(found.name, network)),
        ("addresses", tuple(sorted(map(_interface, link.addresses))), partial(_addresses, link)),
        ("gateway", _address(link.gateway), partial(_gateway, link)),
    ]
    rows += [
        _row(f"network.{link.name}.{name}", wanted, partial(_property, link.name, read))
        for name, wanted, read in declared
        if wanted
    ]
    return rows


_UNTOLD = Missing(UnknownReason.UNSUPPORTED, "ip does not show it")


def _link(name: str, observed: Observed) -> tuple[HostLink | None, HostNetwork] | Missing:
    found = _facts(observed)
    if isinstance(found, Missing):
        return found
    facts, installed = found
    if installed.network is None:
        return _why(facts, "network")
    return next((one for one in installed.network.links if one.name == name), None), installed.network


def _kind(link: DesiredLink, observed: Observed) -> Hashable:
    found = _link(link.name, observed)
    if isinstance(found, Missing):
        return found
    return ABSENT if found[0] is None else found[0].kind


def _property(name: str, read: Callable[[HostLink, HostNetwork], Hashable], observed: Observed) -> Hashable:
    found = _link(name, observed)
    if isinstance(found, Missing):
        return found
    link, network = found
    return _NOT_ASKED if link is None else read(link, network)


def _members(name: str, network: HostNetwork) -> Hashable:
    return tuple(sorted(one.name for one in network.links if one.master == name))


def _addresses(link: DesiredLink, found: HostLink, _network: HostNetwork) -> Hashable:
    """Return the addresses that the interface has, or only the declared ones where it has them all."""
    wanted, present = sorted(map(_interface, link.addresses)), sorted(map(_interface, found.addresses))
    return tuple(wanted if set(wanted) <= set(present) else present)


def _gateway(link: DesiredLink, found: HostLink, network: HostNetwork) -> Hashable:
    hops = [_address(hop) for hop in network.gateways.get(found.name, ())]
    wanted = _address(link.gateway)
    return wanted if wanted in hops else next(iter(hops), ABSENT)


def _address(text: str | None) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        return text or ""


def _interface(text: str) -> str:
    try:
        return str(ip_interface(text))
    except ValueError:
        return text
