"""The init brings up a port in a network namespace of its own: addresses, VLAN, DHCP, by busybox as in the initrd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.tool

CHILD = """
import json, sys
from pathlib import Path
from reconciler.installer.documents import Attempt
from reconciler.installer.machine import Failed, Machine
from reconciler.installer.network import bring_up
work = Path(sys.argv[1])
try:
    bring_up(Machine(work=work), Attempt(url="https://a/b", **json.loads(sys.argv[2])), work / "resolv.conf", 1.0)
except Failed as error:
    print("failed:", error)
"""
MAC = "02:00:00:00:00:07"


class Namespace:
    """A machine's own network: port0 has a cable to the peer, port1 has none."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def run(self, *command: str) -> str:
        inside = ("ip", "netns", "exec", self.name, *command)
        done = subprocess.run(inside, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def bring_up(self, **attempt: object) -> str:
        return self.run(sys.executable, "-c", CHILD, str(self.folder), json.dumps(attempt))

    def addresses(self, port: str) -> list[str]:
        shown = json.loads(self.run("ip", "-j", "address", "show", "dev", port))
        return [f"{one['local']}/{one['prefixlen']}" for one in shown[0]["addr_info"] if one["scope"] == "global"]


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("busybox") is None:
        pytest.skip("a network namespace takes root, ip and busybox")
    name = f"init-{os.getpid()}"
    if subprocess.run(("ip", "netns", "add", name), capture_output=True).returncode:
        pytest.skip("this machine makes no network namespaces")
    try:
        made = Namespace(name, tmp_path)
        made.run("ip", "link", "add", "port0", "address", MAC, "type", "veth", "peer", "name", "peer")
        made.run("ip", "link", "add", "port1", "type", "veth", "peer", "name", "unplugged")
        made.run("ip", "link", "set", "peer", "up")
        yield made
    finally:
        subprocess.run(("ip", "netns", "delete", name), check=True)


def test_the_attempts_address_is_set_on_the_port_that_it_names(namespace: Namespace) -> None:
    said = namespace.bring_up(
        mac=MAC.upper(), address="10.9.0.7/24", gateway="10.9.0.1", dns=["10.9.0.53", "10.9.0.54"]
    )
    assert "port0 has 10.9.0.7/24" in said
    assert namespace.addresses("port0") == ["10.9.0.7/24"]
    assert "default via 10.9.0.1 dev port0" in namespace.run("ip", "route")
    assert (namespace.folder / "resolv.conf").read_text() == "nameserver 10.9.0.53\nnameserver 10.9.0.54\n"


def test_ipv6_is_set_as_well(namespace: Namespace) -> None:
    namespace.bring_up(mac=MAC, address="fd00::7/64", gateway="fd00::1")
    assert "fd00::7/64" in namespace.addresses("port0")
    assert "default via fd00::1 dev port0" in namespace.run("ip", "-6", "route")


def test_a_vlan_is_made_on_the_port(namespace: Namespace) -> None:
    said = namespace.bring_up(mac=MAC, address="10.9.0.7/24", vlan=7)
    if "Not supported" in said or "not supported" in said:
        pytest.skip("this kernel has no VLANs")
    assert namespace.addresses("vlan7") == ["10.9.0.7/24"], said


def test_a_port_that_is_not_there_is_told_with_those_that_are(namespace: Namespace) -> None:
    said = namespace.bring_up(mac="02:00:00:00:00:99", address="10.9.0.7/24")
    assert "failed: no port has the MAC 02:00:00:00:00:99; ports here: " in said
    assert f"port0 {MAC}" in said


def test_a_network_without_a_dhcp_server_is_told(namespace: Namespace) -> None:
    namespace.run("ip", "link", "delete", "port1")
    said = namespace.bring_up(mac=MAC)
    assert "failed: no DHCP server gave port0 an address" in said


def test_dhcp_gives_address_gateway_and_name_server(namespace: Namespace) -> None:
    """The server is busybox's, on the other end of the cable."""
    namespace.run("ip", "address", "add", "10.9.0.1/24", "dev", "peer")
    configuration = namespace.folder / "udhcpd.conf"
    configuration.write_text(
        f"start 10.9.0.20\nend 10.9.0.20\ninterface peer\nlease_file {namespace.folder}/leases\n"
        f"pidfile {namespace.folder}/pid\noption subnet 255.255.255.0\noption router 10.9.0.1\noption dns 10.9.0.53\n"
    )
    (namespace.folder / "leases").touch()
    inside = ("ip", "netns", "exec", namespace.name, "busybox", "udhcpd", "-f", str(configuration))
    server = subprocess.Popen(inside, stderr=subprocess.DEVNULL)
    try:
        said = namespace.bring_up(mac=MAC)
    finally:
        server.terminate()
        server.wait()
    assert namespace.addresses("port0") == ["10.9.0.20/24"], said
    assert "default via 10.9.0.1 dev port0" in namespace.run("ip", "route")
    assert (namespace.folder / "resolv.conf").read_text() == "nameserver 10.9.0.53\n"
