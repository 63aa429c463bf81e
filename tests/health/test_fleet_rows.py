"""A fleet's own rows of the table of signals: what they change, whom, and what they can't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.gate.tools.inventory import TOOL as INVENTORY
from reconciler.gate.tools.xid import TOOL as XID
from reconciler.health.signals import signals, unread_signals
from reconciler.health.table import Effect, Remedy, health_table, table_of
from reconciler.model.desired import GateTest, Profile
from reconciler.model.observed import BmcEvent, DimmErrors, NvmeHealth, Xid
from reconciler.model.signal_changes import SignalChange
from reconciler.model.vocab import Health
from tests import builders as b
from tests.spec.example import load, messages

WORN = b.facts(nvme=(NvmeHealth("nvme0", "D1", "PM9A3", 0, 0, 60, 100),))
CORRECTED = b.facts(dimm_errors=(DimmErrors("mc0/dimm0", "DIMM_A1", 15, 0),), uptime_s=86_400.0)
LID = SignalChange(
    "lid_open", "our lids are locked", "bmc.events", "Chassis LID", "node", "environment", window="2d", first="report",
    healed_by=("fact_clear",), source="our BMCs",
)  # fmt: skip
DPU = SignalChange(
    "dpu_dead", "a dead DPU stays so", "host.kernel_events", "Heartbeat LOST", "port", "persistent", first="drain",
    next="ladder", healed_by=("fact_clear_after_new_boot", "gate"), source="our DPUs",
)  # fmt: skip


def judged_by(*changes: SignalChange) -> Profile:
    return b.profile(health=changes)


def named(profile: Profile, **seen: Any) -> dict[str, Effect]:
    return {signal.name: signal.effect for signal in signals(profile, b.observed(**seen))}


def test_a_threshold_of_the_fleet_decides_and_that_of_no_other_fleet() -> None:
    strict = judged_by(SignalChange("nvme_worn", "we write a lot", threshold=50))
    lax = judged_by(SignalChange("edac_ce", "this make corrects often", threshold=30))
    assert named(b.PROFILE, host=WORN) == {}
    assert named(strict, host=WORN) == {"nvme_worn": Effect.REPORTS}
    assert named(b.PROFILE, host=CORRECTED) == {"edac_ce": Effect.REPORTS}
    assert named(lax, host=CORRECTED) == {}
    assert named(b.PROFILE, host=CORRECTED) == {"edac_ce": Effect.REPORTS}, "there is no state beside the profile"


def test_a_row_of_the_fleet_changes_what_follows() -> None:
    acts = judged_by(
        SignalChange("edac_ce", "they fail soon", first="drain", next="person", healed_by=("new_serial", "gate"))
    )
    assert named(acts, host=CORRECTED) == {"edac_ce": Effect.REPAIRS}
    assert table_of(acts).remedy_of(["edac_ce"]) is Remedy.PERSON
    assert health_table().effect_of("edac_ce") is Effect.REPORTS


def test_a_row_for_one_code_takes_the_rest_from_its_family() -> None:
    changes = (SignalChange("xid_119", "a driver bug", first="report"), SignalChange("xid_", "twice", reads=2))
    table = health_table(changes)
    assert (table.effect_of("xid_119"), table.rule_of("xid_119").latched) == (Effect.REPORTS, False)
    assert (table.effect_of("xid_120"), table.rule_of("xid_120").latched) == (Effect.REPAIRS, False)
    assert table.rule_of("xid_79").latched, "it has a row of its own"
    found = named(judged_by(*changes), host=b.facts(xids=(Xid(119, "0", 1), Xid(120, "0", 1))))
    assert found == {"xid_119": Effect.REPORTS, "xid_120": Effect.REPAIRS}


def event(message: str, age_s: float, **changes: Any) -> BmcEvent:
    return BmcEvent("1", "2026-01-01", Health.WARNING, message, age_s=age_s, **changes)


def test_a_row_of_the_fleets_own_reads_the_log_of_the_bmc() -> None:
    own = judged_by(LID)

    def told(profile: Profile, *events: BmcEvent) -> dict[str, Effect]:
        return named(profile, inventory=b.inventory(events=events))

    opened = event("The chassis lid was opened (.*)", 60)
    assert told(b.PROFILE, opened) == {}
    assert told(own, opened) == {"lid_open": Effect.REPORTS}
    assert told(own, event("chassis", 60), event("The chassis lid", 3 * 86_400), replace(opened, settled=True)) == {}
    unread = unread_signals(own, b.observed(inventory=b.inventory(events=None)))
    assert "health.lid_open" in unread
    assert "health.lid_open" in unread_signals(own, b.observed(inventory=b.silent()))
    assert "health.lid_open" not in unread_signals(b.PROFILE, b.observed(inventory=b.silent()))


def test_a_row_of_the_fleets_own_reads_the_kernel_log() -> None:
    own, twice = judged_by(DPU), judged_by(replace(DPU, threshold=2.0))
    shown, more = b.facts(raised={"dpu_dead": ("heartbeat lost",)}), b.facts(raised={"dpu_dead": ("a", "b")})
    assert named(b.PROFILE, host=shown) == {}
    assert named(own, host=shown) == {"dpu_dead": Effect.REPAIRS} == named(twice, host=more)
    assert named(twice, host=shown) == {}
    assert signals(own, b.observed(host=more))[0].detail == "the kernel log has 'b', 2 times"
    assert "health.dpu_dead" not in unread_signals(own, b.observed(host=shown))
    assert "health.dpu_dead" in unread_signals(own, b.observed(host=b.facts())), "its log was not read"


@pytest.mark.parametrize("threshold", [10.0, 1000.0])
def test_no_row_of_a_fleet_admits_what_the_packaged_table_refuses(threshold: float) -> None:
    """The gate judges by both tables: a laxer row keeps a node in service, and a stricter one keeps it out."""
    changes = (SignalChange("nvme_worn", "x", threshold=threshold), SignalChange("edac_ce", "x", threshold=threshold))
    node = replace(b.node(), profile=judged_by(*changes))
    worn = NvmeHealth("nvme0", None, None, 0, 0, 100, 100)
    seen = b.observed(host=replace(CORRECTED, nvme=(worn,)))
    test = GateTest("passive", "xid", {}, (), 60)
    assert "corrected errors" in str(XID.judge(test, node, seen, ()).reasons)
    worn_out = INVENTORY.judge(test, node, seen, ()).reasons
    assert [one for one in worn_out if "rated writes" in one] == ["drive nvme0: 100 % of its rated writes are used up"]


def test_a_fleet_without_rows_is_judged_by_the_package_and_equal_rows_share_a_table() -> None:
    assert health_table() is table_of(b.PROFILE)
    assert health_table((LID,)) is health_table((replace(LID),))
    with pytest.raises(ValueError, match="healed by gate"):
        health_table((SignalChange("fan_failed", "x", first="drain", next="person"),))


def test_no_rung_resets_gpus_of_amds() -> None:
    """nvidia-smi would refuse it, and an attempt of the ladder would be spent on nothing."""
    change = SignalChange("amd_ecc", "x", rungs=("gpu_reset", "power_cycle"))
    with pytest.raises(ValueError, match="gpu_reset resets GPUs of NVIDIA's alone"):
        health_table((change,))
    assert health_table((replace(change, rungs=("power_cycle",)),)).rungs_of(["amd_ecc"]) == frozenset({"power_cycle"})
    assert health_table((replace(change, name="xid_119"),)).rungs_of(["xid_119"]) == frozenset(
        {"gpu_reset", "power_cycle"}
    )


ROWS = """
  health:
    signals:
      edac_ce: {threshold: 30, window: 2d, because: this make corrects often}
      xid_119: {first: report, because: a driver bug}
      fan_failed: {off: the room is rebuilt}
      lid_open:
        {fact: bmc.events, contains: lid, scope: node, class: environment, window: 1d, first: report,
         healedBy: [fact_clear], source: our BMCs, because: our lids are locked}"""


def test_the_spec_brings_its_rows_to_each_node() -> None:
    """The rows of Fleet.health reach each profile; one that is off is an ignore rule, so that it is counted as one."""
    fleet = load(("fleet.yaml", "  drift: {mode: correct}", "  drift: {mode: correct}" + ROWS))
    assert [change.name for change in fleet.settings.health] == ["edac_ce", "lid_open", "xid_119"]
    assert {node.profile.health for node in fleet.nodes.values()} == {fleet.settings.health}
    assert [(rule.path, rule.reason) for rule in fleet.settings.ignore[1:]] == [
        ("health.fan_failed", "the room is rebuilt")
    ]
    table = health_table(fleet.settings.health)
    assert (table.threshold("edac_ce"), table.window_s("edac_ce")) == (30, 2 * 86_400)
    assert str(fleet.places["health.lid_open"]).startswith("fleet.yaml:23:")
    node = next(iter(fleet.nodes.values()))
    assert str(node.profile.provenance["health.edac_ce"]).startswith("fleet.yaml:19:")


def test_the_rows_of_the_guide_are_those_of_a_valid_spec() -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/health-rows.md").read_text()
    rows = text.partition("```yaml\nspec:\n")[2].partition("```")[0]
    edit = ("fleet.yaml", "  drift: {mode: correct}\n", rows + "  drift: {mode: correct}\n")
    assert messages(edit) == []
    assert {change.name for change in load(edit).settings.health} == {
        "edac_ce", "drive_failing", "xid_119", "xid_79", "port_flap", "lid_open", "dpu_dead",
    }  # fmt: skip


def test_a_fleet_says_which_domains_may_be_the_cause() -> None:
    change = SignalChange("port_flap", "racks share no power with their leaves", domains=("leaf",))
    assert health_table().rule_of("port_flap").domains == ("*",)
    assert health_table((change,)).rule_of("port_flap").domains == ("leaf",)
