"""The network of a node: what is declared arrives as the install contract has it, and what can't be is refused."""

from __future__ import annotations

import pytest

from reconciler.model.install import AttemptCredential, install_network
from reconciler.model.network import AttemptNetwork, attempt_network
from reconciler.model.vocab import LinkKind
from tests.spec.example import FILES, load, messages

OLD = "  inventory: nodes.csv\n"
HEAD = """\
  - name: gpu-n001
    bmc: https://10.20.9.1
    host: 10.21.9.1
    network:
"""
LINKS = """\
      dns: [10.0.0.53, "2001:db8::53"]
      links:
        - {name: eno1, mac: "A0-88-C2-00-00-01"}
        - {name: eno2, mac: "a0:88:c2:00:00:02", mtu: 9000}
        - {name: bond0, kind: bond, members: [eno1, eno2], mode: 802.3ad}
        - {name: mgmt, kind: vlan, parent: bond0, vlan: 100, addresses: [10.0.0.7/24], gateway: 10.0.0.1}
        - {name: rdma0, mac: "a0:88:c2:00:00:03", mtu: 9000, addresses: [192.168.7.7/24, "2001:db8::7/64"]}
"""


def pool_with(network: str, more: str = "") -> tuple[str, str, str]:
    """Return the edit that adds a node with this network to the example."""
    text = FILES["pool.yaml"]
    start = text.index("  nodes:\n") + len("  nodes:\n")
    line = text[start : text.index("\n", start) + 1]
    return "pool.yaml", line, HEAD + network + more + line


def test_a_declared_network_is_that_of_the_contract() -> None:
    node = load(pool_with(LINKS)).nodes["gpu-n001"]
    found = install_network(node.network)
    assert found is not None
    assert found.dns == ("10.0.0.53", "2001:db8::53")
    assert [link.kind for link in found.links] == [
        LinkKind.ETHERNET, LinkKind.ETHERNET, LinkKind.BOND, LinkKind.VLAN, LinkKind.ETHERNET
    ]  # fmt: skip
    assert found.links[0].mac == "a0:88:c2:00:00:01"
    assert (found.links[2].members, found.links[2].mode) == (("eno1", "eno2"), "802.3ad")
    assert (found.links[3].parent, found.links[3].vlan, found.links[3].gateway) == ("bond0", 100, "10.0.0.1")
    assert (found.links[4].mtu, found.links[4].addresses) == (9000, ("192.168.7.7/24", "2001:db8::7/64"))
    assert str(node.provenance["network"]).startswith("pool.yaml:")


def test_the_installer_uses_the_link_with_the_gateway_and_one_port_of_its_bond() -> None:
    network = load(pool_with(LINKS)).nodes["gpu-n001"].network
    found = attempt_network(network)
    assert found == AttemptNetwork(
        "a0:88:c2:00:00:01", "10.0.0.7/24", "10.0.0.1", ("10.0.0.53", "2001:db8::53"), 100
    )  # fmt: skip
    AttemptCredential(
        url="https://x/t", mac=found.mac, address=found.address, gateway=found.gateway, dns=found.dns, vlan=found.vlan
    )


def test_another_link_may_be_named_for_it() -> None:
    network = load(pool_with(LINKS, "      provision: rdma0\n")).nodes["gpu-n001"].network
    found = attempt_network(network)
    assert (found.mac, found.address, found.gateway, found.vlan) == ("a0:88:c2:00:00:03", "192.168.7.7/24", None, None)


def test_without_a_network_the_installer_asks_dhcp() -> None:
    assert load().nodes["gpu-a001"].network is None
    assert install_network(None) is None
    assert attempt_network(None) == AttemptNetwork()


def test_a_network_changes_the_digest_of_the_fleet() -> None:
    other = LINKS.replace("10.0.0.7/24", "10.0.0.8/24")
    assert load(pool_with(LINKS)).digest != load(pool_with(other)).digest


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("10.0.0.7/24", "10.0.0.7", "'10.0.0.7' is not an address with prefix length, like 10.0.0.7/24"),
        ("10.0.0.7/24", "10.0.0.0/24", "'10.0.0.0/24' is a network, and no address in it"),
        ("10.0.0.7/24", "10.0.0.7/33", "'10.0.0.7/33' is not an address with prefix length"),
        ("gateway: 10.0.0.1", "gateway: 10.0.1.1", "gateway 10.0.1.1 of mgmt is in none of its networks"),
        ("gateway: 10.0.0.1", "gateway: x", "'x' is not an IP address"),
        ("[eno1, eno2]", "[eno1, eno3]", "there is no link 'eno3' (did you mean 'eno"),
        ("[eno1, eno2]", "[eno1, rdma0]", "rdma0 can't be in a bond: a member is a port without addresses"),
        ("[eno1, eno2]", "[]", "bond bond0 needs members"),
        ("parent: bond0", "parent: bond1", "there is no link 'bond1' (did you mean 'bond0'?)"),
        ("parent: bond0", "parent: mgmt", "mgmt is a VLAN itself"),
        ("vlan: 100, ", "", "vlan mgmt needs vlan, its id"),
        ("vlan: 100", "vlan: 4095", "4094"),
        ("name: rdma0", "name: eno1", "link 'eno1' is declared twice"),
        ("name: rdma0", "name: a-name-too-long-for-linux", "is not a name of an interface"),
        ("00:00:03", "00:00:02", "MAC address a0:88:c2:00:00:02 is given twice, to gpu-n001 and gpu-n001"),
        ('mac: "a0:88:c2:00:00:03", ', "", "ethernet rdma0 needs mac"),
        ("mode: 802.3ad", "mode: 802.3ad, vlan: 5", "bond bond0 can't have vlan"),
        ("mtu: 9000, addr", "mtu: 10, addr", "68"),
    ],
)
def test_what_can_not_be_is_told_at_its_place(old: str, new: str, says: str) -> None:
    assert LINKS.count(old) >= 1
    found = messages(pool_with(LINKS.replace(old, new, 1)))
    assert any(says in one for one in found), found
    assert all(one.startswith("pool.yaml:") for one in found if says in one)


def test_an_unknown_link_to_provision_by_is_told() -> None:
    found = messages(pool_with(LINKS, "      provision: mgnt\n"))
    assert any("there is no link 'mgnt' (did you mean 'mgmt'?)" in one for one in found), found


def test_an_address_of_another_node_is_told_with_its_place() -> None:
    second = HEAD.replace("gpu-n001", "gpu-n002").replace("9.1", "9.2")
    second += '      links: [{name: eno1, mac: "a0:88:c2:00:00:09", addresses: [10.0.0.7/16]}]\n'
    found = messages(pool_with(LINKS, second))
    [told] = [one for one in found if "10.0.0.7" in one]
    assert "address 10.0.0.7 is given twice, to gpu-n001 and gpu-n002 (the other is at pool.yaml:" in told


def test_a_range_can_not_share_one_network() -> None:
    edit = pool_with(LINKS)
    text = edit[2].replace("gpu-n001", "gpu-n[001-002]").replace("https://10.20.9.1", "https://10.20.9.[1-2]")
    found = messages((edit[0], edit[1], text.replace("10.21.9.1", "10.21.9.[1-2]")))
    assert any("2 nodes can't share it" in one for one in found), found
