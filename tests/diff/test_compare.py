"""Values that differ, that are only spelled differently, or that are unknown, and which side has changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.diff import normalise
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.desired import DesiredGpu, IgnoreRule, Profile
from reconciler.model.drift import DriftClass
from reconciler.model.records import Applied, NodeRecord
from tests import builders as b


def drift(
    seen: o.Observed,
    *,
    wanted: Profile = b.PROFILE,
    record: NodeRecord | None = None,
    rules: tuple[IgnoreRule, ...] = (),
) -> dict[str, Any]:
    node = b.node(profile=wanted)
    comparer = Comparer(IgnoreRules(rules, b.NOW))
    return {item.path: item for item in comparer.compare(node, seen, record or NodeRecord(node.node))}


def test_a_node_as_specified_has_no_drift() -> None:
    assert drift(b.observed()) == {}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("Enabled", "enabled"), ("Enabled", True), ("Disabled", "Off"), (16, "16"), ("NPS1", " nps1 ")],
)
def test_spelling_is_not_drift(wanted: Any, found: Any) -> None:
    """Pitfall G5: vendors and generations spell the same setting differently."""
    seen = b.observed(inventory=b.inventory(bios={"X": found}))
    assert drift(seen, wanted=b.profile(bios={"X": wanted})) == {}


@pytest.mark.parametrize(
    ("running", "path"),
    [({"kernel": "5.15.0-1"}, "image.kernel"), ({"driver": "550.54.15"}, "image.driver"),
     ({"sysctls": {"vm.swappiness": "60"}}, "host.sysctls.vm.swappiness")],
)  # fmt: skip
def test_a_version_is_a_claim_and_what_runs_is_compared(running: dict[str, Any], path: str) -> None:
    """Pitfall L7: the image says that it is the right one, and something else runs."""
    assert list(drift(b.observed(host=b.facts(**running)))) == [path]


def test_an_order_that_means_nothing_is_no_drift() -> None:
    """Conventions D6: keyed lists and sets may come in any order; the order of booting is a value."""
    taints = (o.Taint("nvidia.com/gpu", "present", "NoSchedule"), o.Taint("team", "a", "NoExecute"))
    assert b.PROFILE.membership is not None
    wanted = b.profile(membership=replace(b.PROFILE.membership, taints=taints))
    assert drift(b.observed(member=b.member(taints=taints[::-1])), wanted=wanted) == {}

    layout = b.profile(gpu=DesiredGpu({"3g.40gb": 1, "1g.10gb": 2}))
    devices = [gpus.MigDevice(0, name, name) for name in ("1g.10gb", "3g.40gb", "1g.10gb")]
    for order in (devices, devices[::-1]):
        found = tuple(b.gpu(at, mig_current=True, mig_pending=True, mig_devices=tuple(order)) for at in (1, 0))
        assert drift(b.observed(host=b.facts(gpus=found, nvlinks_active={})), wanted=layout) == {}
    assert "boot.order" in drift(b.observed(inventory=b.inventory(boot_order=("Pxe", "Hdd"))))


def test_the_report_shows_what_was_read_as_it_was_spelled() -> None:
    seen = b.observed(inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS2"}))
    found = drift(seen)
    assert found["bios.NumaNodesPerSocket"].observed == "NPS2"
    assert found["bios.NumaNodesPerSocket"].desired == "NPS1"
    assert found["bios.SriovGlobalEnable"].kind is DriftClass.DRIFTED


def test_an_absent_key_is_unknown_and_not_different() -> None:
    found = drift(b.observed(inventory=b.inventory(bios={"SriovGlobalEnable": "Enabled"})))
    assert found["bios.NumaNodesPerSocket"].kind is DriftClass.UNKNOWN
    assert "no BIOS attribute 'NumaNodesPerSocket'" in found["bios.NumaNodesPerSocket"].detail


def test_a_silent_source_makes_its_values_unknown_and_no_others() -> None:
    found = drift(b.observed(inventory=b.silent("timeout")))
    assert {item.kind for item in found.values()} == {DriftClass.UNKNOWN}
    assert {path.partition(".")[0] for path in found} == {"hardware", "firmware", "bios", "boot"}
    assert "host.sysctls.vm.swappiness" not in found


def test_a_pending_value_is_in_progress() -> None:
    """Pitfall A11: a pending value is not a value."""
    seen = b.observed(
        hot=b.hot(pending_bios={"SriovGlobalEnable": "Enabled"}),
        inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}),
    )
    assert drift(seen)["bios.SriovGlobalEnable"].kind is DriftClass.IN_PROGRESS
    other = b.observed(hot=b.hot(pending_bios={"SriovGlobalEnable": "Auto"}), inventory=seen.inventory.value)  # type: ignore[union-attr]
    assert drift(other)["bios.SriovGlobalEnable"].kind is DriftClass.DRIFTED


@pytest.mark.parametrize(
    ("applied", "kind"),
    [
        ("Enabled", DriftClass.DRIFTED),
        ("Disabled", DriftClass.PENDING),
        ("Auto", DriftClass.CONFLICT),
        (None, DriftClass.DRIFTED),
    ],
)
def test_three_way(applied: str | None, kind: DriftClass) -> None:
    """The node, the spec, or both have changed (conventions D1)."""
    past = {} if applied is None else {"bios.SriovGlobalEnable": Applied(applied, "d", "c", b.NOW)}
    seen = b.observed(inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}))
    assert drift(seen, record=NodeRecord("gpu-a001", applied=past))["bios.SriovGlobalEnable"].kind is kind


def test_secure_boot_is_unknown_when_bmc_and_host_disagree() -> None:
    found = drift(b.observed(host=b.facts(secure_boot=False)))
    assert found["boot.secure_boot"].kind is DriftClass.UNKNOWN
    assert "contradictory: the BMC says on, the host says off" in found["boot.secure_boot"].detail


def test_firmware_policies() -> None:
    newer = b.inventory(firmware={item.inventory_id: o.FirmwareItem("2.10") for item in b.FIRMWARE})
    assert "firmware.bmc" in drift(b.observed(inventory=newer)), "exact: newer is drift too"
    least = tuple(replace(item, policy="min", version="2.9") for item in b.FIRMWARE)
    assert drift(b.observed(inventory=newer), wanted=b.profile(firmware=least)) == {}, "2.10 is newer than 2.9"
    assert "firmware.bmc" in drift(b.observed(), wanted=b.profile(firmware=least))


def test_the_disk_that_was_written_must_be_the_one_that_booted() -> None:
    """Pitfall L1: another disk with the same label."""
    image = o.ImageIdentity("ubuntu-gpu", "2026.11.1", b.SHA, "D1", None, booted_disk="D2")
    assert drift(b.observed(host=b.facts(image=image)))["image.root_disk"].observed == "D2"
    unread = replace(image, booted_disk=None)
    slow = b.facts(image=unread, unknown={"image.booted_disk": "killed at its timeout"})
    assert "killed at its timeout" in drift(b.observed(host=slow))["image.root_disk"].detail
    assert "gives no serial" in drift(b.observed(host=b.facts(image=unread)))["image.root_disk"].detail


def test_an_image_without_our_nonce_is_not_the_one_we_installed() -> None:
    record = NodeRecord("gpu-a001", nonce="n1")
    assert drift(b.observed(), record=record)["image.nonce"].observed == "none"


def test_mig_layouts() -> None:
    def mig(index: int, count: int, **changes: Any) -> gpus.Gpu:
        devices = tuple(gpus.MigDevice(index, "3g.40gb", f"u{index}{n}") for n in range(count))
        return b.gpu(index, mig_current=True, mig_pending=True, mig_devices=devices, **changes)

    wanted = b.profile(gpu=DesiredGpu({"3g.40gb": 2}))
    two = b.facts(gpus=(mig(0, 2), mig(1, 2)), nvlinks_active={})
    assert drift(b.observed(host=two), wanted=wanted) == {}
    uneven = drift(b.observed(host=b.facts(gpus=(mig(0, 2), mig(1, 1)), nvlinks_active={})), wanted=wanted)
    assert uneven["gpu.mig"].observed == "GPU 0: 3g.40gb x2; GPU 1: 3g.40gb"
    pending = drift(b.observed(host=b.facts(gpus=(b.gpu(0, mig_pending=True), b.gpu(1)))))
    assert "mode change pending" in pending["gpu.mig"].observed


def test_hardware_counts_are_exact() -> None:
    assert drift(b.observed(host=b.facts(gpus=(b.gpu(0), b.gpu(1, lost=True)))))["hardware.gpus"].observed == 1
    assert drift(b.observed(host=b.facts(gpus=(b.gpu(0), b.gpu(1), b.gpu(2)))))["hardware.gpus"].observed == 3


def test_ignore_rules() -> None:
    seen = b.observed(host=b.facts(sysctls={"vm.swappiness": "60"}))
    path = "host.sysctls.vm.swappiness"
    for pattern in (path, "host.sysctls.*", "host"):
        item = drift(seen, rules=(IgnoreRule(pattern, "because"),))[path]
        assert (item.kind, item.detail) == (DriftClass.IGNORED, "because")
    for rule in (
        IgnoreRule("host.sysctls.vm", "a prefix of a word is none", nodes=("gpu-b*",)),
        IgnoreRule(path, "another pool", pools=("infer",)),
        IgnoreRule(path, "expired", expires=(b.NOW - timedelta(days=1)).date().isoformat()),
        IgnoreRule("host.sysctls.vm.swap", "not a whole name"),
    ):
        assert drift(seen, rules=(rule,))[path].kind is DriftClass.DRIFTED, rule
    assert IgnoreRules((rule, IgnoreRule("x", "y", expires="2020-01-01")), b.NOW).expired


def test_equal_nodes_share_one_comparison() -> None:
    """A fleet of equal nodes costs one run of DeepDiff (DESIGN 6)."""
    comparer = Comparer(IgnoreRules((), b.NOW))
    for at in range(50):
        name = f"n{at}"
        seen = b.observed(name, inventory=b.inventory(boot_order=("Pxe", "Hdd")))
        items = comparer.compare(b.node(name), seen, NodeRecord(name))
        assert [item.path for item in items] == ["boot.order"]
        assert items[0].node == name
    assert len(comparer._shared) == 1


@given(st.text(max_size=12), st.text(max_size=12))
def test_versions_are_ordered_totally(one: str, other: str) -> None:
    first, second = normalise.version_key(one), normalise.version_key(other)
    assert (first < second) + (first == second) + (first > second) == 1


def test_versions_are_ordered_by_number() -> None:
    assert normalise.version_key("1.10") > normalise.version_key("1.9")
    assert normalise.version_key("v2.4") == normalise.version_key("2.4 ")
    assert normalise.version_key("28.43.1014") > normalise.version_key("28.43.999")
