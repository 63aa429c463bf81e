"""Every fault of the lab, injected when an action of the catalogue begins, and the expected end.

A column is an action, with the drift that causes it; a row is a fault, which stays unless it ends by itself. Faults
that only servers can simulate are in tests/e2e/test_faults.py and tests/drivers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.machine import Machine
from reconciler.model.vocab import Activation
from tests.faults.cells import CLUSTER_DOWN, CellResult, Fault, Scene, play

LETTERS: Mapping[str, str] = {
    ".": "as specified and in service, whatever happened",
    "s": "stopped; it serves as before, without our mark",
    "o": "stopped; out of service under our mark, until the fault is over",
    "P": "stopped likewise, until the fault is over and a person has seen to it",
    "x": "stopped; out of service by the fault itself, and not by us",
}

SCENES: Mapping[str, Scene] = {
    "mark": Scene("mark", ("BIOS off",)),
    "drain": Scene("drain", ("BIOS off",)),
    "set_bios": Scene("set_bios", ("BIOS off",)),
    "set_boot": Scene("set_boot", ("boot order", "Secure Boot off")),
    "update_firmware": Scene("update_firmware", ("old NIC firmware",)),
    "reset_bmc": Scene("reset_bmc", ("old NIC firmware",), nic=Activation.BMC_RESET),
    "soft_restart": Scene("soft_restart", ("BIOS off",)),
    "power_cycle": Scene("power_cycle", ("old NIC firmware",)),
    "power_on": Scene("power_on", ("switched off",)),
    "reimage": Scene("reimage", ("old image",)),
    "configure_host": Scene("configure_host", ("sysctl off",)),
    "join": Scene("join", ("kubelet stopped",)),
    "check_trust": Scene("reimage", ("old image",), after=True),
    "run_gate": Scene("run_gate", ("old NIC firmware",)),
    "set_gpu_mode:off": Scene("set_gpu_mode", ("MIG changed",)),
    "set_gpu_mode": Scene("set_gpu_mode", ("MIG changed",), mig=True),
    "set_labels": Scene("set_labels", ("label gone",)),
    "admit": Scene("admit", ("BIOS off",)),
    "restart_service": Scene(
        "restart_service", ill=Fault("fabric_manager"), ladder=("restart_service", "soft_restart", "power_cycle")
    ),
    "gpu_reset": Scene(
        "gpu_reset", ill=Fault("xid", {"code": 119, "gpu": 1}), ladder=("gpu_reset", "soft_restart", "power_cycle")
    ),
    "ac_cycle": Scene("ac_cycle", ill=Fault("xid", {"code": 79, "gpu": 1, "heals": "ac"}), ladder=("ac_cycle",)),
}


def _second_system(machine: Machine) -> None:
    """Put an old system on a drive that the firmware tries first (pitfall L1)."""
    drives = machine.state.drives
    drives.insert(0, drives.pop())
    assert machine.state.booted_disk is not None
    machine.state.disks[drives[0].serial] = replace(machine.state.disks[machine.state.booted_disk], nonce="forgotten")


@dataclass(frozen=True)
class Row:
    """One fault. `ends`: a letter for each of SCENES. `says`: pattern of the reported reasons of nodes that stop."""

    fault: Fault
    ends: str
    says: re.Pattern[str]

    @property
    def name(self) -> str:
        words = (f"{name}={value}" for name, value in self.fault.parameters.items() if name != "gpu")
        return " ".join([self.fault.kind, *words])


def _row(
    ends: str, kind: str, says: str = "nothing", prepare: Callable[[Machine], None] | None = None, **given: FaultValue
) -> Row:
    return Row(Fault(kind, given, prepare), ends.replace(" ", ""), re.compile(says))


_SILENT = "SSH server does not answer|terminating since|not proved healed"

# fmt: off
ROWS: tuple[Row, ...] = (
    # mark drain set_bios set_boot | update_firmware reset_bmc | soft_restart power_cycle power_on reimage |
    # configure_host join | check_trust run_gate | set_gpu_mode:off set_gpu_mode | set_labels admit |
    # restart_service gpu_reset ac_cycle
    _row("ssoo oo oooo so oo oo ss ooo", "bmc_unreachable", "BMC unreachable|last: unreachable"),
    _row(".... .. .... .. .. .. .. ...", "bmc_503"),
    _row("ssoo oo oooo so oo oo ss ooo", "bmc_503", "BMC unreachable|last: unreachable", times=0),
    _row("ssoo oo oooo so oo oo ss ooo", "bmc_sessions", "BMC busy|last: busy"),
    _row(".... .. .... .. .. .. .. ...", "bmc_slow"),
    _row("ssoo oo oooo so oo oo ss ooo", "bmc_wrong_password", "auth"),
    _row("ssoo oo oooo so oo oo ss ooo", "bmc_garbage", "malformed"),
    _row("ssss so ooos so oo oo ss ooo", "wrong_machine", "XN-n0.*right machine"),
    _row(".... .. .... .. .. .. .. ...", "stale_power"),
    _row(".... o. .ooo .. .. .. .. ..o", "stale_power", "did not power o|lists no firmware", times=0),
    _row(".... .. .... .. .. .. .. ...", "power_ignored"),
    _row(".... o. .ooo .. .. .. .. ..o", "power_ignored", "did not power o", times=0),
    _row("ooo. .. .... .. .. .. .. ...", "bios_write_ignored", "neither as pending nor in force"),
    _row(".... .. ...o .. .. .. .. ...", "boot_override_ignored", "one-time boot"),
    _row(".... .. ...o .. .. .. .. ...", "boot_override_ignored", "did not boot the installer but", when="boot"),
    _row(".... .. .... .. .. .. .. ...", "boot_override_stays"),
    _row(".... .. .... .. .. .. .. ...", "stale_media"),
    _row(".... .. .... .. .. .. .. ...", "firmware_task_lost"),
    _row(".... o. .... .. .. .. .. ...", "firmware_task_lost", "did not take what was staged: nic0", flashed=False),
    _row(".... o. .... .. .. .. .. ...", "firmware_fails", "does not fit this component"),
    _row(".... .. .... .. .. .. .. ...", "power_on_conflict"),
    _row(".... .. .... .. .. .. .. ...", "bios_flash_resets"),
    _row("oooo o. oo.. .. .. .. .. ..o", "post_hang", "in post|installer did not start"),
    _row("oooo o. oooo .. .. .. .. ..o", "post_hang", "in post|installer did not start", times=0),
    _row(".... .. .... .. .o oo .. ...", "xid_79", "XID 79|GPU is lost", gpu=1),
    _row("oooo oo oooo oo oo oo oo ooo", "xid_79", "XID 79|GPU is lost", gpu=1, persistent=True),
    _row(".... .. .... .. .o .. .. ...", "ecc_errors", "XID 48", gpu=1),
    _row("oooo oo oooo oo oo oo oo ooo", "ecc_errors", "XID 48", gpu=1, persistent=True),
    _row(".... .. .... .. .o .. .. ...", "nvlink_down", "XID 74", gpu=1, persistent=False),
    _row("oooo oo oooo oo oo oo oo ooo", "nvlink_down", "XID 74", gpu=1),
    _row("oooo oo oooo oo oP o. oo ooo", "nvlink_slow", "slower than others", gpu=1),
    _row(".... .. .... .. .P .. .. ...", "gpu_cell", "the driver asks for: Reset", gpu=1),
    _row("oooo oo oooo oo oP oo oo ooo", "gpu_cell", "the driver asks for: Reset", gpu=1, persistent=True),
    _row("ssoo oo oooo so oo oo ss ooo", "smi_doubt", "ended with 15 .*fallen off the bus"),
    _row(".... .. .... .. .. .. .. ...", "port"),  # the spec declares no ports
    _row("ssoo oo oooo so oo oo ss ooo", "drive", "gives no SMART log", readable=False),
    _row(".... .. .... .. .o .. .. ...", "kernel_event", "fatal error of PCIe", event="pcie_fatal"),
    _row(".... .. .... .. .. .. .. ...", "failed_part"),
    _row(".... PP .P.P .. PP .. .. PPP", "slow_storage", "read_mbps .* < 5000"),
    _row(".... PP .P.P .. PP .. .. PPP", "low_nccl", "busbw_peak .* < 440"),
    # No acceptance test here loads a GPU or a rail: tests/lab/test_gate_faults.py has one for each of these.
    _row(".... .. .... .. .. .. .. ...", "slow_gpu", gpu=1),
    _row(".... .. .... .. .. .. .. ...", "throttle", gpu=1),
    # A node that is out is watched before it is admitted, and these links go on erring until the cable is exchanged.
    _row("oooo oo oooo oo oo oo oo ooo", "cable", "rose by"),
    _row("oooo oo oooo .. oo .. .. ooo", "flap", "link_downed rose by|does not hold"),
    _row(".... .. .... .. .. .. .. ...", "error_counter"),  # each pass here is one apply, with one look at counters
    _row(".... .. .... .. .. .. .. ...", "service_dead"),  # it is reported
    _row(".... .. .... .. .. .. .. ...", "clock"),
    _row(".... .. .... .. .P .. .. ...", "dcgm", "Memory system: Failure", gpu=1),
    _row(".... .. .... .. .. .. .. ...", "leaf"),
    _row(".... .. .... .. .. .. .. ...", "mig_lost_on_boot"),
    _row("oooo oo o... xo oo oo xx oo.", "host_hung", _SILENT),
    _row("oooo oo oooo xo oo oo xx ooo", "host_hung", _SILENT + "|host is down", persistent=True),
    _row(".... .. .... .. .. .. .. ...", "installer_fails"),
    _row(".... .. ...o .. .. .. .. ...", "installer_fails", "installer failed: can.t write the disk", times=0),
    _row(".... .. .... .. .. .. .. ...", "installer_fails", phase="started"),
    _row(".... .. .... .. .. .. .. ...", "installer_fails", phase="written"),
    _row(".... .. .... .. .. .. .. ...", "installer_dies"),
    _row(".... .. .... .. .. .. .. ...", "installer_silent"),
    _row(".... .. ...P .. .. .. .. ...", "installer_second_key", "a second, different SSH host key"),
    _row(".... .. .... .. .. .. .. ...", "slot_fails"),  # the spec declares no layout
    # Drives are erased by decommissioning alone.
    _row(".... .. .... .. .. .. .. ...", "sanitize_fails"),
    _row(".... .. .... .. .. .. .. ...", "drives_frozen"),
    _row(".... .. .... .. .. .. .. ...", "erase_lies"),
    # No image here declares measurements: tests/converge/test_measured_boot.py plays each lie.
    _row(".... .. .... .. .. .. .. ...", "tpm"),
    _row(".... .. .... .. .. .. .. ...", "tpm_gone"),
    _row(".... .. .... .. .. .. .. ...", "spdm"),  # nor of components: test_components.py plays each lie
    _row("oooo o. oooo .. .. .. .. ..o", "wrong_boot_disk", "from another installation", prepare=_second_system),
    _row("ssoo oo oooo so oo oo ss ooo", "ssh_refused", "connection refused|not proved healed"),
    _row("ssoo oo oooo so oo oo ss ooo", "ssh_hang", "SSH server does not answer|not proved healed"),
    _row("oooo oo oooo oo oo oo oo ooo", "kubelet_not_ready", "does not become Ready"),
    _row("sooo oo oooo .o oo oo so ooo", "node_conflicts", "has been modified"),
    _row(".... .. .... .. .. .. .. ...", "node_condition", "GpuUnhealthy"),
    _row("oooo oo oooo o. oo oo oo ooo", "node_condition", "GpuUnhealthy|does not hold", persistent=True),
    _row("ss.. .. .... .. .. .. .. ...", "pdb_never_yields", "disruption budget never-n0"),
    _row("ssoo oo oooo so oo oo ss ooo", "maintenance", "NVIDIA's maintenance operator maintains it"),
    _row(".... .. .... .. .o .. .. ...", "xid", "XID 119 on", code=119, gpu=0),
    _row("oooo oo oooo oo oo oo oo ooo", "xid", "XID 119 on", code=119, gpu=0, persistent=True),
    _row(".... .. .... .. .. .. .. ...", "gpu_reset_fails"),  # where it is tried, the next rung heals
    _row(".... .. .... .. .P .. .. ...", "fabric_manager", "registered with the NVLink fabric"),
    _row("oooo oo oooo oo oP oo oo ooo", "fabric_manager", "registered with the NVLink fabric", persistent=True),
    _row(".... .. .... .. .. .. .. ..P", "outlets_elsewhere", "give n3 power", node="n3"),
    _row(".... .. .... .. .. .. .. ..P", "outlets_elsewhere", "with all of its outlets in the spec off"),
    _row("sooo oo oooo so oo oo so ooo", CLUSTER_DOWN, "API server does not answer|cluster unreachable"),
)
# fmt: on


def differences(row: Row) -> Iterator[tuple[str, CellResult, str]]:
    """Yield (action, result, difference from the expected result); "" = none."""
    assert len(row.ends) == len(SCENES)
    for (action, scene), wanted in zip(SCENES.items(), row.ends, strict=True):
        played = play(scene, row.fault)
        wrong = list(played.wrong)
        if played.end != wanted:
            wrong.append(f"ends {played.end!r}, {LETTERS.get(played.end, 'not well at all')}; not {wanted!r}")
        if played.says and not row.says.search(played.says):
            wrong.append(f"does not say {row.says.pattern!r}: {played.says}")
        yield action, played, "; ".join(wrong)
