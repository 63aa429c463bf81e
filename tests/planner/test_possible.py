"""What a BMC can't do is known before its node is drained; what is not known of it rules nothing out."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from reconciler.model import abilities as a
from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.errors import Position
from reconciler.model.measurements import ComponentMeasurements, PlatformMeasurements
from reconciler.model.plan import BlockCode
from reconciler.model.vocab import Power, Provision, VerifiedBy
from tests import builders as b

OPTIONS = (
    # The shape of an R750's, from NVIDIA/libredfish, tests/mockups/dell: a disk, and HTTP instead of PXE.
    a.BootOption("Boot0000", "UefiHttp", "HTTP Device 1: NIC in Slot 5 Port 1"),
    a.BootOption("Boot0001", "Hdd", "Unavailable: ubuntu"),
)


def wanted(**changes: Any) -> d.Desired:
    return b.node(profile=b.profile(provenance={"boot.order": Position("hardware.yaml", 12, 14)}, **changes))


def lacking(**lacks: str) -> a.Abilities:
    return a.Abilities(lacks=lacks)


def found(**inventory: Any) -> o.Observed:
    host = b.facts(secure_boot=inventory.get("secure_boot", True))
    return b.observed(host=host, inventory=b.inventory(**inventory))


def planned(seen: o.Observed, node: d.Desired | None = None, **record: Any) -> Any:
    node = node or wanted()
    return b.planner().plan(node, seen, b.record(node, **record))


def test_a_boot_order_that_the_bmc_lacks_an_entry_for_drains_nothing() -> None:
    plan = planned(found(boot_order=("UefiHttp", "Hdd"), boot_options=OPTIONS))
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IMPOSSIBLE
    assert "set_boot: no boot entry 'Pxe'; there are: UefiHttp, Hdd (hardware.yaml:12:14)" in plan.blocked.detail
    (item,) = [item for item in plan.drift if item.path == "boot.order"]
    assert "its BMC can't change it: no boot entry 'Pxe'" in item.detail


def test_other_drift_of_the_node_is_removed_all_the_same() -> None:
    seen = found(boot_options=OPTIONS)
    seen = replace(seen, host=o.Answered(b.NOW, b.facts(sysctls={"vm.swappiness": "60"})))
    plan = planned(seen)
    assert b.actions(plan) == ["configure_host"]
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IMPOSSIBLE


def test_a_disk_that_no_system_is_on_may_have_no_boot_entry_yet() -> None:
    """The image is written first, and the order set when the entry is there."""
    other = b.facts(image=o.ImageIdentity("ubuntu-gpu", "2025.1", b.SHA, "D1", None, booted_disk="D1"))
    seen = b.observed(host=other, inventory=b.inventory(boot_options=(a.BootOption("Boot0003", "Pxe"),)))
    actions = b.actions(planned(seen))
    assert actions.index("drain") < actions.index("reimage") < actions.index("set_boot")
    assert any(
        actions.index("set_boot") < actions.index(boot) for boot in ("soft_restart", "power_cycle") if boot in actions
    )


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "bios": ({"bios": {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}}, "set_bios"),
    "secure_boot": ({"secure_boot": False}, "set_boot"),
    "boot_order": ({"boot_order": ("Pxe", "Hdd")}, "set_boot"),
    "firmware": ({"firmware": {i.inventory_id: o.FirmwareItem("1.0") for i in b.FIRMWARE}}, "update_firmware:bmc"),
}


@pytest.mark.parametrize("ability", CASES)
def test_a_write_that_the_bmc_lacks_is_not_planned(ability: str) -> None:
    drift, action = CASES[ability]
    assert action in b.actions(planned(found(**drift)))
    assert action in b.actions(planned(found(**drift, abilities=lacking(**{ability: ""}))))
    plan = planned(found(**drift, abilities=lacking(**{ability: "it has no licence"})))
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert (plan.blocked.code, "it has no licence" in plan.blocked.detail) == (BlockCode.IMPOSSIBLE, True)


def test_components_are_asked_for_only_where_the_bmc_hands_on_what_they_sign() -> None:
    """It is known before the node is drained, and also of a node that lacks nothing else."""
    group = ComponentMeasurements(("HGX_IRoT_GPU_0",), "-----BEGIN CERTIFICATE-----")
    places = {"measurements.components": Position("hardware.yaml", 14, 17)}
    changes = {"measurements": PlatformMeasurements(None, components=(group,)), "provenance": places}
    node = b.node(profile=b.profile(**changes))
    assert b.actions(planned(found(), node)) == ["check_trust"], "what was not read rules nothing out"
    assert b.actions(planned(found(abilities=lacking(measurements="")), node)) == ["check_trust"]
    plan = planned(found(abilities=lacking(measurements="the BMC has no ComponentIntegrity")), node)
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IMPOSSIBLE
    assert "check_trust: the BMC has no ComponentIntegrity (hardware.yaml:14:17)" in plan.blocked.detail
    other = b.facts(image=o.ImageIdentity("ubuntu-gpu", "2025.1", b.SHA, "D1", None, booted_disk="D1"))
    inventory = b.inventory(abilities=lacking(measurements="the BMC has no ComponentIntegrity"))
    assert b.actions(planned(b.observed(host=other, inventory=inventory), node)) == [], "nor is it installed in vain"
    undeclared = b.observed(host=b.facts(), inventory=inventory)
    assert planned(undeclared, b.node()).blocked is None


@pytest.mark.parametrize(
    ("lacks", "possible"),
    [
        (None, True),
        ({}, True),
        ({"media": "no"}, True),  # it boots over HTTP
        ({"http_boot": "no"}, True),
        ({"media": "no", "http_boot": "no"}, False),
        ({"boot_once": "no", "http_boot": "no"}, False),
        ({"power": "no"}, False),
    ],
)
def test_an_image_needs_a_way_to_boot_its_installer_and_power(lacks: dict[str, str] | None, possible: bool) -> None:
    other = b.facts(image=o.ImageIdentity("ubuntu-gpu", "2025.1", b.SHA, "D1", None, booted_disk="D1"))
    abilities = None if lacks is None else lacking(**{"media": "", "http_boot": ""} | lacks)
    seen = b.observed(host=other, inventory=b.inventory(abilities=abilities))
    assert ("reimage" in b.actions(planned(seen, wanted()))) is possible


def test_an_image_needs_the_one_disk_that_the_rule_matches() -> None:
    other = b.facts(image=o.ImageIdentity("ubuntu-gpu", "2025.1", b.SHA, "D1", None, booted_disk="D1"))
    node = replace(wanted(), root_disk=d.RootDisk(serial="D7", wwn=None, model=None, min_bytes=None, max_bytes=None))
    plan = planned(b.observed(host=other), node)
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert "no drive matches the root disk rule" in plan.blocked.detail
    untold = b.inventory(drives=(o.Drive("0", model="PM9A3"),))
    assert "reimage" in b.actions(planned(b.observed(host=other, inventory=untold), node))


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (a.BiosLimit("Enumeration", allowed=("Auto", "Disabled")), "can't be 'Enabled': Auto, Disabled"),
        (a.BiosLimit(read_only=True), "is read-only"),
        (a.BiosLimit("Enumeration", allowed=("Enabled", "Disabled")), ""),
    ],
)
def test_a_bios_value_that_the_registry_refuses_is_not_tried(limit: a.BiosLimit, why: str) -> None:
    drift = {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}
    plan = planned(found(bios=drift, abilities=a.Abilities(bios={"SriovGlobalEnable": limit})))
    assert ("set_bios" in b.actions(plan)) == (not why)
    assert not why or (plan.blocked is not None and f"BIOS SriovGlobalEnable {why}" in plan.blocked.detail)


def test_what_is_as_specified_needs_no_ability() -> None:
    nothing = a.Abilities(lacks=dict.fromkeys(map(str, a.Ability), "it has no licence"))
    plan = planned(found(abilities=nothing))
    assert (b.actions(plan), plan.blocked) == ([], None)


def test_a_rung_that_the_bmc_lacks_is_left_out() -> None:
    ladder = d.Remediation("standard", (d.Rung("power_cycle", 1), d.Rung("soft_restart", 1)), 86400.0)
    node = wanted(remediation=ladder)
    ill = b.facts(gpus=(b.gpu(0), b.gpu(1, ecc_uncorrectable=1)))
    seen = b.observed(host=ill, inventory=b.inventory(abilities=lacking(power="the BMC offers no Reset")))
    assert "power_cycle" not in b.actions(planned(seen, node))


@pytest.mark.parametrize(
    ("ways", "verified_by", "possible"),
    [
        (("MultipartHttpPushUri",), VerifiedBy.RECONCILER, True),
        (("MultipartHttpPushUri", "HttpPushUri"), VerifiedBy.BMC, False),
        (("SimpleUpdate", "MultipartHttpPushUri"), VerifiedBy.BMC, True),
        (None, VerifiedBy.BMC, True),
    ],
)
def test_a_bmc_that_fetches_nothing_needs_a_file_that_we_have(
    ways: tuple[str, ...] | None, verified_by: VerifiedBy, possible: bool
) -> None:
    node = wanted(firmware=tuple(replace(item, verified_by=verified_by) for item in b.FIRMWARE))
    old = {item.inventory_id: o.FirmwareItem("1.0") for item in b.FIRMWARE}
    plan = planned(found(firmware=old, abilities=a.Abilities(firmware_ways=ways)), node)
    assert ("update_firmware:bmc" in b.actions(plan)) is possible
    assert possible or (plan.blocked is not None and "verifiedBy: reconciler" in plan.blocked.detail)


def test_an_image_that_its_installer_would_refuse_is_not_begun() -> None:
    """The install contract has minisign signatures alone: the node would be drained, booted, and told so."""
    bundle = base64.b64encode(encode_dss_signature(1 << 250, 1 << 250)).decode()
    image = replace(b.IMAGE, signature=bundle, key="cosign")
    node = b.node(profile=b.profile(image=image))
    other = b.facts(image=o.ImageIdentity("ubuntu-gpu", "2025.1", b.SHA, "D1", None, booted_disk="D1"))
    plan = planned(b.observed(host=other), node)
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert "installers verify minisign signatures alone" in plan.blocked.detail


def test_a_machine_that_is_off_is_not_installed_with_an_image_whose_signature_is_wrong() -> None:
    """What is wrong comes first. All else follows from it: a blank machine has none of what the spec asks for."""
    planner = b.planner(signatures={("ubuntu-gpu", "2026.11.1"): False})
    off = b.observed(hot=b.hot(power=Power.OFF), host=b.silent("explained", "powered off"), member=None)
    plan = planner.plan(replace(wanted(), provision=Provision.BLANK), off, b.record(wanted()))
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert plan.blocked.detail.startswith("signature (the signature of image ubuntu-gpu 2026.11.1 does not verify), ")
