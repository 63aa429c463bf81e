"""A DHCP server on the bridge: it gives the machine the address that the spec names."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.machine.machine import ADDRESS, MAC
from tests.machine.namespace import BRIDGE, GATEWAY
from tests.machine.processes import Server


def start_dhcp(home: Path) -> Server:
    command = [
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--user=root"),
        *("--port=0", f"--interface={BRIDGE}", "--bind-interfaces", f"--dhcp-leasefile={home / 'leases'}"),
        *(f"--dhcp-range={GATEWAY},static", f"--dhcp-host={MAC},{ADDRESS}", f"--dhcp-option=option:router,{GATEWAY}"),
    ]
    server = Server(command, home / "dhcp.log")

    def listens() -> bool:
        sockets = subprocess.run(["ss", "-Hlun", "sport", "=", ":67"], capture_output=True, text=True, check=True)
        return ":67" in sockets.stdout

    server.wait_until(listens, 10.0)
    return server
