"""For every action of the catalogue a node that needs it, and the effects of an undisturbed run on that node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DESTRUCTIVE = ("power_cycles", "boots", "writes", "installs", "flashes", "overwritten_drives", "killed_work")


@dataclass(frozen=True)
class Case:
    """`done`: nonzero counters of an undisturbed run. `staged`: NIC firmware waits for a BMC reset."""

    name: str
    action: str
    target: str = ""
    drift: tuple[Any, ...] = ()
    faults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    persona: str = "training"
    staged: bool = False
    time_scale: float = 120.0
    done: Mapping[str, int] = field(default_factory=dict)

    @property
    def play(self) -> dict[str, Any]:
        return {"drift": list(self.drift), "faults": {kind: dict(given) for kind, given in self.faults.items()}}

    @property
    def counters(self) -> dict[str, int]:
        return {name: self.done.get(name, 0) for name in DESTRUCTIVE}


def _firmware(component: str) -> tuple[Any, ...]:
    return ({"old_firmware": {"component": component}},)


_RESTART = {"boots": 1}
_CYCLE = {"boots": 1, "power_cycles": 1}
_FLASH_BIOS = {"boots": 1, "flashes": 1}
_FLASH_NIC = {"boots": 1, "power_cycles": 1, "flashes": 1}
_IN_PLACE = {"boots": 1, "installs": 1, "writes": 1}
_INSTALL = {"boots": 2, "power_cycles": 2, "installs": 1, "writes": 1}

CASES = (
    Case("mark", "mark", drift=("bios_off",), done=_RESTART),
    Case("drain", "drain", drift=("bios_off",), done=_RESTART),
    Case("set_bios", "set_bios", drift=("bios_off",), done=_RESTART),
    Case("set_boot", "set_boot", drift=("wrong_boot_order", "secure_boot_off"), done=_RESTART),
    Case("update_firmware:bmc", "update_firmware", "bmc", drift=_firmware("bmc"), done={"flashes": 1}),
    Case("update_firmware:bios", "update_firmware", "bios", drift=_firmware("bios"), done=_FLASH_BIOS),
    Case("update_firmware:nic0", "update_firmware", "nic0", drift=_firmware("nic0"), done=_FLASH_NIC),
    Case("reset_bmc", "reset_bmc", drift=_firmware("nic0"), staged=True, done={"flashes": 1}),
    Case("restart_service", "restart_service", "nvidia-fabricmanager", faults={"fabric_manager": {}}),
    Case("gpu_reset", "gpu_reset", faults={"xid": {}}),
    Case("soft_restart", "soft_restart", drift=("bios_off",), done=_RESTART),
    Case("soft_restart, sick", "soft_restart", faults={"xid": {"code": 79, "heals": "boot"}}, done=_RESTART),
    Case("power_cycle", "power_cycle", drift=_firmware("nic0"), done=_FLASH_NIC),
    Case("power_cycle, sick", "power_cycle", faults={"xid_79": {}}, done={"boots": 2, "power_cycles": 1}),
    Case(
        "ac_cycle",
        "ac_cycle",
        faults={"xid": {"code": 79, "heals": "ac"}},
        done={"boots": 3, "power_cycles": 2},
        time_scale=60.0,
    ),
    Case("power_on", "power_on", drift=("powered_off",), done=_CYCLE),
    # The next run starts while the installer still asks for its document.
    Case("reimage", "reimage", drift=("old_image", "no_zstd"), done=_INSTALL, time_scale=20.0),
    Case("reimage:slot", "reimage", "slot", drift=("old_image",), done=_IN_PLACE),
    Case("configure_host", "configure_host", drift=("sysctl_off", "service_stopped", "wrong_hostname")),
    Case("configure_host, joins", "configure_host", drift=("not_a_member",), persona="joining"),
    Case("join", "join", drift=("not_a_member",)),
    Case("run_gate", "run_gate"),
    Case("set_gpu_mode", "set_gpu_mode", drift=("wrong_mig",)),
    Case("set_gpu_mode:off", "set_gpu_mode", "off", persona="inference"),
    Case("set_gpu_mode, MIG", "set_gpu_mode", drift=("wrong_mig",), persona="inference"),
    Case("set_labels", "set_labels", drift=("missing_label",)),
    Case("admit", "admit"),
)
