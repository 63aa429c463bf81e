"""The last way into the installer: firmware asks DHCP, loads iPXE over TFTP, and iPXE boots the medium over TLS."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.machine.fleet import Fleet
from tests.machine.machine import ADDRESS, MAC, Machine
from tests.machine.namespace import GATEWAY, INSTALL_PORT
from tests.machine.operations import Figure, next_version, on_the_host, timed, version_of
from tests.machine.pki import Pki

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]


def test_firmware_finds_the_installer_over_pxe(
    machine: Machine, fleet: Fleet, images: None, figure: Figure, pki: Pki, boot_file: Path
) -> None:
    """With Secure Boot on, and a network that the spec names: installer and system use its address without DHCP."""
    version, began = next_version(machine, fleet), time.monotonic()
    loader = fleet.run("image", "digest", str(boot_file)).text
    fleet.want(f"{version}, over PXE", version=version, way="pxe", loader=loader)
    timed(figure, f"PXE boot -> {version}", machine, fleet)
    assert machine.console.seen("iPXE", since=began), machine.console.tail()
    assert version_of(fleet) == version
    assert f"{ADDRESS}/24" in on_the_host(fleet, "ip", "-4", "-o", "address", "show", "dev", "lan0")
    assert fleet.run("plan", "--detailed-exitcode").code == 0
    trusted = ssl.create_default_context(cafile=str(pki.ca))
    with pytest.raises(urllib.error.URLError):  # nothing listens when no run is under way, or it offers nothing
        urllib.request.urlopen(f"https://{GATEWAY}:{INSTALL_PORT}/boot/{MAC}/boot.iso", timeout=5, context=trusted)
