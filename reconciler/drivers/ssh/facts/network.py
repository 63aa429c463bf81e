"""Network and RDMA ports: ip -j link, and /sys/class/infiniband.

ibdev2netdev calls healthy InfiniBand ports down, because it shows their IPoIB interface; sysfs is the port itself.
"""

from __future__ import annotations

import re
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Link

_OPERSTATE = {"UP": True, "DOWN": False, "LOWERLAYERDOWN": False, "NOTPRESENT": False, "DORMANT": False}
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")

RDMA_COMMAND = """
for port in /sys/class/infiniband/*/ports/*; do
    [ -d "$port" ] || continue
    device=${port#/sys/class/infiniband/}
    echo "${device%%/*} ${port##*/}" \
        "$(cat "$port/state") | $(cat "$port/phys_state") | $(cat "$port/rate") | $(cat "$port/link_layer")"
done
"""


def parse_links(answer: CommandResult) -> Parsed[tuple[Link, ...]]:
    """Return Ethernet ports, without loopback, IPoIB and virtual interfaces.

    iproute2 from 5.11 on names the parent device of hardware; before, virtual interfaces are those with a peer.
    """
    rows = find_json(answer.stdout)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable("ip -j link gave no list of interfaces")
    tells_hardware = any("parentdev" in row for row in rows)
    return Parsed(tuple(_link(row) for row in rows if _is_port(row, tells_hardware=tells_hardware)))


def _is_port(row: dict[str, Any], *, tells_hardware: bool) -> bool:
    if not isinstance(row.get("ifname"), str) or row.get("link_type") != "ether":
        return False
    return "parentdev" in row if tells_hardware else "link" not in row and "link_index" not in row


def _link(row: dict[str, Any]) -> Link:
    state = row.get("operstate")
    return Link(row["ifname"], _OPERSTATE.get(state) if isinstance(state, str) else None)


def parse_rdma(answer: CommandResult) -> Parsed[tuple[Link, ...]]:
    """Return the ports below /sys/class/infiniband, RoCE ports too, with the kind "infiniband"."""
    return Parsed(tuple(_rdma_port(line) for line in answer.stdout.splitlines() if line.strip()))


def _rdma_port(line: str) -> Link:
    words = line.split(None, 2)
    parts = [part.strip() for part in words[2].split("|")] if len(words) == 3 else []
    if len(parts) != 4 or not words[1].isdecimal():
        raise Unreadable(f"not an RDMA port: {excerpt(line, 80)}")
    state, physical, rate, _layer = parts
    speed = _RATE.match(rate)
    return Link(
        f"{words[0]}/{words[1]}",
        _both_up(state, physical),
        float(speed[1]) if speed else None,
        "infiniband",
    )


def _both_up(state: str, physical: str) -> bool | None:
    """Say whether state is "4: ACTIVE" and physical state "5: LinkUp"; None when a file could not be read."""
    if not state or not physical:
        return None
    return state.partition(":")[2].strip() == "ACTIVE" and physical.partition(":")[2].strip() == "LinkUp"


LINKS = Fact("links", "ip -j link", parse_links, ("links",))
RDMA = Fact("rdma", RDMA_COMMAND, parse_rdma, ("links",))
