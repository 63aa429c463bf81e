"""Facts that an installer decided: interfaces, default routes, the CAs of users, the kernel's command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json
from reconciler.model.gate import CommandResult
from reconciler.model.installed import HostLink, HostNetwork

# A key: "256 SHA256:AAAA comment (ED25519)". sshd trusts nobody by a file that is not there, or empty.
USER_CA_COMMAND = """
config=$(PATH=$PATH:/usr/sbin:/sbin sshd -T) || exit
file=$(printf '%s\\n' "$config" | sed -n 's/^trustedusercakeys //p')
[ "$file" != none ] && [ -s "$file" ] || exit 0
ssh-keygen -l -E sha256 -f "$file"
"""
_FINGERPRINT = re.compile(r"\d{1,6} (SHA256:[A-Za-z0-9+/]{43})(?: .*)? \([A-Z0-9-]{1,20}\)")
_TYPES, _KINDS = ("ether", "infiniband"), (None, "bond", "vlan", "bridge")


def parse_interfaces(answer: CommandResult) -> Parsed[tuple[HostLink, ...]]:
    """Return the interfaces of `ip -j -d addr`, without the loopback."""
    rows = find_json(answer.stdout)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable("ip -j -d addr gave no list of interfaces")
    return Parsed(tuple(_link(row) for row in rows if _is_device(row)))


def _is_device(row: Mapping[str, Any]) -> bool:
    """Return whether a spec can declare the interface: the many of containers (veth) are left out."""
    kind = _text(_part(row, "linkinfo"), "info_kind")
    return row.get("link_type") in _TYPES and kind in _KINDS and _text(row, "ifname") is not None


def _link(row: Mapping[str, Any]) -> HostLink:
    info = _part(row, "linkinfo")
    data, port = _part(info, "info_data"), _part(info, "info_slave_data")
    kind = _text(info, "info_kind")
    hardware = _text(row, "permaddr") or _text(port, "perm_hwaddr") or _text(row, "address")
    return HostLink(
        name=str(row["ifname"]),
        kind=kind or "ethernet",
        mac=hardware.lower() if hardware is not None and row["link_type"] == "ether" else None,
        master=_text(row, "master"),
        parent=_text(row, "link") if kind == "vlan" else None,
        vlan=_number(data, "id") if kind == "vlan" else None,
        mode=_text(data, "mode") if kind == "bond" else None,
        addresses=tuple(_addresses(row.get("addr_info"))),
        mtu=_number(row, "mtu"),
    )


def _addresses(found: Any) -> Iterator[str]:
    """Yield the addresses that others can reach. One that another machine has, too, is not in use (dadfailed)."""
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and one.get("scope") == "global" and not one.get("dadfailed"):
            address, prefix = _text(one, "local"), _number(one, "prefixlen")
            if address is not None and prefix is not None:
                yield f"{address}/{prefix}"


def _part(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None


def _number(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parse_routes(answer: CommandResult) -> Parsed[Mapping[str, tuple[str, ...]]]:
    """Return the gateways of the default routes by interface: of IPv4, then of IPv6, each a document of its own."""
    gateways: dict[str, tuple[str, ...]] = {}
    for route in _documents(answer.stdout):
        hops = route.get("nexthops")
        for hop in (route, *(hops if isinstance(hops, list) else ())):
            device, gateway = (_text(hop, key) if isinstance(hop, dict) else None for key in ("dev", "gateway"))
            if device is not None and gateway is not None:
                gateways[device] = (*gateways.get(device, ()), gateway)
    return Parsed(gateways)


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        try:
            rows, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            raise Unreadable(f"not the JSON of routes: {excerpt(text, 80)!r}") from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unreadable("ip -j route gave no list of routes")
        yield from rows
        text = text[end:].lstrip()


def parse_user_ca(answer: CommandResult) -> Parsed[tuple[str, ...]]:
    """Return the fingerprints of ssh-keygen, sorted; no line: sshd trusts no CA."""
    found = [(line, _FINGERPRINT.fullmatch(line)) for line in answer.stdout.splitlines() if line.strip()]
    strange = next((line for line, match in found if match is None), None)
    if strange is not None:
        raise Unreadable(f"not the fingerprint of a key: {excerpt(strange, 80)!r}")
    return Parsed(tuple(sorted({match[1] for _, match in found if match is not None})))


def parse_command_line(answer: CommandResult) -> Parsed[tuple[str, ...]]:
    arguments = tuple(answer.stdout.split())
    if not arguments:
        raise Unreadable("the kernel's command line is empty")
    return Parsed(arguments)


def network_of(
    links: tuple[HostLink, ...] | None, gateways: Mapping[str, tuple[str, ...]] | None
) -> HostNetwork | None:
    """Return both parts, or None unless both could be read: an unread route would look absent."""
    return None if links is None or gateways is None else HostNetwork(links, gateways)


INTERFACES = Fact("interfaces", "ip -j -d addr", parse_interfaces, ("installed.network",))
ROUTES = Fact("routes", "ip -j route show default && ip -j -6 route show default", parse_routes, ("installed.network",))
USER_CA = Fact("user_ca", USER_CA_COMMAND, parse_user_ca, ("installed.user_ca",))
COMMAND_LINE = Fact("command_line", "cat /proc/cmdline", parse_command_line, ("installed.kernel_arguments",))
