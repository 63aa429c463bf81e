"""Codes, signals and the ladder."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.health import bmc
from reconciler.health.ladder import REMEDIATION, next_rung
from reconciler.health.signals import KERNEL_EVENTS, signals, unread_signals
from reconciler.health.table import Effect, health_table
from reconciler.health.xids import is_hardware
from reconciler.model.desired import Remediation, Rung
from reconciler.model.gpus import GpuCells, SmiAnswer
from reconciler.model.kernel_log import XidBurst
from reconciler.model.observed import (
    AmdGpu,
    ClockState,
    Daemons,
    DcgmIncident,
    DimmErrors,
    DimmRecord,
    DiskHealth,
    KernelEvent,
    Link,
    NvmeHealth,
    Xid,
)
from reconciler.model.records import Attempt
from reconciler.model.vocab import KernelEventKind
from tests import builders as b
from tests.health.test_bmc import CASES


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 94, 162])
def test_an_application_s_code_never_sends_a_node_away(code: int) -> None:
    """Pitfall K1."""
    assert not is_hardware(Xid(code, "0", 600))


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 95, 119, 120, 140, 149, 999])
def test_hardware_and_unknown_codes_do(code: int) -> None:
    assert is_hardware(Xid(code, "0", 1))
    assert not is_hardware(Xid(code, "0", 1), ignored=(code,))


def test_switch_codes() -> None:
    assert is_hardware(Xid(10003, "0", 1, switch=True, fatal=True))
    assert not is_hardware(Xid(11012, "0", 1, switch=True, fatal=False))
    assert is_hardware(Xid(12028, "0", 1, switch=True, fatal=False)), "the word Non-fatal is not harmless"
    assert is_hardware(Xid(26006, "0", 1, switch=True, fatal=None)), "in no table"


def test_codes_agree_with_the_catalogue(samples: Path) -> None:
    """Every code that NVIDIA's catalogue wants ignored or answered by the application is ours too, and no reset is."""
    rows = json.loads((samples.parent / "knowledge" / "xid.json").read_text())["Xids"][1:]
    for row in rows:
        code, bucket, used = int(row["B"]), row.get("I", ""), "Unused" not in row.get("D", "")
        if used and bucket in ("RESTART_APP", "IGNORE"):
            assert not is_hardware(Xid(code, "0", 1)), (code, bucket)
        if used and bucket in (
            "RESET_GPU",
            "RESTART_BM",
            "WORKFLOW_XID_48",
            "WORKFLOW_NVLINK_ERR",
            "CHECK_MECHANICALS",
        ):
            assert is_hardware(Xid(code, "0", 1)), (code, bucket)


def test_signals_name_their_evidence() -> None:
    def found(**changes: Any) -> list[str]:
        return [signal.name for signal in signals(b.PROFILE, b.observed(host=b.facts(**changes)))]

    assert found() == []
    assert found(gpus=(b.gpu(0), b.gpu(1, lost=True))) == ["gpu_missing"]
    assert found(gpus=(b.gpu(0), b.gpu(1, ecc_uncorrectable=2))) == ["ecc"]
    assert found(gpus=(b.gpu(0, remap_failed=True), b.gpu(1, remap_pending=True))) == [
        "row_remap_failed",
        "row_remap_pending",
    ]
    assert found(nvlinks_active={0: 18, 1: 17}) == ["nvlink_down"]
    assert found(xids=(Xid(79, "0", 1), Xid(31, "0", 1))) == ["xid_79"]
    assert signals(b.PROFILE, b.observed(host=b.silent())) == (), "silence is not a signal"


def test_the_ladder_counts_attempts_inside_its_window() -> None:
    policy = Remediation("p", (Rung("soft_restart", 1), Rung("power_cycle", 2)), window_s=3600)

    def tried(action: str, minutes: int, cause: str = REMEDIATION) -> Attempt:
        return Attempt(action, "", cause, b.NOW - timedelta(minutes=minutes), "done")

    assert next_rung(policy, (), b.NOW) == policy.ladder[0]
    assert next_rung(policy, (tried("soft_restart", 5),), b.NOW) == policy.ladder[1]
    assert next_rung(policy, (tried("soft_restart", 5, "bios.X"),), b.NOW) == policy.ladder[0], "not a treatment"
    both = (tried("soft_restart", 9), tried("power_cycle", 8), tried("power_cycle", 7))
    assert next_rung(policy, both, b.NOW) is None
    assert next_rung(policy, both, b.NOW + timedelta(hours=2)) == policy.ladder[0], "old attempts are forgotten"
    assert next_rung(None, (), b.NOW) is None
    assert next_rung(replace(policy, ladder=()), (), b.NOW) is None


@pytest.mark.parametrize(
    ("part", "hidden"),
    [
        ("gpus", {"health.gpu_missing", "health.ecc", "health.row_remap_pending", "health.sram_threshold"}),
        ("nvlinks_active", {"health.nvlink_"}),
        ("xids", {"health.xid_", "health.memory_ue"}),
        ("kernel_events", {"health.xid_", "health.memory_ue"}),
        ("links", {"health.port_"}),
        ("nvme", {"health.nvme_"}),
        ("disks", {"health.disk_"}),
        ("dimm_errors", {"health.edac_"}),
        ("uptime_s", {"health.edac_"}),
        ("dimm_records", {"health.ras_"}),
        ("counters", {"health.port_flap", "health.aer_fatal"}),
        ("gpu_counters", {"health.thermal_time", "health.brake_time"}),
        ("nvlink_counters", {"health.nvlink_crc", "health.nvlink_replays"}),
        ("daemon_counters", {"health.service_restarts"}),
        ("dcgm_counters", {"health.nvlink_recovery_failed", "health.thermal_violation"}),
        ("daemons", {"health.fabric_manager_down"}),
        ("clock", {"health.clock_"}),
        ("dcgm", {"health.dcgm_"}),
        ("module_alarms", {"health.module_alarm"}),
        ("amd_gpus", {"health.amd_"}),
        ("gpus", {"health.gpu_missing"}),
    ],
)
def test_a_part_that_gave_no_answer_hides_its_signals_and_a_silent_host_all(part: str, hidden: set[str]) -> None:
    assert unread_signals(b.profile(), b.observed()) == ()
    missing: dict[str, Any] = {part: None}
    found = set(unread_signals(b.profile(), b.observed(host=b.facts(**missing))))
    assert hidden <= found
    assert found < set(unread_signals(b.profile(), b.observed(host=b.silent())))


def test_a_part_of_a_part_that_was_not_read_hides_its_signals() -> None:
    def hidden(**changes: Any) -> tuple[str, ...]:
        return unread_signals(b.profile(), b.observed(host=b.facts(**changes)))

    remap = replace(b.CELLS, unread=("remap_pending",))
    assert hidden(gpus=(b.gpu(0), b.gpu(1, remap_pending=None, cells=remap))) == ("health.row_remap_pending",)
    assert hidden(gpus=(b.gpu(0), b.gpu(1, lost=True, cells=GpuCells()))) == (), "it is known to be lost"
    assert "health.gpu_missing" in hidden(gpus=(), amd_gpus=None, nvlinks_active={})
    assert hidden(nvlinks_active={0: 18}) == ("health.nvlink_",)
    assert hidden(links=(Link("mlx5_0/1", None, None, "infiniband"),)) == ("health.port_",)
    assert hidden(disks=(DiskHealth("/dev/sda", "S", "M", None),)) == ("health.disk_",)
    assert hidden(unknown={"module_alarms.eno1": "unsupported"}) == ("health.module_alarm",)
    assert hidden(nvme=(NvmeHealth("/dev/nvme0", "S", "M", None, None, None, None),)) == ("health.nvme_",)


# --- every signal, and its row in the table ----------------------------------------------------------------------


def ill_gpu(**cells: Any) -> dict[str, Any]:
    own = {name: cells.pop(name) for name in tuple(cells) if name not in GpuCells.__dataclass_fields__}
    return {"gpus": (b.gpu(0), b.gpu(1, cells=replace(b.CELLS, **cells), **own))}


def ports(*rates: float, down: int = 0) -> dict[str, Any]:
    up = tuple(Link(f"mlx5_{at}/1", True, rate, "infiniband") for at, rate in enumerate(rates))
    return {"links": up + tuple(Link(f"mlx5_{len(rates) + at}/1", False, 10.0, "infiniband") for at in range(down))}


def drive(**changes: Any) -> dict[str, Any]:
    return {"nvme": (replace(NvmeHealth("/dev/nvme0", "S1", "M", 0, 0, 3, 100, 10), **changes),)}


def dimm(corrected: int, uncorrected: int) -> dict[str, Any]:
    return {"dimm_errors": (DimmErrors("mc0/dimm1", "CPU1_DIMM_B1", corrected, uncorrected),), "uptime_s": 60.0}


def recorded(kind: str, count: int, hours: int = 0, *, this_boot: bool | None = None) -> dict[str, Any]:
    return {"dimm_records": (DimmRecord("CPU1_DIMM_B1", "0:1:0:-1", kind, hours, this_boot, count),)}


def disk(**changes: Any) -> dict[str, Any]:
    return {"disks": (replace(DiskHealth("/dev/sda", "S2", "M", True, 0, 0, 0), **changes),)}


RDMA = b.profile(inventory=replace(b.PROFILE.inventory, rdma_ports=4, rdma_rate_gbps=400))
NARROW = replace(b.CELLS, pcie_width=8)
RECOVERS = "route_recovery_in_progress True"
WELL = {**ports(400, 400, 400, 400), **drive(), **disk()}
# Signal, its evidence, and what it leads to.
SIGNALS: list[tuple[str, dict[str, Any], Effect]] = [
    ("gpu_missing", {"gpus": (b.gpu(0), b.gpu(1, lost=True))}, Effect.ISOLATES),
    ("gpu_recovery", ill_gpu(recovery_action="Reboot"), Effect.REPAIRS),
    ("inforom_corrupt", {"smi": SmiAnswer(14, 2, 2)}, Effect.REPORTS),
    ("ecc", ill_gpu(ecc_uncorrectable=1), Effect.REPAIRS),
    ("ecc_disabled", ill_gpu(ecc_enabled=False), Effect.REPORTS),
    ("ecc_ever", ill_gpu(ecc_uncorrectable_ever=2), Effect.REPORTS),
    ("rows_remapped", ill_gpu(remapped_uncorrectable=1), Effect.REPORTS),
    ("row_remap_failed", ill_gpu(remap_failed=True), Effect.ISOLATES),
    ("row_remap_pending", ill_gpu(remap_pending=True), Effect.REPAIRS),
    ("sram_threshold", ill_gpu(sram_threshold_exceeded=True), Effect.ISOLATES),
    ("unrepairable_memory", ill_gpu(unrepairable_memory=True), Effect.ISOLATES),
    ("repair_pending", ill_gpu(channel_repair_pending=True), Effect.REPAIRS),
    ("repair_pending", ill_gpu(tpc_repair_pending=True), Effect.REPAIRS),
    ("fabric", ill_gpu(fabric_state="Not Started"), Effect.REPAIRS),
    ("fabric", ill_gpu(fabric_status="Insufficient Resources"), Effect.REPAIRS),
    ("fabric", ill_gpu(fabric_health="bandwidth Degraded"), Effect.REPAIRS),
    ("fabric", ill_gpu(fabric_health=f"{RECOVERS}, route_unhealthy True"), Effect.REPAIRS),
    ("fabric_recovers", ill_gpu(fabric_health=RECOVERS), Effect.REPORTS),
    ("fabric_recovers", ill_gpu(fabric_health=f"summary Limited Capacity, {RECOVERS}"), Effect.REPORTS),
    ("thermal_slowdown", ill_gpu(thermal_slowdown=True, loaded=True), Effect.REPORTS),
    ("thermal_margin", ill_gpu(over_limit=True), Effect.REPORTS),
    ("power_brake", ill_gpu(power_brake=True, loaded=True), Effect.REPORTS),
    ("pcie_width", ill_gpu(pcie_width=8), Effect.REPAIRS),
    ("pcie_narrow", {"gpus": (b.gpu(0), b.gpu(1, name="NVIDIA L4", cells=NARROW))}, Effect.REPORTS),
    ("pcie_gen", ill_gpu(pcie_gen=1, loaded=True), Effect.REPORTS),
    ("pcie_replays", ill_gpu(pcie_replays=20_000), Effect.REPORTS),
    ("persistence_off", ill_gpu(persistence=False), Effect.REPORTS),
    ("nvlink_down", {"nvlinks_active": {0: 18, 1: 17}}, Effect.REPAIRS),
    ("nvlink_slow", {"nvlinks_slow": {1: 1}}, Effect.REPAIRS),
    ("fabric_manager_down", {"daemons": Daemons(4, fabric_manager=False)}, Effect.REPORTS),
    ("clock_free", {"clock": ClockState(synchronised=False)}, Effect.REPORTS),
    ("clock_off", {"clock": ClockState(True, -1.2)}, Effect.REPORTS),
    ("module_alarm", {"module_alarms": {"eno1": ("Module temperature high alarm",)}}, Effect.REPORTS),
    ("dcgm_failure", {"dcgm": (DcgmIncident("GPU 1", "Memory system", "Failure", "DBE"),)}, Effect.REPAIRS),
    ("dcgm_warning", {"dcgm": (DcgmIncident("GPU 1", "Memory system", "Warning", "SBE"),)}, Effect.REPORTS),
    ("dcgm_warning", {"dcgm": (DcgmIncident("GPU 1", "Thermal system", "Failure", "hot"),)}, Effect.REPORTS),
    ("amd_ecc", {"amd_gpus": (AmdGpu(0, 7, 1),)}, Effect.REPAIRS),
    ("amd_deferred", {"amd_gpus": (AmdGpu(0, 7, 0, 2),)}, Effect.REPORTS),
    ("gpu_missing", {"gpus": (), "amd_gpus": (AmdGpu(0, 0, 0),)}, Effect.ISOLATES),
    ("port_missing", ports(400, 400, 400, down=1), Effect.ISOLATES),
    ("port_missing", ports(400, 400, 400), Effect.ISOLATES),
    ("port_slow", ports(400, 400, 400, 100), Effect.REPAIRS),
    ("nvme_critical", drive(critical_warning=0x08), Effect.REPAIRS),
    ("nvme_hot", drive(critical_warning=0x02), Effect.REPORTS),
    ("nvme_worn", drive(percentage_used=180), Effect.REPORTS),
    ("nvme_spare", drive(available_spare=1), Effect.REPORTS),
    ("nvme_spare", drive(available_spare=4, spare_threshold=5), Effect.REPORTS),
    ("edac_ue", dimm(0, 1), Effect.REPAIRS),
    ("edac_ce", dimm(10, 0), Effect.REPORTS),
    ("edac_ce", dimm(20, 0) | {"uptime_s": 2 * 86400.0}, Effect.REPORTS),
    ("ras_ue", recorded("Uncorrected", 1, this_boot=True), Effect.REPAIRS),
    ("ras_ue", recorded("Fatal", 1, 100, this_boot=True), Effect.REPAIRS),
    ("ras_ue_before", recorded("Uncorrected", 1, 47, this_boot=False), Effect.REPORTS),
    ("ras_deferred", recorded("Deferred", 2, this_boot=True), Effect.REPORTS),
    ("ras_ce", recorded("Corrected", 10, 23), Effect.REPORTS),
    ("disk_failing", disk(passed=False), Effect.REPAIRS),
    ("disk_sectors", disk(reallocated=387), Effect.REPORTS),
    ("disk_sectors", disk(pending=1, uncorrectable=2), Effect.REPORTS),
    *((kind, {"kernel_events": (KernelEvent(KernelEventKind(kind), "x", 3),)}, effect) for kind, effect in {
        "gpu_init_failed": Effect.REPAIRS, "pcie_fatal": Effect.REPAIRS, "memory_ue": Effect.ISOLATES,
        "machine_check": Effect.REPAIRS, "nic_failed": Effect.REPAIRS, "nic_module": Effect.REPORTS,
        "fs_read_only": Effect.REPORTS, "nvme_timeout": Effect.REPORTS, "md_degraded": Effect.REPORTS,
        "task_hung": Effect.REPAIRS,
        "amd_uncorrectable": Effect.REPAIRS, "amd_reset_failed": Effect.REPAIRS,
        "amd_bad_pages": Effect.REPAIRS, "amd_ring_timeout": Effect.REPORTS,
    }.items()),
    *((f"xid_{code}", {"xids": (Xid(code, "x", 1),)}, effect) for code, effect in {
        64: Effect.ISOLATES, 79: Effect.ISOLATES, 95: Effect.ISOLATES, 48: Effect.REPAIRS, 119: Effect.REPAIRS,
        163: Effect.REPORTS, 164: Effect.REPORTS, 165: Effect.REPORTS,
    }.items()),
    ("xid_nonfatal_145", {"xids": (Xid(145, "x", 1, fatal=False),)}, Effect.REPORTS),
    ("xid_again_31", {"xids": (Xid(31, "x", 2, bursts=(XidBurst("", 9.0), XidBurst("", 900.0))),)}, Effect.REPORTS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "evidence", "effect"), SIGNALS)
def test_each_evidence_is_one_signal_with_its_effect(name: str, evidence: dict[str, Any], effect: Effect) -> None:
    found = signals(RDMA, b.observed(host=b.facts(**(WELL | evidence))))
    assert [signal.name for signal in found] == [name]
    assert health_table().effect_of(name) is effect
    assert found[0].detail


def test_the_table_has_no_row_that_nothing_raises() -> None:
    raised = {name for name, _, _ in (*SIGNALS, *CASES)}
    raised |= {"nic_missing", "port_uneven"}  # no node here has fewer ports on its BMC, or declares no rate
    raised |= set(bmc.unread_bmc_signals(b.observed(hot=b.silent(), inventory=b.silent())))  # test_bmc.py raises them
    raised |= {"port_down"}  # against other nodes: planner/test_peer_ports.py
    raised |= {"boot_refuted", "boot_unproved"}  # from the ledger: converge/test_measured_boot.py
    raised |= {
        "bmc_silent",
        "host_silent",
        "facts_silent",
        "kubelet_not_ready",
    }  # from the ledger: planner/test_watchdog.py
    raised |= {"node_pressure"}  # test_node_conditions.py
    raised |= {rule.name for rules in health_table().counted.values() for rule in rules}  # planner/test_counted.py
    assert {name for name in health_table().rules if not name.endswith("_")} == {
        name for name in raised if name in health_table().rules
    }
    assert {event.kind for _, evidence, _ in SIGNALS for event in evidence.get("kernel_events", ())} == {*KERNEL_EVENTS}
    with pytest.raises(KeyError, match="no row"):
        health_table().effect_of("a_new_one")


def test_a_well_node_has_no_signal() -> None:
    assert signals(RDMA, b.observed(host=b.facts(**WELL))) == ()


@pytest.mark.parametrize(
    "evidence",
    [
        ill_gpu(pcie_gen=1),  # idle: ASPM
        ill_gpu(thermal_slowdown=True, power_brake=True),  # idle
        ill_gpu(thermal_slowdown=True, loaded=None),
        ill_gpu(fabric_state="In Progress", fabric_status="Success"),
        ill_gpu(pcie_replays=3),
        {"gpus": (b.gpu(0, name="NVIDIA L40S", ecc_enabled=False), b.gpu(1))},
        {"smi": SmiAnswer(15, 2, 2)},  # a contradiction, not evidence
        ports(400, 400, 400, 400, 200, 200),  # two storage ports beside four: too slow only where a rate is declared
        {"links": (Link("mlx5_0/1", None, None, "infiniband"), *ports(400, 400, 400)["links"])},
        drive(available_spare=5, spare_threshold=5),
        drive(critical_warning=None, percentage_used=None, available_spare=None),
        dimm(9, 0),
        dimm(19, 0) | {"uptime_s": 2 * 86400.0},  # over two days: fewer than ten a day
        dimm(1000, 0) | {"uptime_s": None},
        recorded("Corrected", 9),
        recorded("Corrected", 1000, 24),
        recorded("Uncorrected", 1, 48, this_boot=False),
        recorded("Deferred", 1, this_boot=False),
        {"daemons": Daemons(0, fabric_manager=False)},  # no NVSwitch
        {"daemons": Daemons(4, fabric_manager=None)},  # in a container, maybe
        {"clock": ClockState(True, 0.9)},
        {"clock": ClockState(None)},
        {"amd_gpus": (AmdGpu(0, 7, None, None),)},
        {"gpus": (), "amd_gpus": (AmdGpu(0, 0, 0), AmdGpu(1, 0, 0))},
        {"gpus": (), "amd_gpus": None},  # they may be AMD's, of which nothing was read
        disk(passed=None, reallocated=None, pending=None, uncorrectable=None),
    ],
)
def test_what_is_no_evidence_is_no_signal(evidence: dict[str, Any]) -> None:
    undeclared = b.profile(inventory=replace(RDMA.inventory, rdma_rate_gbps=None))
    assert signals(undeclared, b.observed(host=b.facts(**(WELL | evidence)))) == ()


def test_without_a_declared_rate_a_port_that_is_slower_than_its_siblings_is_told_and_no_more() -> None:
    """Eight ports of 400 Gb/s and a DPU's or a storage port of 200 are how many nodes are built."""
    undeclared = b.profile(inventory=replace(RDMA.inventory, rdma_rate_gbps=None))
    found = signals(undeclared, b.observed(host=b.facts(**(WELL | ports(400, 100, 400, 400)))))
    assert [(signal.name, signal.effect) for signal in found] == [("port_uneven", Effect.REPORTS)]
    assert found[0].detail == "RDMA port mlx5_1/1 runs at 100 Gb/s, all others at 400: hardware.rdmaRateGbps is not set"


def test_a_gpu_of_another_model_says_nothing_of_how_many_lanes_a_gpu_has() -> None:
    both = {"gpus": (b.gpu(0, cells=NARROW), b.gpu(1, cells=NARROW))}
    assert [signal.name for signal in signals(RDMA, b.observed(host=b.facts(**(WELL | both))))] == ["pcie_narrow"] * 2
    mixed = {"gpus": (b.gpu(0), b.gpu(1, cells=NARROW), b.gpu(2, name="NVIDIA L4", cells=NARROW))}
    three = b.profile(inventory=replace(RDMA.inventory, gpus=3))
    found = signals(three, b.observed(host=b.facts(**(WELL | mixed))))
    assert [(signal.name, signal.detail[:5]) for signal in found] == [("pcie_width", "GPU 1"), ("pcie_narrow", "GPU 2")]


@pytest.mark.parametrize(
    ("text", "ill"),
    [
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", False),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", True),
        ("", True),
    ],
)
def test_a_recovery_action_that_was_taken_back_is_no_illness(text: str, ill: bool) -> None:
    """XID 154 speaks of other XIDs: the last line of a GPU that was reset says None (NVIDIA's catalogue)."""
    assert is_hardware(Xid(154, "x", 2, text=text)) is ill
