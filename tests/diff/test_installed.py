"""What an installer decided is compared with what is declared, reported, and left as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.diff.installed import fingerprint
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.installed import HostLink, HostNetwork, InstalledFacts
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.observed import HostFacts
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import LinkKind
from tests import builders as b

CA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5Q0Nz5C5m1gXbpq0g3Gq6yZ3c8p6rVq2u0h8yG1abc users"
IMAGE = replace(b.PROFILE.image, kernel_arguments=("iommu=pt", "hugepages=16")) if b.PROFILE.image else None
NETWORK = DesiredNetwork(
    (
        DesiredLink("eno1", mac="b8:3f:d2:00:00:01"),
        DesiredLink("eno2", mac="b8:3f:d2:00:00:02"),
        DesiredLink("bond0", LinkKind.BOND, members=("eno2", "eno1"), mode="802.3ad", mtu=9000),
        DesiredLink(
            "mgmt", LinkKind.VLAN, parent="bond0", vlan=120, gateway="2001:db8:0::1",
            addresses=("2001:db8:0::7/64", "10.20.1.7/24"),
        ),
    ),
    dns=("10.20.0.53",),
)  # fmt: skip
WANTED = b.node(network=NETWORK, profile=b.profile(image=IMAGE, host=replace(b.PROFILE.host, user_ca=(CA,))))
LINKS = (
    HostLink("eno1", "ethernet", "b8:3f:d2:00:00:01", master="bond0", mtu=9000),
    HostLink("eno2", "ethernet", "b8:3f:d2:00:00:02", master="bond0", mtu=9000),
    HostLink("bond0", "bond", "b8:3f:d2:00:00:01", mode="802.3ad", mtu=9000),
    HostLink(
        "mgmt", "vlan", parent="bond0", vlan=120, mtu=1500,
        addresses=("10.20.1.7/24", "10.20.1.99/24", "2001:db8::7/64"),
    ),
    HostLink("docker0", "bridge", mtu=1500, addresses=("172.17.0.1/16",)),
)  # fmt: skip
GATEWAYS = {"mgmt": ("10.20.1.1", "2001:db8::1")}
WELL = InstalledFacts(
    HostNetwork(LINKS, GATEWAYS), (fingerprint(CA),), ("root=PARTUUID=1b2c", "iommu=pt", "ro", "hugepages=16")
)


def told(installed: InstalledFacts | None, **host: Any) -> dict[str, DriftItem]:
    seen = b.observed(host=b.facts(installed=installed, **host))
    items = Comparer(IgnoreRules((), b.NOW)).compare(WANTED, seen, NodeRecord(WANTED.node))
    return {item.path: item for item in items}


def changed(at: str, **changes: Any) -> InstalledFacts:
    links = tuple(replace(link, **changes) if link.name == at else link for link in LINKS)
    return replace(WELL, network=HostNetwork(links, GATEWAYS))


def test_what_was_installed_as_declared_is_as_specified() -> None:
    """Undeclared addresses, interfaces, routes and arguments are nobody's business."""
    assert told(WELL) == {}


@pytest.mark.parametrize(
    ("at", "changes", "path", "wanted", "found"),
    [
        ("bond0", {"mtu": 1500}, "bond0.mtu", 9000, 1500),
        ("bond0", {"mode": "active-backup"}, "bond0.mode", "802.3ad", "active-backup"),
        ("eno2", {"master": None}, "bond0.members", ["eno1", "eno2"], ["eno1"]),
        ("eno1", {"mac": "b8:3f:d2:00:00:09"}, "eno1.mac", "b8:3f:d2:00:00:01", "b8:3f:d2:00:00:09"),
        ("mgmt", {"vlan": 121}, "mgmt.vlan", 120, 121),
        ("mgmt", {"parent": "eno1"}, "mgmt.parent", "bond0", "eno1"),
        ("mgmt", {"name": "mgmt1"}, "mgmt.kind", "vlan", "absent"),
        ("bond0", {"kind": "bridge", "mode": "802.3ad"}, "bond0.kind", "bond", "bridge"),
        ("mgmt", {"addresses": ()}, "mgmt.addresses", ["10.20.1.7/24", "2001:db8::7/64"], []),
    ],
)  # fmt: skip
def test_a_part_of_the_network_that_differs_is_reported(
    at: str, changes: dict[str, Any], path: str, wanted: Any, found: Any
) -> None:
    (item,) = told(changed(at, **changes)).values()
    assert (item.path, item.kind) == (f"installed.network.{path}", DriftClass.REPORTED)
    assert (item.desired, item.observed) == (wanted, found)


def test_a_missing_route_and_a_wrong_one() -> None:
    gone = told(replace(WELL, network=HostNetwork(LINKS, {})))
    assert gone["installed.network.mgmt.gateway"].observed == "absent"
    other = told(replace(WELL, network=HostNetwork(LINKS, {"mgmt": ("10.20.1.1",)})))
    assert other["installed.network.mgmt.gateway"].observed == "10.20.1.1"


@pytest.mark.parametrize("keys", [(), ("SHA256:other",), (fingerprint(CA), "SHA256:other")])
def test_sshd_trusts_the_declared_cas_and_no_other(keys: tuple[str, ...]) -> None:
    (item,) = told(replace(WELL, user_ca=keys)).values()
    assert (item.path, item.kind, item.desired) == ("installed.user_ca", DriftClass.REPORTED, [fingerprint(CA)])


def test_an_argument_that_the_kernel_lacks_is_reported_of_the_image_that_has_it() -> None:
    lacking = replace(WELL, kernel_arguments=("ro", "iommu=pt"))
    (item,) = told(lacking).values()
    assert (item.path, item.observed) == ("installed.kernel_arguments", ["iommu=pt"])
    facts: HostFacts = b.facts()
    assert facts.image is not None
    older = told(lacking, image=replace(facts.image, version="2020.1.0"))
    assert "installed.kernel_arguments" not in older, "the command line is that of another image"


def test_what_could_not_be_read_is_unknown_and_what_nobody_asked_for_is_not_told() -> None:
    why = {"installed.network": "timeout: interfaces", "installed.user_ca": "auth: sshd"}
    items = told(InstalledFacts(kernel_arguments=WELL.kernel_arguments), unknown=why)
    assert {item.kind for item in items.values()} == {DriftClass.UNKNOWN}
    assert items["installed.user_ca"].detail.endswith("auth: sshd")
    assert told(None) == {}


@pytest.mark.parametrize("installed", [changed("bond0", mtu=1500), InstalledFacts()])
def test_nothing_is_planned_for_it_and_nothing_is_held_back(installed: InstalledFacts) -> None:
    seen = b.observed(host=b.facts(installed=installed))
    plan = b.planner().plan(WANTED, seen, b.record(WANTED, seen))
    assert (b.actions(plan), plan.blocked) == ([], None)
    assert {item.concern for item in plan.drift} == {"installed"}
