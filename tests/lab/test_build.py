"""A machine is built for any spec: with unknown BIOS attributes, any root disk rule, or almost no values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.lab.build import build_state, known_sysctls
from reconciler.lab.hardware import bios
from reconciler.lab.keys import EXAMPLE, known_keys
from reconciler.lab.pki import ImageKey
from reconciler.model.desired import Desired, DesiredInventory, RootDisk
from tests.lab.machines import example_fleet


def node(**profile: Any) -> Desired:
    desired = example_fleet().nodes["gpu-a001"]
    return replace(desired, profile=replace(desired.profile, **profile))


def test_attributes_of_a_user_are_learned_with_another_factory_default() -> None:
    wanted: dict[str, str | int | bool] = {"Fan": "Enable", "Mode": "Auto", "Speed": 7, "Wake": True, "Asset": "x"}
    wanted["SriovGlobalEnable"] = "Enabled"
    registry = bios.learn(wanted)
    for name, value in wanted.items():
        assert registry[name].accepts(value)
        assert registry[name].default != value
    assert registry["SriovGlobalEnable"] == bios.KNOWN["SriovGlobalEnable"]
    assert not registry["Speed"].accepts("7")
    assert not registry["Fan"].accepts("Enabled")


@pytest.mark.parametrize(
    "rule",
    [
        RootDisk(serial="S1"),
        RootDisk(wwn="eui.01"),
        RootDisk(model="MICRON 7450"),
        RootDisk(min_bytes=4 * 10**12),
        RootDisk(max_bytes=500 * 10**9),
        RootDisk(min_bytes=10**12, max_bytes=2 * 10**12),
        RootDisk(model="MICRON 7450", min_bytes=3 * 10**12),
    ],
)
def test_exactly_one_drive_fits_the_rule(rule: RootDisk) -> None:
    state, disk, serial = build_state(replace(node(), root_disk=rule))
    fitting = [
        drive
        for drive in state.drives
        if rule.serial in (None, drive.serial)
        and rule.wwn in (None, drive.wwn)
        and rule.model in (None, drive.model)
        and (rule.min_bytes or 0) <= drive.capacity_bytes <= (rule.max_bytes or drive.capacity_bytes)
    ]
    assert [drive.serial for drive in fitting] == [serial]
    assert disk.root_disk == serial


def test_what_a_spec_leaves_open_is_filled_in() -> None:
    state, disk, _ = build_state(node(image=None, inventory=DesiredInventory(), firmware=(), gpu=None, bios={}))
    assert (len(state.gpus), len(state.drives), sorted(state.firmware)) == (8, 5, ["BIOS", "BMC"])
    assert disk.image == ""
    assert disk.driver


def test_what_the_kernel_has_differs_from_what_is_wanted() -> None:
    profile = node().profile
    named = replace(profile, host=replace(profile.host, sysctls={"net.ipv4.ip_forward": "0", "vm.max_map_count": "9"}))
    defaults = known_sysctls(named)
    assert (defaults["net.ipv4.ip_forward"], defaults["vm.max_map_count"]) == ("1", "0")


def test_a_lab_knows_the_keys_that_its_images_were_signed_with() -> None:
    assert known_keys(example_fleet()) == {"release": EXAMPLE}
    ours = ImageKey()
    image = node().profile.image
    assert image is not None
    resigned = replace(image, signature=ours.sign_image(image.name, image.version, image.sha256), key="mine")
    fleet = replace(example_fleet(), nodes={"gpu-a001": node(image=resigned, digest="resigned")})
    assert known_keys(fleet) == {}
    assert known_keys(fleet, ours.public_text) == {"mine": ours.public_text}
    broken = replace(fleet, nodes={"gpu-a001": node(image=replace(image, signature="x\n!\n"), digest="broken")})
    assert known_keys(broken) == {}
