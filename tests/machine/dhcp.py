"""A DHCP server on the bridge: the machine gets the address that the spec names, and iPXE if its firmware asks."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.machine.ipxe import BOOT_FILE
from tests.machine.machine import ADDRESS, MAC
from tests.machine.namespace import BRIDGE, GATEWAY, INSTALL_PORT
from tests.machine.processes import Server

_SCRIPT = f"https://{GATEWAY}:{INSTALL_PORT}/boot/${{mac:hexhyp}}/boot.ipxe"


def start_dhcp(home: Path, boot_files: Path) -> Server:
    """Start it. `boot_files`: what firmware loads over TFTP; iPXE (DHCP option 175) is sent on to the reconciler."""
    boot_files.mkdir()
    netboot = [
        *("--enable-tftp", f"--tftp-root={boot_files}", "--dhcp-match=set:ipxe,175"),
        *("--dhcp-vendorclass=set:pxe,PXEClient", f"--dhcp-boot=tag:pxe,tag:!ipxe,{BOOT_FILE}"),
        f"--dhcp-boot=tag:ipxe,{_SCRIPT}",
    ]
    command = [
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--user=root"),
        *("--port=0", f"--interface={BRIDGE}", "--bind-interfaces", f"--dhcp-leasefile={home / 'leases'}"),
        *(f"--dhcp-range={GATEWAY},static", f"--dhcp-host={MAC},{ADDRESS}", f"--dhcp-option=option:router,{GATEWAY}"),
        *netboot,
    ]
    server = Server(command, home / "dhcp.log")

    def listens() -> bool:
        sockets = subprocess.run(["ss", "-Hlun", "sport", "=", ":67"], capture_output=True, text=True, check=True)
        return ":67" in sockets.stdout

    server.wait_until(listens, 10.0)
    return server
