"""Power, POST, boot and installer of one machine: the events that happen as time passes.

Sans-I/O: nothing runs in the background. Every public method first calls `catch_up`, which plays all events due until
now, each at its own time, so that a machine nobody has read for an hour still gets the events of that hour.

    off --on--> post --+--> os_booting --> os_running --reboot--> post
                       +--> installer --(image written, or given up)--> off
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from reconciler.lab.hardware import kernel_log, parts, remedies
from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.slowness import show_brake
from reconciler.lab.hardware.state import DiskImage, GpuState, MachineState, OsState, of_nvidia
from reconciler.lab.hardware.timers import Timers
from reconciler.lab.hardware.timings import TYPICAL, Timings

FAILED_TRIES = 3  # boots of an image until systemd-boot takes the other one
KERNEL_DEFAULTS = {"vm.swappiness": "60", "kernel.numa_balancing": "1", "net.core.rmem_max": "212992"}


class Rejection(StrEnum):
    """Why hardware refuses a request. Servers turn it into a status code or a DriverError."""

    CONFLICT = "conflict"  # already in the requested state, or just leaving it (A7)
    IN_POST = "in_post"  # not while the machine is in POST (A8)
    BUSY = "busy"  # another operation is running
    INVALID = "invalid"  # a value that this hardware does not accept (G1)
    ABSENT = "absent"  # this machine has no such part, unit or entry
    UNSUPPORTED = "unsupported"


class HardwareRejected(Exception):
    """Hardware refused a request. `about`: the refused names, such as BIOS attributes."""

    def __init__(self, reason: Rejection, detail: str, about: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.about = about


class Lifecycle:
    """`clock`: monotonic seconds."""

    def __init__(
        self,
        state: MachineState,
        clock: Callable[[], float],
        timings: Timings = TYPICAL,
        rng: random.Random | None = None,
        *,
        kernel_sysctls: Mapping[str, str] = KERNEL_DEFAULTS,
    ) -> None:
        self.state = state
        self.timings = timings
        self.rng = rng or random.Random(state.name)  # noqa: S311  identifiers of a lab, not secrets
        self.gpu_clients: Callable[[], bool] = lambda: False  # whether pods use the GPUs; the cluster sets it
        self._kernel_sysctls = kernel_sysctls
        self._clock = clock
        self._timers = Timers()
        self._playing: float | None = None
        self._cold = False
        self.dirty: set[str] | None = None  # names of machines that may have changed; this one adds its own

    # --- time ---

    @property
    def now(self) -> float:
        """Return the machine's time: the played event's own time, otherwise the clock's."""
        return self._clock() if self._playing is None else self._playing

    def catch_up(self) -> None:
        """Play all due events in order."""
        if self._playing is not None:
            return
        if self.dirty is not None:
            self.dirty.add(self.state.name)
        if not self._timers:
            return
        until = self._clock()
        while (due := self._timers.pop_due(until)) is not None:
            self._playing, play = due
            try:
                play()
            finally:
                self._playing = None

    def next_due(self) -> float | None:
        """Return the time of the next event, or None."""
        self.catch_up()
        return self._timers.next_due()

    # --- faults ---

    def fault(self, kind: str) -> Mapping[str, FaultValue] | None:
        """Return the parameters of an active fault."""
        return self.state.faults.get(kind)

    def spend_fault(self, kind: str) -> Mapping[str, FaultValue] | None:
        """Return the parameters of an active fault and use up one of its `times`."""
        parameters = self.state.faults.get(kind)
        if parameters is None:
            return None
        left = int(parameters.get("times", 0))
        if left == 1:
            del self.state.faults[kind]
        elif left > 1:
            self.state.faults[kind] = {**parameters, "times": left - 1}
        return parameters

    # --- shared by all parts ---

    def _touch(self) -> None:
        self.state.etag += 1

    def _log(self, severity: str, message: str) -> None:
        """Add an entry to the BMC's event log."""
        events = self.state.events
        events.append({"id": str(len(events) + 1), "at": self.now, "severity": severity, "message": message})

    def _enter(self, phase: str) -> None:
        self.state.phase = phase
        self.state.phase_since = self.now
        self._touch()

    # --- power ---

    def _power_off(self) -> None:
        self._stop_system()
        self.state.power = "off"
        self.state.powered_off_at = self.now
        self._enter("off")
        self._log("OK", "System power off")

    def _power_on(self) -> None:
        self.state.power = "on"
        self.state.counters.power_cycles += 1
        self._log("OK", "System power on")
        self._enter_post(cold=True)

    def _stop_system(self) -> None:
        """End the running system or installer, and all flashes but the BMC's own."""
        if self.state.os is not None and self.gpu_clients():
            self.state.counters.killed_work += 1
        for timer in ("phase", "shutdown", "in_place"):
            self._timers.drop(timer)
        self.state.os = None
        self.state.in_place = None
        self.state.booted_disk = None
        self.state.installer = None
        for task in self.state.tasks.values():
            if task.state == "Running" and not task.drive and self.state.firmware[task.inventory_id].component != "bmc":
                self._timers.drop(f"task {task.id}")
                task.state = "Exception"
                task.messages.append("The update was interrupted by a power state change.")

    # --- POST and boot ---

    def _enter_post(self, *, cold: bool) -> None:
        self._stop_system()
        self._cold = self._cold or cold
        self.state.counters.boots += 1
        self._enter("post")
        if self.spend_fault("post_hang"):
            self._log("Critical", "System firmware progress: hang in POST")
            return
        self._timers.at(self.now + self.timings.post_s, "phase", self._end_post)

    def _end_post(self) -> None:
        self._consume_staged("reboot", *(("power_cycle",) if self._cold else ()))
        state = self.state
        state.bios.update(state.pending_bios)
        state.pending_bios.clear()
        if state.pending_secure_boot is not None:
            state.secure_boot, state.pending_secure_boot = state.pending_secure_boot, None
        self._repair_at_boot(cold=self._cold)
        self._cold = False
        device = self._take_override()
        medium = None if self.fault("stale_media") else state.media
        uri = state.bios.get(state.http_attribute) if state.http_attribute else state.http_boot_uri
        pxe = state.pxe_url.format(mac=next((nic.mac for nic in state.nics if not nic.rdma), ""))
        source = {"Cd": medium, "UefiHttp": uri, "Pxe": pxe}.get(device or "")
        if source:
            self._boot_installer(str(source))
            return
        self._boot_disk()

    def _take_override(self) -> str | None:
        state = self.state
        if state.boot_override_enabled == "Continuous":
            return state.boot_override
        if state.boot_override_enabled != "Once":
            return None
        device, state.boot_override, state.boot_override_enabled = state.boot_override, "None", "Disabled"
        ignored = self.fault("boot_override_ignored")
        if ignored is not None and ignored["when"] == "boot":
            self.spend_fault("boot_override_ignored")
            return None
        return device

    def _bootable(self) -> str | None:
        """Return the drive that the firmware boots from: its boot entry, else the first one with an image."""
        state = self.state
        if "Hdd" not in state.boot_order:
            return None
        if state.boot_disk in state.disks and not self.fault("wrong_boot_disk"):
            return state.boot_disk
        return next((drive.serial for drive in state.drives if drive.serial in state.disks), None)

    def _boot_disk(self) -> None:
        drive = self._bootable()
        self._enter("os_booting")
        if drive is None:
            self._log("Critical", "No bootable device")  # it waits for a power action
            return
        tries = 1 if self._selects_slot(drive) else 1 + FAILED_TRIES
        self._timers.at(self.now + self.timings.os_boot_s * tries, "phase", lambda: self._run_os(drive))

    def _selects_slot(self, drive: str) -> bool:
        """Let the slot boot that was installed last. Return False when the boot loader falls back to the other one."""
        state = self.state
        if drive not in state.next_slots:
            return not self._fails_later(drive)
        state.next_slots.remove(drive)
        state.disks[drive].newest = False  # a boot copies the records to /etc
        fault = self.fault("slot_fails")
        if fault is not None and not fault["later"]:
            self.spend_fault("slot_fails")
            self._log("Critical", "An image did not come up three times; the boot loader fell back")
            return False
        self._change_slots(drive)
        return True

    def _change_slots(self, drive: str) -> None:
        """Boot the other slot. What is on partitions beside the slots is there for both."""
        state = self.state
        running, idle = state.disks[drive], state.idle_slots[drive]
        own = idle.files.keys() - idle.on_partitions().keys()
        idle.files = {path: idle.files[path] for path in own} | running.on_partitions()
        state.disks[drive], state.idle_slots[drive] = idle, running

    def _fails_later(self, drive: str) -> bool:
        """Let an image that came up before fail to boot, where there is another slot to fall back to."""
        state, fault = self.state, self.fault("slot_fails")
        if fault is None or not fault["later"] or drive not in state.idle_slots:
            return False
        self.spend_fault("slot_fails")
        self._log("Critical", "An image did not come up three times; the boot loader fell back")
        self._change_slots(drive)
        return True

    def publish_slot(self, drive: str, image: DiskImage) -> None:
        """Put an image into the slot that is not in use, to be booted next."""
        self.state.idle_slots[drive] = image
        self.state.next_slots.append(drive)

    def _run_os(self, drive: str) -> None:
        state = self.state
        disk = state.disks[drive]
        state.os = OsState(
            boot_id=str(uuid.UUID(int=self.rng.getrandbits(128), version=4)),
            booted_at=self.now,
            hostname=disk.hostname,
            sysctls={**self._kernel_sysctls, **disk.sysctls},
            services_active=dict(disk.services),
            service_since={name: self.now for name, enabled in disk.services.items() if enabled},
            kernel_log=kernel_log.driver_loaded(disk.driver, 4 if len(of_nvidia(state.gpus)) > 4 else 0),
        )
        state.booted_disk = drive
        for gpu in state.gpus:
            gpu.mig_enabled = gpu.mig_pending
            if self.fault("mig_lost_on_boot") or not gpu.mig_enabled:
                gpu.mig_instances.clear()
        for kind in list(state.faults):
            self._apply_fault(kind)
        self._enter("os_running")

    def start(self, power: str) -> None:
        """Set the initial state: running for a long time ("on"), "off", or in POST ("post")."""
        drive = self._bootable() if power == "on" else None
        self.state.power = "off" if power == "off" else "on"
        if power == "off":
            self._enter("off")
        elif power == "post":
            self._enter_post(cold=False)
        elif drive is None:
            self._boot_disk()
        else:
            self._run_os(drive)
            self._age_system(self.rng.uniform(86400, 30 * 86400))

    def _age_system(self, seconds: float) -> None:
        """Make the system look as if it had been running for so many seconds already."""
        system = self.state.os
        assert system is not None
        system.booted_at -= seconds
        for name in system.service_since:
            system.service_since[name] -= seconds

    # --- faults of the hardware itself ---

    def _repair_at_boot(self, *, cold: bool) -> None:
        """Undo the faults that a boot repairs: volatile counters always, dead devices only at a cold boot.

        A persistent fault stays.
        """
        faults = self.state.faults
        for gpu in self.state.gpus:
            remedies.clear_ecc(gpu)
            if cold:
                gpu.lost, gpu.nvlinks_down, gpu.nvlinks_slow = False, 0, 0
                gpu.cells.clear()
        for kind in remedies.ended(self.state, remedies.boot_level(self.state, cold=cold)):
            self.end_fault(kind)
        remedies.register(self.state)
        if cold:
            parts.repair_ports(self.state)
        repaired = ("ecc_errors", "host_hung", "node_condition", "kernel_event", "service_dead", "dcgm")
        for kind in (
            *repaired,
            *(("xid_79", "nvlink_down", "gpu_cell", "port", "flap", "error_counter") if cold else ()),
        ):
            if kind in faults and not faults[kind]["persistent"] and not faults[kind]["heals"]:
                del faults[kind]

    def end_fault(self, kind: str) -> None:
        """End a fault by a remedy; Machine, which knows what it did to the hardware, overrides this."""

    def _apply_fault(self, kind: str) -> None:
        """Make an active fault visible in the running system."""
        state, system = self.state, self.state.os
        parameters = state.faults[kind]
        if kind == parts.FAILED:
            self._touch()
            if parameters["how"] == "logged":
                self._log("Critical", f"Uncorrectable ECC @ DIMM{int(parameters['index']) + 1}")
        if system is None:
            return
        if kind == "host_hung":
            system.hung = True
        if kind == "service_dead":
            system.services_active[str(parameters["service"])] = False
        parts.record_errors(state, kind, self.now)
        if kind == "kernel_event":
            system.kernel_log.append(kernel_log.line_of(parameters))
        elif kind == "xid":
            remedies.show_xid(system, state.gpus[int(parameters["gpu"])], int(parameters["code"]))
        elif kind == "fabric_manager":
            remedies.show_fabric(state)
        elif kind == "throttle":
            show_brake(state, on=parameters["by"] == "power_brake")
        elif kind in ("port", "drive"):
            parts.break_port_or_drive(kind, state, parameters)
        elif kind in ("xid_79", "ecc_errors", "nvlink_down", "nvlink_slow", "gpu_cell"):
            self._apply_gpu_fault(kind, state.gpus[int(parameters["gpu"])], parameters, system)

    def _apply_gpu_fault(self, kind: str, gpu: GpuState, parameters: Mapping[str, Any], system: OsState) -> None:
        if kind == "xid_79":
            gpu.lost = True
            if parameters["logged"]:
                system.kernel_log += kernel_log.fallen_off_bus(gpu)
                self._log("Critical", f"GPU{gpu.index + 1} has fallen off the bus")
        elif kind == "ecc_errors":
            remedies.show_ecc(system, gpu, parameters)
        elif kind == "nvlink_slow":
            gpu.nvlinks_slow = int(parameters["links"])
        elif kind == "gpu_cell":
            gpu.cells[str(parameters["cell"])] = str(parameters["text"])
        else:
            gpu.nvlinks_down = int(parameters["links"])
            system.kernel_log += kernel_log.nvlink_error(gpu, gpu.nvlinks - 1)

    # --- staged firmware ---

    def _consume_staged(self, *activations: str) -> None:
        """Make staged firmware active if its activation is one of these."""
        for item in self.state.firmware.values():
            if item.staged is None or item.activation not in activations:
                continue
            item.version, item.staged = item.staged, None
            if item.component == "bios" and self.fault("bios_flash_resets"):
                self._reset_bios()
            self._log("OK", f"{item.inventory_id} now runs {item.version}")
            self._touch()

    def _reset_bios(self) -> None:
        """Restore the factory defaults; BmcSide, which holds the attributes, overrides this."""

    # --- installer ---

    def _boot_installer(self, medium: str) -> None:
        """Boot an installer from a medium; InstallerSide, which plays one, overrides this."""
