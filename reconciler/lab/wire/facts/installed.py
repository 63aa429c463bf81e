"""The facts that an installer decided, as ip, sshd and the kernel show them."""

from __future__ import annotations

import base64
import hashlib
import json
from ipaddress import ip_address
from typing import Any

from reconciler.lab.hardware.host_network import host_network
from reconciler.lab.wire.facts.context import FactContext
from reconciler.lab.wire.facts.devices import LOOPBACK
from reconciler.model.gate import CommandResult
from reconciler.model.installed import HostLink


def interfaces(context: FactContext) -> CommandResult:
    """Print `ip -j -d addr`, with the cells of it that tell how interfaces are built on one another."""
    links = host_network(context.state, context.image).links
    rows = [LOOPBACK, *(_row(at, link) for at, link in enumerate(links, start=2))]
    return CommandResult(0, json.dumps(rows, separators=(",", ":")) + "\n")


def _row(index: int, link: HostLink) -> dict[str, Any]:
    row: dict[str, Any] = {"ifindex": index, "ifname": link.name, "mtu": link.mtu, "operstate": "UP"}
    row |= {"link_type": "ether" if link.mac is not None else "infiniband", "address": link.mac or _GUID}
    info: dict[str, Any] = {}
    if link.kind == "bond":
        info = {"info_kind": "bond", "info_data": {"mode": link.mode, "miimon": 100}}
    elif link.kind == "vlan":
        row["link"] = link.parent
        info = {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": link.vlan, "flags": ["REORDER_HDR"]}}
    if link.master is not None:
        row["master"], row["address"] = link.master, "02:00:00:00:00:01"  # all ports of a bond show the bond's
        info = {"info_slave_kind": "bond", "info_slave_data": {"state": "ACTIVE", "perm_hwaddr": link.mac}}
    shown = [_address(text) for text in link.addresses]
    return row | ({"linkinfo": info} if info else {}) | {"addr_info": shown}


_GUID = "00:00:10:49:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:00:00:01"


def _address(text: str) -> dict[str, Any]:
    local, _, prefix = text.partition("/")
    family = "inet" if ip_address(local).version == 4 else "inet6"
    return {"family": family, "local": local, "prefixlen": int(prefix), "scope": "global"}


def routes(context: FactContext) -> CommandResult:
    """Print the default routes of IPv4, then those of IPv6: each a document of its own."""
    gateways = host_network(context.state, context.image).gateways
    rows = [
        {"dst": "default", "gateway": hop, "dev": name, "protocol": "static", "flags": []}
        for name, hops in gateways.items()
        for hop in hops
    ]
    parts = ([row for row in rows if (":" in str(row["gateway"])) is six] for six in (False, True))
    return CommandResult(0, "".join(json.dumps(part, separators=(",", ":")) + "\n" for part in parts))


def user_ca(context: FactContext) -> CommandResult:
    """Print `ssh-keygen -l` of the keys that sshd trusts to certify users."""
    lines = [f"256 {fingerprint(key)} no comment (ED25519)\n" for key in context.image.user_ca]
    return CommandResult(0, "".join(lines))


def fingerprint(key: str) -> str:
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def command_line(context: FactContext) -> CommandResult:
    return CommandResult(0, " ".join(arguments(context.image.kernel, context.image.kernel_arguments)) + "\n")


def arguments(kernel: str, added: list[str]) -> tuple[str, ...]:
    return (f"BOOT_IMAGE=/boot/vmlinuz-{kernel}", "root=PARTLABEL=root", "ro", "console=tty0", *added)
