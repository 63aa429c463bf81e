"""One machine of the lab: the whole public API of the hardware model.

    machine = Machine(state, clock)          clock: seconds that only grow
    machine.power("on"); machine.stage_bios({...}); machine.start_update("BMC", url); ...     requests to the BMC
    machine.set_hostname("n1"); machine.service_set("kubelet", active=True); machine.reboot()  commands to the host
    machine.bmc_transport(), machine.ssh_transport(), machine.kubelet_ready                   state that servers report
    machine.inject("xid_79", gpu=3); machine.clear()                                          faults

Servers read `machine.state` after any call, or after `catch_up()`. `lifecycle` (events over
time), `bmc_side` and `host_side` hold the rules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from reconciler.lab.hardware import bios, kernel_log, parts
from reconciler.lab.hardware.bmc_side import BmcSide
from reconciler.lab.hardware.error_counters import COUNTERS
from reconciler.lab.hardware.faults import FaultValue, parse_fault
from reconciler.lab.hardware.gpu_cells import CELLS
from reconciler.lab.hardware.host_side import HostSide
from reconciler.lab.hardware.in_place_side import InPlaceSide
from reconciler.lab.hardware.install_document import FRESH_SERVICES
from reconciler.lab.hardware.installer_side import Serve
from reconciler.lab.hardware.lifecycle import KERNEL_DEFAULTS, HardwareRejected, Rejection
from reconciler.lab.hardware.remedies import INSTALL, LEVELS, clear_ecc
from reconciler.lab.hardware.slowness import THROTTLES, show_brake
from reconciler.lab.hardware.spdm import LIES as SPDM_LIES
from reconciler.lab.hardware.spdm import SpdmSide
from reconciler.lab.hardware.state import GpuState, MachineState
from reconciler.lab.hardware.telemetry import SYSTEMS
from reconciler.lab.hardware.timings import TYPICAL, Timings
from reconciler.lab.hardware.tpm import LIES
from reconciler.lab.pair_network import PairNetwork
from reconciler.model.maintenance import OPERATORS
from reconciler.model.observed import BmcEvent
from reconciler.model.vocab import Health

__all__ = ["HardwareRejected", "Machine", "Rejection", "Timings"]


class Machine(BmcSide, InPlaceSide, SpdmSide, HostSide):
    def __init__(
        self,
        state: MachineState,
        clock: Callable[[], float],
        timings: Timings = TYPICAL,
        rng: random.Random | None = None,
        serve: Serve | None = None,
        *,
        firmware_images: Mapping[str, Mapping[str, str]] | None = None,
        registry: bios.Registry = bios.KNOWN,
        kernel_sysctls: Mapping[str, str] = KERNEL_DEFAULTS,
    ) -> None:
        super().__init__(state, clock, timings, rng, kernel_sysctls=kernel_sysctls)
        self.serve = serve
        self.firmware_images = firmware_images or {}
        self.registry = registry
        self.network: PairNetwork | None = None  # None: no traffic leaves the machine
        self.copied_from: Mapping[str, Machine] = {}  # machines by the address from which others copy their data

    @property
    def name(self) -> str:
        return self.state.name

    def has_http_device(self, attribute: str) -> None:
        """Give the machine the BIOS attributes of a boot from a URI: Dell's device 1 is on and has none (iDRAC9)."""
        new = {attribute: bios.BiosAttribute("")}
        if attribute.startswith("HttpDev1"):
            new["HttpDev1EnDis"] = bios.BiosAttribute("Enabled", ("Enabled", "Disabled"))
        self.registry = {**self.registry, **new}
        self.state.bios = {**bios.defaults(new), **self.state.bios}
        self.state.http_boot, self.state.http_attribute = True, attribute

    def inject(self, kind: str, **parameters: FaultValue) -> None:
        """Start a fault, replacing an active one of its kind. Raise ValueError for an unknown kind or parameter."""
        self.catch_up()
        complete = parse_fault(kind, parameters)
        if "gpu" in complete and not 0 <= int(complete["gpu"]) < len(self.state.gpus):
            raise ValueError(f"{self.name} has no GPU {complete['gpu']}")
        self._check_parts(kind, complete)
        if kind == parts.FAILED:
            parts.check(self.state, str(complete["part"]), int(complete["index"]), str(complete["how"]))
        if complete["heals"] == "reset" and "gpu" not in complete:
            raise ValueError(f"{kind} is no fault of a GPU, so no reset of GPUs heals it")
        self.state.faults[kind], self.state.fault_since[kind] = complete, self.now
        if kind == "subscriptions_lost":
            self.state.subscriptions.clear()
        self._apply_fault(kind)

    def _check_parts(self, kind: str, given: Mapping[str, FaultValue]) -> None:
        """Raise ValueError when a fault names a part that this machine lacks, or a value that the part can't have."""
        known: tuple[tuple[str, Collection[object]], ...] = (
            ("cell", CELLS),
            ("event", kernel_log.EVENTS),
            ("port", range(len(parts.rdma_ports(self.state)))),
            ("lie", SPDM_LIES if kind == "spdm" else LIES),
            ("by", THROTTLES),
            ("operator", [operator.group for operator in OPERATORS]),
            ("heals", ("", *LEVELS, INSTALL)),
            ("drive", range(len(self.state.drives))),
            ("counter", COUNTERS),
            ("system", SYSTEMS),
            ("health", ("Warning", "Failure")),
            ("service", FRESH_SERVICES),
        )
        for name, values in known:
            if name in given and given[name] not in values:
                raise ValueError(f"{self.name} has no {name} {given[name]!r}; there are {', '.join(map(str, values))}")

    def clear(self, kind: str | None = None) -> None:
        """End one fault, or all, and repair what it did to the hardware."""
        self.catch_up()
        if kind is not None:
            parse_fault(kind, {})
        ended = list(self.state.faults) if kind is None else [kind]
        for name in ended:
            if (fault := self.state.faults.pop(name, None)) is not None:
                self._repair(name, fault)

    def end_fault(self, kind: str) -> None:
        """End a fault by a remedy, which exchanges no part and clears no log."""
        fault = self.state.faults.pop(kind)
        if kind != parts.FAILED:
            self._repair(kind, fault)
        self._touch()

    def exchange(self, part: str, index: int) -> None:
        """Have a technician put another part in place of one: psu, fan, drive, dimm, gpu, nic, mainboard, from 0.

        The faults of the part go with it. Raise ValueError while the machine is on, for what is not hot-plugged.
        """
        self.catch_up()
        parts.exchange(self.state, part, index)
        for kind, given in list(self.state.faults.items()):
            if parts.of_part(kind, given, part, index):
                del self.state.faults[kind]
        self._touch()

    def _repair(self, kind: str, fault: Mapping[str, FaultValue]) -> None:
        for gpu in self.state.gpus:
            _repair_gpu(gpu, kind)
        if kind == "throttle":
            show_brake(self.state, on=False)
        if kind == "service_dead" and self.state.os is not None:
            self.state.os.services_active[str(fault["service"])] = True
        if kind == "port":
            parts.repair_ports(self.state)
        if kind == "drive":
            parts.repair_drives(self.state)
        if kind == "kernel_event" and self.state.os is not None:
            lines = {kernel_log.line_of(fault), *(line for _, line in kernel_log.EVENTS.values())}
            self.state.os.kernel_log = [line for line in self.state.os.kernel_log if line not in lines]
        if kind == parts.FAILED:
            parts.swap(self.state, fault)
            self._touch()
        if kind == "host_hung" and self.state.os is not None:
            self.state.os.hung = False
        if kind == "post_hang" and self.state.phase == "post" and self.next_due() is None:
            self._timers.at(self.now + self.timings.post_s, "phase", self._end_post)

    def recall_events(self, events: Iterable[BmcEvent], read_s: float) -> None:
        """Copy the BMC's event log as read elsewhere `read_s` seconds ago, without resolved entries."""
        words = {Health.WARNING: "Warning", Health.CRITICAL: "Critical"}
        self.state.events = [
            {
                "id": event.id, "at": self.now - read_s - (event.age_s or 0.0), "message": event.message,
                "severity": words.get(event.severity or Health.OK, "OK"),
            }
            for event in events if not event.settled
        ]  # fmt: skip

    def dump(self) -> dict[str, Any]:
        """Return the whole state as JSON values, for `lab state`."""
        self.catch_up()
        return asdict(self.state) | {
            "bmc_up": self.bmc_up,
            "ssh_up": self.ssh_up,
            "kubelet_ready": self.kubelet_ready,
            "powered_off_at": None if self.state.powered_off_at == float("-inf") else self.state.powered_off_at,
        }


def _repair_gpu(gpu: GpuState, kind: str) -> None:
    if kind == "xid_79":
        gpu.lost = False
    elif kind == "ecc_errors":
        clear_ecc(gpu)
    elif kind == "nvlink_down":
        gpu.nvlinks_down = 0
    elif kind == "nvlink_slow":
        gpu.nvlinks_slow = 0
    elif kind in ("gpu_cell", "fabric_manager"):
        gpu.cells.clear()
