"""Every way in which a lab machine can fail: what an operator gets to read, and that nothing unsafe is done.

One table, FAULTS x situations. A fault kind that the lab learns and that has no row here fails the last test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.exit_codes import ExitCode
from reconciler.converge.events import ActionFinished
from reconciler.lab.hardware.faults import FAULTS
from reconciler.lab.hardware.machine import Machine
from reconciler.model.outcome import Done
from tests.e2e.world import Told, World

NODE = "gpu-a001"
BIOS: tuple[Any, ...] = ({"bios_off": {}},)
IMAGE: tuple[Any, ...] = ("old_image", "no_zstd")
SLOT: tuple[Any, ...] = ("old_image",)
NIC: tuple[Any, ...] = ({"old_firmware": {"component": "nic0"}},)
BIOS_IMAGE: tuple[Any, ...] = ({"old_firmware": {"component": "bios"}},)  # the BIOS's own firmware
NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True)
class Row:
    """A fault on a node that is otherwise as `drift` says, and what comes of it.

    `..._says`: regular expressions that the report of that name matches; it names the node as well. `end`: state of
    the node in the run's report. `cost`: counters of the machine that are not 0. `later`: (seconds until a second
    apply, how that ends, whether the node then serves): what the next scheduled run finds.
    """

    kind: str
    drift: tuple[Any, ...]
    end: str
    code: ExitCode
    serves: bool
    cost: Mapping[str, int]
    drift_says: str = ""
    plan_says: str = ""
    apply_says: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    node: str = NODE
    prepare: Callable[[Machine], None] | None = None
    later: tuple[float, str, bool] | None = None

    @property
    def id(self) -> str:
        words = [self.kind, *(f"{key}-{value}" for key, value in self.parameters.items())]
        return "-".join(map(str, words))


def _second_system(machine: Machine) -> None:
    """A forgotten system on a drive that the firmware looks at before the root disk (pitfall L1)."""
    drives = machine.state.drives
    drives.insert(0, drives.pop())
    assert machine.state.booted_disk is not None
    machine.state.disks[drives[0].serial] = machine.state.disks[machine.state.booted_disk]


NOT_READ: dict[str, Any] = {"end": "not_started", "code": ExitCode.INCOMPLETE, "serves": True, "cost": NOTHING}
ENDURED: dict[str, Any] = {"end": "done", "code": ExitCode.DONE, "serves": True}
LEFT_ALONE: dict[str, Any] = {"end": "not_started", "code": ExitCode.DONE, "serves": True, "cost": NOTHING}
TOLD: dict[str, Any] = {"end": "converged", "code": ExitCode.DONE, "serves": True, "cost": NOTHING}
FAILED: dict[str, Any] = {"end": "failed", "code": ExitCode.PARTLY_FAILED, "serves": False}

TABLE: Sequence[Row] = (
    # --- the BMC can't be read: unknown, so nothing is done, whatever else differs (invariant 4) ---
    Row("bmc_unreachable", BIOS, **NOT_READ, drift_says="unreachable", plan_says="unreachable", apply_says="unreach"),
    Row("bmc_wrong_password", BIOS, **NOT_READ, drift_says="auth", plan_says="auth", apply_says="auth"),
    Row("bmc_garbage", BIOS, **NOT_READ, drift_says="malformed", plan_says="malformed", apply_says="malformed"),
    Row("bmc_503", BIOS, **ENDURED, cost={"boots": 1, "bios_writes": 1}, drift_says="bios", plan_says="set_bios"),
    Row("bmc_sessions", BIOS, **NOT_READ, drift_says="busy", plan_says="busy", apply_says="busy"),
    Row("bmc_slow", BIOS, **ENDURED, cost={"boots": 1, "bios_writes": 1}, drift_says="bios", plan_says="set_bios"),
    Row("bmc_slow", BIOS, **NOT_READ, parameters={"seconds": 60.0}, drift_says="timeout", plan_says="timeout",
        apply_says="timeout"),
    # --- the BMC answers for another machine: no write at all (invariant 17) ---
    Row("wrong_machine", BIOS, "not_started", ExitCode.DONE, serves=True, cost=NOTHING,
        drift_says=r"identity\.serial .*XN-A001", plan_says="serial XN-A001.*right machine", apply_says="XN-A001"),
    # --- the BMC claims more than it does: HTTP 200 proves nothing ---
    Row("bios_write_ignored", BIOS, **FAILED, cost={"bios_writes": 3}, drift_says="bios",
        apply_says="set_bios.*neither as pending nor in force"),
    Row("boot_override_ignored", IMAGE, **FAILED, cost={},
        drift_says="image.version", plan_says="reimage", apply_says="reimage failed too often"),
    Row("boot_override_ignored", IMAGE, **FAILED, cost={"power_cycles": 3, "boots": 3}, parameters={"when": "boot"},
        apply_says="reimage failed too often"),
    Row("boot_override_stays", IMAGE, **ENDURED, cost={"power_cycles": 2, "boots": 2, "writes": 1, "installs": 1},
        plan_says="reimage"),
    Row("stale_media", IMAGE, **ENDURED, cost={"power_cycles": 2, "boots": 2, "writes": 1, "installs": 1},
        plan_says="reimage"),
    Row("slot_fails", SLOT, **ENDURED, cost={"power_cycles": 2, "boots": 3, "writes": 2, "installs": 2},
        drift_says="image.version.*in place", plan_says="reimage:slot"),
    Row("firmware_task_lost", NIC, **ENDURED, cost={"flashes": 1, "power_cycles": 1, "boots": 1},
        drift_says=r"firmware\.nic0", plan_says="update_firmware:nic0"),
    Row("firmware_task_lost", NIC, **FAILED, cost={"power_cycles": 1, "boots": 1}, parameters={"flashed": False},
        apply_says=r"did not take what was staged: nic0 runs 28\.43\.1013"),
    Row("firmware_fails", NIC, **FAILED, cost=NOTHING, drift_says=r"firmware\.nic0",
        apply_says="update_firmware:nic0.*does not fit"),
    Row("power_on_conflict", NIC, **ENDURED, cost={"flashes": 1, "power_cycles": 1, "boots": 1}),
    Row("bios_flash_resets", BIOS_IMAGE, **ENDURED, cost={"flashes": 1, "bios_writes": 1, "boots": 2},
        drift_says=r"firmware\.bios", plan_says="set_bios"),
    Row("stale_power", NIC, **ENDURED, cost={"flashes": 1, "power_cycles": 1, "boots": 1}),
    Row("power_ignored", NIC, **ENDURED, cost={"flashes": 1, "power_cycles": 1, "boots": 1}),
    Row("power_ignored", NIC, **FAILED, cost={"flashes": 1}, parameters={"times": 0},
        apply_says="power_cycle failed too often.*did not power off"),
    # --- the machine ---
    Row("post_hang", NIC, **FAILED, cost={"flashes": 1, "power_cycles": 1, "boots": 1},
        apply_says="did not come back", later=(60, "done", True)),
    Row("xid_79", (), **ENDURED, cost={"power_cycles": 1, "boots": 2}, drift_says="XID 79", plan_says="soft_restart"),
    Row("xid_79", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="7 of 8 GPUs", apply_says="XID 79.*attempts are used up", later=(60, "not_started", False)),
    Row("ecc_errors", (), **ENDURED, cost={"boots": 1}, drift_says="uncorrectable ECC", plan_says="soft_restart"),
    Row("ecc_errors", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="uncorrectable ECC", apply_says="ECC.*attempts are used up", later=(60, "not_started", False)),
    Row("node_condition", (), **ENDURED, cost={"boots": 1}, drift_says="GpuUnhealthy", plan_says="soft_restart"),
    Row("node_condition", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="health check failed", apply_says="GpuUnhealthy is True.*attempts are used up",
        later=(60, "not_started", False)),
    Row("nvlink_down", (), **FAILED, cost={"power_cycles": 1, "boots": 2},
        drift_says="17 of 18 NVLinks", plan_says="17 of 18 NVLinks", apply_says="17 of 18 NVLinks"),
    # --- what the mild rungs heal, on a ladder that has none of them ---
    Row("xid", (), **ENDURED, cost={"boots": 1}, drift_says="XID 119", plan_says="soft_restart"),
    Row("xid", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="XID 119", apply_says="XID 119.*attempts are used up", later=(60, "not_started", False)),
    Row("fabric_manager", (), **ENDURED, cost={"boots": 1}, drift_says="not been registered with the NVLink fabric",
        plan_says="soft_restart"),
    Row("fabric_manager", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="not been registered", apply_says="failed .*not been registered", later=(60, "not_started", False)),
    Row("gpu_reset_fails", (), **TOLD), Row("outlets_elsewhere", (), **TOLD),  # until they are asked for
    # --- what the host's programs tell ---
    Row("error_counter", (), **TOLD, later=(1800, "done", True)),  # one look judges no counter
    Row("service_dead", (), **ENDURED, cost=NOTHING, drift_says="nvidia-fabricmanager does not run.*reported only",
        plan_says="service restart"),
    Row("clock", (), **TOLD, drift_says="90 s off the time of its sources.*reported only"),
    Row("dcgm", (), **ENDURED, cost={"boots": 1}, drift_says="Memory system: Failure", plan_says="soft_restart"),
    Row("dcgm", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="Memory system: Failure", apply_says="attempts are used up", later=(60, "not_started", False)),
    Row("dimm_errors", (), **FAILED, cost={"power_cycles": 1, "boots": 2},
        drift_says="DIMM#0: 1 uncorrectable errors", apply_says="attempts are used up"),
    # --- parts of the machine, as host and BMC tell of them ---
    Row("nvlink_slow", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, drift_says="slower than others",
        apply_says="slower than others.*attempts are used up"),
    Row("gpu_cell", (), **ENDURED, cost={"power_cycles": 1, "boots": 2}, drift_says="asks for: Reset"),
    Row("gpu_cell", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"persistent": True},
        drift_says="asks for: Reset", apply_says="asks for: Reset.*attempts are used up"),
    Row("smi_doubt", (), **LEFT_ALONE, drift_says="ended with 15", apply_says="hardware not known"),
    Row("port", (), **LEFT_ALONE, drift_says="it counts when it has lasted 4m", apply_says="7 of 8 RDMA ports are up",
        later=(240, "done", True)),
    Row("port", (), **FAILED, cost={"power_cycles": 1, "boots": 2}, parameters={"gbps": 100.0, "persistent": True},
        drift_says="100 of 400 Gb/s", apply_says="100 of 400 Gb/s"),
    Row("drive", (), **LEFT_ALONE, parameters={"readable": False}, drift_says="gives no SMART log",
        apply_says="hardware not known"),
    Row("drive", (), **FAILED, cost=NOTHING, parameters={"critical_warning": 4}, drift_says="critical warning 0x04",
        apply_says="no action heals nvme_critical"),
    Row("drive", (), **TOLD, parameters={"percentage_used": 180}, drift_says="180 % .*reported only"),
    Row("kernel_event", (), **ENDURED, cost={"boots": 1}, parameters={"event": "pcie_fatal"},
        drift_says="fatal error of PCIe"),
    Row("kernel_event", (), **FAILED, cost={"power_cycles": 1, "boots": 2},
        parameters={"event": "memory_ue", "persistent": True}, drift_says="uncorrectable memory error",
        plan_says=r"isolated at once, before any limit: gpu-a001 \(health\.memory_ue\)",
        apply_says="attempts are used up"),
    Row("failed_part", (), **TOLD, drift_says="1 of 6 power supplies .*reported only"),
    Row("failed_part", (), **FAILED, cost=NOTHING, parameters={"part": "dimm", "how": "missing"},
        drift_says="31 of 32 memory modules", apply_says="no action heals dimm_missing"),
    Row("failed_part", (), **FAILED, cost=NOTHING, parameters={"part": "leak"}, drift_says="report a leak",
        apply_says="no action heals leak: repair the node .`reconciler repair start NODE`"),
    Row("failed_part", (), **FAILED, cost={"power_cycles": 1, "boots": 2},
        parameters={"part": "drive", "how": "missing", "index": 1}, drift_says="4 of 5 drives",
        apply_says="4 of 5 drives"),
    # --- what only acceptance tests show ---
    Row("slow_storage", BIOS, **FAILED, cost={"bios_writes": 1, "boots": 1}, apply_says="read_mbps .* < 5000"),
    Row("low_nccl", BIOS, **FAILED, cost={"bios_writes": 1, "boots": 1}, apply_says="busbw_peak .* < 440"),
    # What the example's profile does not test it does not see: tests/lab/test_gate_faults.py plays these on the wire.
    *(Row(kind, BIOS, **ENDURED, cost={"bios_writes": 1, "boots": 1})
      for kind in ("slow_gpu", "throttle", "leaf")),
    # Before it is admitted again its counters of errors are watched, and they rise on.
    *(Row(kind, BIOS, **FAILED, cost={"bios_writes": 1, "boots": 2, "power_cycles": 1}, apply_says="rose by")
      for kind in ("cable", "flap")),
    Row("mig_lost_on_boot", BIOS, **ENDURED, cost={"bios_writes": 1, "boots": 1}, node="gpu-b001",
        plan_says="set_gpu_mode"),
    Row("host_hung", (), "not_started", ExitCode.INCOMPLETE, serves=False, cost=NOTHING,
        drift_says="timeout", plan_says="timeout", apply_says="timeout", later=(400, "done", True)),
    Row("host_hung", (), "not_started", ExitCode.INCOMPLETE, serves=False, cost=NOTHING,
        parameters={"persistent": True}, later=(400, "failed", False)),
    Row("installer_fails", IMAGE, **ENDURED, cost={"power_cycles": 3, "boots": 3, "writes": 2, "installs": 1}),
    Row("installer_fails", IMAGE, **FAILED, cost={"power_cycles": 1, "boots": 1},
        parameters={"phase": "started", "why": "the signature of the image does not verify", "cause": "signature"},
        apply_says="the signature of the image does not verify", later=(6000, "done", True)),
    Row("installer_dies", IMAGE, **ENDURED, cost={"power_cycles": 3, "boots": 3, "writes": 2, "installs": 1}),
    Row("installer_silent", IMAGE, **ENDURED, cost={"power_cycles": 3, "boots": 3, "writes": 2, "installs": 2}),
    Row("installer_second_key", IMAGE, **FAILED, cost={"power_cycles": 1, "boots": 1, "writes": 1},
        apply_says="a second, different SSH host key", later=(6000, "not_started", False)),
    Row("wrong_boot_disk", IMAGE, **FAILED, cost={"power_cycles": 2, "boots": 2, "writes": 1, "installs": 1},
        prepare=_second_system, apply_says="booted ubuntu-gpu 2026.11.0 from another installation"),
    # --- services, seen from outside ---
    Row("ssh_refused", IMAGE, **NOT_READ, drift_says="unreachable", plan_says="connection refused",
        apply_says="connection refused"),
    Row("ssh_hang", IMAGE, **NOT_READ, drift_says="timeout", plan_says="does not answer", apply_says="does not answer"),
    Row("kubelet_not_ready", (), **FAILED, cost=NOTHING, drift_says="cluster.member .*not ready", plan_says="join",
        apply_says="does not become Ready"),
    Row("node_conflicts", IMAGE, "failed", ExitCode.PARTLY_FAILED, serves=True, cost=NOTHING,
        plan_says="mark", apply_says="mark"),
    Row("maintenance", IMAGE, **LEFT_ALONE, plan_says="NVIDIA's maintenance operator maintains it",
        apply_says="NVIDIA's maintenance operator maintains it"),
    Row("pdb_never_yields", IMAGE, "failed", ExitCode.PARTLY_FAILED, serves=True, cost=NOTHING,
        plan_says="drain", apply_says="default/router-gpu-a001: .*disruption budget.*serves as before"),
)  # fmt: skip


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[Row], World]]:
    built: list[World] = []

    def start(row: Row) -> World:
        built.append(World(tmp_path, drift={row.node: row.drift}, faults={row.node: {row.kind: row.parameters}}))
        if row.prepare is not None:
            row.prepare(built[-1].machine(row.node))
        return built[-1]

    yield start
    for world in built:
        world.ledger.close()


Play = Callable[[Row], World]


def costs(machine: Machine) -> dict[str, int]:
    counters = machine.state.counters
    return {name: value for name in counters.__slots__ if (value := getattr(counters, name))}


def says(text: str, node: str, pattern: str) -> bool:
    return not pattern or (re.search(pattern, text) is not None and node in text)


def check_safe(world: World, row: Row) -> None:
    """Whatever the fault: others are not touched, no work is killed, no mark is leaked, nothing is left half-told."""
    for name in world.fleet.nodes:
        if name != row.node:
            assert costs(world.machine(name)) == {}, f"{name} was touched"
            assert world.serves(name), f"{name} does not serve any more"
    counters = world.machine(row.node).state.counters
    assert (counters.killed_work, counters.overwritten_drives) == (0, 0)
    assert world.ledger.unfinished() == []
    admitted = [
        event for event in world.events
        if isinstance(event, ActionFinished) and event.action.name == "admit" and isinstance(event.outcome, Done)
    ]  # fmt: skip
    assert not (admitted and not world.serves(row.node))
    assert not (world.serves(row.node) and world.marked(row.node))


def check_next_step(told: Told, node: str) -> None:
    """Who is not converged is named, with a reason, and with what to type next."""
    assert node in told.apply
    assert told.outcome.nodes[node].detail
    assert re.search(r"`reconciler (explain|history|doctor|plan)", told.drift + told.plan + told.apply)


def check_served_after_its_gate(world: World, node: str) -> None:
    done = [e.action.name for e in world.events if isinstance(e, ActionFinished) and isinstance(e.outcome, Done)]
    boots = [at for at, name in enumerate(done) if name in ("soft_restart", "power_cycle", "reimage")]
    assert boots, "every row that ends well treats or changes the machine"
    assert boots[-1] < done.index("run_gate") < done.index("admit") == len(done) - 1
    certificate = world.ledger.node(node).certificate
    assert certificate is not None
    assert not certificate.adopted


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_fault_is_told_and_nothing_unsafe_is_done(play: Play, row: Row) -> None:
    world = play(row)
    told = world.converge()
    end = told.outcome.nodes[row.node]
    assert (end.state, told.code) == (row.end, row.code), end.detail
    assert world.serves(row.node) is row.serves
    assert costs(world.machine(row.node)) == row.cost
    for report, pattern in ((told.drift, row.drift_says), (told.plan, row.plan_says), (told.apply, row.apply_says)):
        assert says(report, row.node, pattern), f"{pattern!r} is not in\n{report}"
    if row.end == "done" and row.cost:
        check_served_after_its_gate(world, row.node)
    elif row.end != "converged":
        check_next_step(told, row.node)
    check_safe(world, row)
    if row.later is not None:
        pause, state, serves = row.later
        world.clock.elapsed += pause
        again = world.converge()
        assert again.outcome.nodes[row.node].state == state, again.apply
        assert world.serves(row.node) is serves
        check_safe(world, row)


def test_every_fault_of_the_lab_has_a_row() -> None:
    of_erasing = {"sanitize_fails", "drives_frozen", "erase_lies"}  # tests/converge/test_erasing.py plays these
    of_measuring = {"tpm", "tpm_gone", "spdm"}  # tests/converge/test_measured_boot.py and test_components.py play them
    of_operators = {"gpu_not_advertised"}  # tests/converge/test_operators.py plays it: no node here waits for operators
    # Nothing here resets a BMC, changes its password or listens to it: test_bmc_reset.py and test_bmc_password.py of
    # tests/converge and tests/drivers/redfish/test_event_posts.py play these.
    of_bmcs = {"bmc_hung", "password_change", "subscriptions_lost"}
    of_reports = {"optic"}  # it is told alone, after hours: tests/faults/test_signal_matrix.py plays it
    apart = of_erasing | of_measuring | of_operators | of_bmcs | of_reports
    assert {row.kind for row in TABLE} == set(FAULTS) - apart
