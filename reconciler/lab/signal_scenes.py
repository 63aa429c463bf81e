"""How each row of the table of signals is raised in the lab: one line per row.

A scene is a fault of the lab, or a change of a machine that no fault makes. What heals it is chosen by the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.lab.hardware import kernel_log
from reconciler.lab.hardware.faults import FAULTS, FaultValue
from reconciler.lab.hardware.gpu_cells import RECOVERING
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.parts import FAILED
from reconciler.model.played_signal import PERSON
from reconciler.spec.kinds.remediation_policy import RungAction

HOUR, DAY = 3600.0, 86400.0
NEWER: Final = "595.58.03"  # a driver that prints the cells of version 13 of nvidia-smi -q -x

LEVELS: Final[Mapping[str, str]] = {  # rung -> the remedy of a cause that it ends, as the lab's faults say it
    RungAction.GPU_RESET: "reset",
    RungAction.SOFT_RESTART: "boot",
    RungAction.POWER_CYCLE: "cold",
    RungAction.AC_CYCLE: "ac",
    RungAction.REIMAGE: "install",
}


@dataclass(frozen=True)
class Scene:
    """A fault with its parameters. `prepare`: changes the machine before it; without a fault that is the whole scene.

    `driver`: of the image, where the usual one does not print the cell. `ports`: whether the spec declares them.
    `ends`: what a person does besides ending the fault: records and logs outlive their cause.
    """

    fault: str = ""
    given: Mapping[str, FaultValue] = field(default_factory=dict)
    prepare: Callable[[Machine], None] | None = None
    driver: str = ""
    ports: bool = True
    ends: Callable[[Machine], None] | None = None

    def play_on(self, machine: Machine, rung: str) -> None:
        """Raise the signal by a cause that this rung ends, and no milder one; PERSON: none does. "": as it is given."""
        if self.prepare is not None:
            self.prepare(machine)
        if not self.fault:
            return
        heals = {"heals": LEVELS[rung]} if rung in LEVELS else {}
        chosen = bool(rung) and "persistent" in FAULTS[self.fault].parameters
        stays: Mapping[str, FaultValue] = {"persistent": rung == PERSON} if chosen else {}
        machine.inject(self.fault, **{**self.given, **stays, **heals})

    def mend(self, machine: Machine, part: str = "") -> None:
        """Exchange the part, or end what else it was, on a machine that is off, and switch it on.

        `part`: the kind of which the row takes another serial number for healing; "" = it takes none.
        """
        if self.fault == "gpu_cell" and part != "gpu":
            machine.exchange("gpu", 1)
        if part and self.fault != FAILED:  # its exchange comes below
            machine.exchange(part, int(self.given.get(part, 0)))
        machine.clear()
        if self.ends is not None:
            self.ends(machine)
        machine.power("on")


def _scene(
    fault: str = "",
    prepare: Callable[[Machine], None] | None = None,
    driver: str = "",
    *,
    ports: bool = True,
    ends: Callable[[Machine], None] | None = None,
    **given: FaultValue,
) -> Scene:
    return Scene(fault, given, prepare, driver, ports, ends)


def _cell(cell: str, text: str, driver: str = "", **more: Any) -> Scene:
    return _scene("gpu_cell", driver=driver, gpu=1, cell=cell, text=text, **more)


def _xid(code: int) -> Scene:
    return _scene("xid", gpu=1, code=code)


def _event(event: str) -> Scene:
    return _scene("kernel_event", event=event)


def _part(part: str, how: str = "critical") -> Scene:
    return _scene("failed_part", part=part, index=1 if part in ("drive", "nic", "processor") else 0, how=how)


def _counter(counter: str, per_hour: float, device: str = "mlx5_1/1") -> Scene:
    return _scene("error_counter", counter=counter, device=device, per_hour=per_hour)


def _drive(**says: FaultValue) -> Scene:
    return Scene("drive", {"drive": 1, **says})


def _sata(**says: FaultValue) -> Scene:
    return Scene("drive", {"drive": 1, **says}, _with_sata)


def _with_sata(machine: Machine) -> None:
    machine.state.drives[1].sata = True


def _loaded(machine: Machine) -> None:
    for gpu in machine.state.gpus:
        gpu.cells["loaded"] = "97 %"


def _narrow(machine: Machine) -> None:
    for gpu in machine.state.gpus:
        gpu.cells["pcie_width"] = "8x"


def _with_other_gpus(machine: Machine) -> None:
    for at in range(len(machine.state.gpus)):
        machine.exchange("gpu", at)


def _with_empty_log(machine: Machine) -> None:
    machine.state.events.clear()


def _with_no_records(machine: Machine) -> None:
    for disk in machine.state.disks.values():
        disk.memory_errors.clear()


def _logged(severity: str, message: str) -> Callable[[Machine], None]:
    def log(machine: Machine) -> None:
        machine._log(severity, message)

    return log


def own_event(text: str) -> Scene:
    """Return the scene of a row of a fleet's own: an entry in the BMC's log that has the text which the row looks for.

    A person takes it out of the log.
    """
    return _scene(prepare=_logged("Warning", f"Asserted: {text.upper()}."), ends=_with_empty_log)


def own_line(text: str) -> Scene:
    """Return the scene of a row of a fleet's own: a line of the kernel log that has the text, again after a boot."""
    return _scene("kernel_event", line=f"acme 0000:5e:00.0: {text.upper()} (0x17)")


def _recorded(kind: str, count: int, before_boot_s: float = 0.0) -> Callable[[Machine], None]:
    """Have rasdaemon record errors now, or so long before the boot, an hour ago."""

    def record(machine: Machine) -> None:
        system, at = machine.system(), machine.now
        if before_boot_s:
            system.booted_at = at - HOUR
            at = system.booted_at - before_boot_s
        machine.disk().memory_errors.append((at, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "0:0:0:-1", kind, count))

    return record


def _with_mmu_faults(machine: Machine) -> None:
    """Log two illegal accesses on one GPU, an hour apart."""
    machine.system().kernel_log += [kernel_log.mmu_fault(machine.state.gpus[1], at) for at in (100.0, 100.0 + HOUR)]


def _on_board(machine: Machine) -> None:
    """Log an Xid as the baseboard of a DGX H100 does (a recording in NVIDIA/libredfish)."""
    machine._log("Critical", "Driver Event Message has detected errors of type '[2][00] XID 119 Timeout'.")


SCENES: Final[Mapping[str, Scene]] = {
    "gpu_missing": _scene("xid_79", gpu=1, logged=False),
    "gpu_recovery": _cell("recovery_action", "Reset"),
    "gpu_init_failed": _event("gpu_init_failed"),
    "inforom_corrupt": _scene("smi_doubt", status=14),
    "ecc": _scene("ecc_errors", gpu=1),
    "ecc_disabled": _cell("ecc_enabled", "Disabled"),
    "ecc_ever": _cell("ecc_uncorrectable_ever", "3"),
    "rows_remapped": _cell("remapped_uncorrectable", "2"),
    "row_remap_failed": _cell("remap_failed", "Yes"),
    "row_remap_pending": _cell("remap_pending", "Yes"),
    "sram_threshold": _cell("sram_threshold_exceeded", "Yes"),
    "unrepairable_memory": _cell("unrepairable_memory", "Yes", NEWER),
    "repair_pending": _cell("tpc_repair_pending", "Yes", NEWER),
    "fabric": _scene("fabric_manager"),
    "fabric_recovers": _cell("fabric_health", RECOVERING),
    "thermal_slowdown": _scene("gpu_cell", prepare=_loaded, gpu=1, cell="thermal_slowdown", text="Active"),
    "thermal_margin": _cell("over_limit", "-5 C"),
    "power_brake": _scene("throttle", prepare=_loaded, by="power_brake"),
    "pcie_width": _cell("pcie_width", "8x"),
    "pcie_narrow": _scene(prepare=_narrow, ends=_with_other_gpus),
    "pcie_gen": _scene("gpu_cell", prepare=_loaded, gpu=1, cell="pcie_gen", text="3"),
    "pcie_replays": _cell("pcie_replays", "1000"),
    "persistence_off": _cell("persistence", "Disabled"),
    "nvlink_down": _scene("nvlink_down", gpu=1),
    "nvlink_slow": _scene("nvlink_slow", gpu=1),
    "port_missing": _scene("port", port=1),
    "port_slow": _scene("port", port=1, gbps=200.0),
    "port_uneven": _scene("port", port=1, gbps=200.0, ports=False),
    "nvme_critical": _drive(critical_warning=4),
    "nvme_hot": _drive(critical_warning=2),
    "nvme_worn": _drive(percentage_used=104),
    "nvme_spare": _drive(spare=4),
    "disk_failing": _sata(critical_warning=1),
    "disk_sectors": _sata(pending=3),
    "pcie_fatal": _event("pcie_fatal"),
    "memory_ue": _event("memory_ue"),
    "edac_ue": _scene("dimm_errors", uncorrectable=1),
    "edac_ce": _scene("dimm_errors", corrected=1000, uncorrectable=0),
    "ras_ue": _scene("dimm_errors", uncorrectable=1),
    "ras_ue_before": _scene(prepare=_recorded("Uncorrected", 1, HOUR), ends=_with_no_records),
    "ras_deferred": _scene(prepare=_recorded("Deferred", 1), ends=_with_no_records),
    "ras_ce": _scene("dimm_errors", ends=_with_no_records, corrected=1000, uncorrectable=0),
    "machine_check": _event("machine_check"),
    "nic_failed": _event("nic_failed"),
    "nic_module": _event("nic_module"),
    "task_hung": _event("task_hung"),
    "fs_read_only": _event("fs_read_only"),
    "nvme_timeout": _event("nvme_timeout"),
    "md_degraded": _event("md_degraded"),
    "fabric_manager_down": _scene("service_dead"),
    "clock_free": _scene("clock", seconds=0.0),
    "clock_off": _scene("clock", seconds=90.0),
    "dcgm_failure": _scene("dcgm", gpu=1),
    "dcgm_warning": _scene("dcgm", gpu=1, system="Thermal system"),
    "amd_uncorrectable": _event("amd_uncorrectable"),
    "amd_reset_failed": _event("amd_reset_failed"),
    "amd_bad_pages": _event("amd_bad_pages"),
    "amd_ring_timeout": _event("amd_ring_timeout"),
    "service_restarts": _counter("restarts", 60.0, "kubelet.service"),
    "bmc_silent": _scene("bmc_unreachable"),
    "host_silent": _scene("ssh_refused"),
    "kubelet_not_ready": _scene("kubelet_not_ready"),
    "node_pressure": _scene("node_condition", type="MemoryPressure", reason="KubeletHasInsufficientMemory"),
    "port_dropped": _counter("link_downed", 2.0),
    "port_flap": _scene("flap", port=1, every_s=120.0),
    "port_integrity": _counter("local_link_integrity_errors", 60.0),
    "port_symbol_errors": _counter("symbol_error", 7200.0),
    "port_recoveries": _counter("link_error_recovery", 3600.0),
    "port_receive_errors": _counter("port_rcv_errors", 360_000.0),
    "port_discards": _counter("port_xmit_discards", 3_600_000.0),
    "port_retries": _counter("local_ack_timeout_err", 36_000.0),
    "link_dropped": _counter("carrier_downs", 6.0, "eno1np0"),
    "link_garbled": _counter("fcs_errors", 360_000.0, "eno1np0"),
    "link_uncorrected": _counter("fec_uncorrected", 7200.0, "eno1np0"),
    "module_hot": _counter("module_hot", 60.0, "eno1np0"),
    "module_shorted": _counter("module_shorted", 60.0, "eno1np0"),
    "module_alarm": _scene("optic"),
    "nvlink_crc": _counter("crc", 3_600_000.0, "gpu1/link3"),
    "nvlink_replays": _counter("replay", 60.0, "gpu1/link3"),
    "aer_fatal": _counter("aer_fatal", 60.0, "0000:5d:00.0"),
    "aer_nonfatal": _counter("aer_nonfatal", 60.0, "0000:5d:00.0"),
    "aer_corrected": _counter("aer_corrected", 36_000.0, "0000:5d:00.0"),
    "thermal_time": _scene("throttle", prepare=_loaded, by="thermal", gpu=1, driver=NEWER),
    "brake_time": _scene("throttle", by="power_brake", driver=NEWER),
    "pcie_replay_rate": _counter("dcgm_202", 36_000.0, "gpu1"),
    "ecc_corrected": _counter("dcgm_310", 36_000.0, "gpu1"),
    "thermal_violation": _scene("throttle", prepare=_loaded, by="thermal", gpu=1),
    "brake_violation": _scene("throttle", by="power_brake"),
    "nvlink_integrity": _counter("dcgm_1209", 60.0, "gpu1"),
    "nvlink_recovery_failed": _counter("dcgm_1212", 60.0, "gpu1"),
    "xid_64": _xid(64),
    "xid_79": _scene("xid_79", gpu=1),
    "xid_95": _xid(95),
    "xid_163": _xid(163),
    "xid_164": _xid(164),
    "xid_165": _xid(165),
    "xid_nonfatal_": _xid(145),
    "xid_again_": _scene(prepare=_with_mmu_faults),
    "xid_": _xid(119),
    "condition_": _scene("node_condition"),
    "dimm_ue": _part("dimm", "logged"),
    "dimm_failed": _part("dimm"),
    "dimm_missing": _part("dimm", "missing"),
    "drive_missing": _part("drive", "missing"),
    "nic_missing": _part("nic", "missing"),
    "processor_missing": _part("processor", "missing"),
    "leak": _part("leak"),
    "drive_failed": _part("drive"),
    "drive_failing": _part("drive", "predicted"),
    "psu_failed": _part("psu"),
    "fan_failed": _part("fan"),
    "sensor_critical": _part("sensor"),
    "subsystem_health": _part("board"),
    "bmc_health": _part("psu"),
    "bmc_event_critical": _scene(
        prepare=_logged("Critical", "Chassis intrusion: general chassis intrusion"), ends=_with_empty_log
    ),
    "board_xid": _scene(prepare=_on_board, ends=_with_empty_log),
}
