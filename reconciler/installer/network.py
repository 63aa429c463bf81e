"""Bring up the one network port that the attempt names, by the address that it gives or by DHCP."""

from __future__ import annotations

import time
from pathlib import Path

from reconciler.installer.documents import Attempt
from reconciler.installer.machine import Failed, Machine, say

LINK = 60.0  # seconds for a port to have a link: some switches take 45 (spanning tree)
_SCRIPT = """#!{shell} sh
case "$1" in
bound|renew)
    busybox ip addr flush dev "$interface"
    busybox ip addr add "$ip/${{mask:-24}}" dev "$interface"
    for gateway in $router; do busybox ip route replace default via "$gateway" dev "$interface"; break; done
    : > {resolver}
    for server in $dns; do echo "nameserver $server" >> {resolver}; done
    ;;
esac
"""


def bring_up(machine: Machine, attempt: Attempt, resolver: Path = Path("/etc/resolv.conf"), wait: float = LINK) -> None:
    """Bring a port up. Raise Failed when there is none, or nobody gives it an address."""
    _ip(machine, "link", "set", "lo", "up")
    port = _choose(machine, attempt.mac, wait)
    if attempt.vlan is not None:
        name = f"vlan{attempt.vlan}"
        _ip(machine, "link", "add", "link", port, "name", name, "type", "vlan", "id", str(attempt.vlan))
        _ip(machine, "link", "set", name, "up")
        port = name
    if attempt.address is None:
        _ask_dhcp(machine, port, resolver)
        return
    _ip(machine, "addr", "add", attempt.address, "dev", port)
    if attempt.gateway is not None:
        family = ("-6",) if ":" in attempt.gateway else ()
        _ip(machine, *family, "route", "add", "default", "via", attempt.gateway, "dev", port)
    if attempt.dns:
        resolver.write_text("".join(f"nameserver {address}\n" for address in attempt.dns))
    say(f"network: {port} has {attempt.address}")


def _choose(machine: Machine, mac: str | None, wait: float) -> str:
    """Return the port with this MAC, or without one the first that has a link."""
    ends = time.monotonic() + wait
    while True:
        ports = {path.name: machine.read(path / "address") for path in _ports(machine)}
        wanted = [name for name, address in ports.items() if mac is None or address.lower() == mac.lower()]
        for name in wanted:
            _ip(machine, "link", "set", name, "up")
        linked = [name for name in wanted if machine.read(machine.sys / "class/net" / name / "carrier") == "1"]
        if linked:
            return linked[0]
        if time.monotonic() > ends:
            listed = ", ".join(f"{name} {address}" for name, address in ports.items()) or "none"
            what = f"no port has the MAC {mac}" if mac and not wanted else "no port has a link"
            raise Failed(f"{what}; ports here: {listed}")
        time.sleep(0.5)


def _ports(machine: Machine) -> list[Path]:
    """Return all interfaces but the loopback, and a VLAN of an earlier try."""
    return [path for path in sorted((machine.sys / "class/net").iterdir())
            if path.name != "lo" and not path.name.startswith("vlan")]  # fmt: skip


def _ask_dhcp(machine: Machine, port: str, resolver: Path) -> None:
    script = machine.work / "udhcpc.sh"
    shell = machine.run("busybox", "which", "busybox").decode().strip()
    script.write_text(_SCRIPT.format(shell=shell, resolver=resolver))
    script.chmod(0o700)
    try:
        machine.run("busybox", "udhcpc", "-q", "-n", "-f", "-t", "10", "-T", "3", "-i", port, "-s", str(script))
    except Failed:
        raise Failed(f"no DHCP server gave {port} an address") from None
    say(f"network: {port} has an address of DHCP")


def _ip(machine: Machine, *words: str) -> None:
    machine.run("busybox", "ip", *words)
