"""Requests to a machine's BMC. The BMC refuses a request by raising HardwareRejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reconciler.lab.hardware import bios
from reconciler.lab.hardware.installer_side import InstallerSide
from reconciler.lab.hardware.lifecycle import HardwareRejected, Rejection
from reconciler.lab.hardware.state import AttributeValue, FirmwareState, TaskState

BOOT_DEVICES = ("None", "Cd", "Hdd", "Pxe", "UefiHttp")
_TRANSPORT_FAULTS = ("bmc_unreachable", "bmc_hung", "bmc_503", "bmc_wrong_password", "bmc_garbage")


class BmcSide(InstallerSide):
    """`firmware_images`: URL -> {inventory id: version in it}. `registry`: the BIOS attributes of this machine."""

    registry: bios.Registry = bios.KNOWN
    firmware_images: Mapping[str, Mapping[str, str]] = {}
    _last_shown_power: str | None = None

    # --- the BMC itself ---

    def bmc_transport(self) -> str | None:
        """Return how this request must fail: unreachable | 503 | wrong_password | garbage, or None to answer it.

        Call it once per request: each call uses up one of the fault's `times`.
        """
        self.catch_up()
        if self.now < self.state.bmc_ready_at:
            return "unreachable"
        for kind in _TRANSPORT_FAULTS:
            if self.spend_fault(kind):
                return "unreachable" if kind == "bmc_hung" else kind.removeprefix("bmc_")
        return None

    @property
    def bmc_up(self) -> bool:
        self.catch_up()
        return self.now >= self.state.bmc_ready_at and not {"bmc_unreachable", "bmc_hung"} & self.state.faults.keys()

    @property
    def shown_identity(self) -> tuple[str, str]:
        """Return the serial and the UUID that Redfish shows."""
        wrong = self.fault("wrong_machine")
        if wrong is None:
            return self.state.serial, self.state.uuid
        serial = str(wrong["serial"]) or "X" + self.state.serial[1:]
        return serial, f"ffffffff{self.state.uuid[8:]}"

    def shown_power(self) -> str:
        """Return the power state that one read shows. Call it once per read: each call uses up a fault's `times`."""
        self.catch_up()
        before = self._last_shown_power
        if before in (None, self.state.power) or not self.spend_fault("stale_power"):
            before = self._last_shown_power = self.state.power
        return before

    def reset_bmc(self) -> None:
        """Restart the BMC. The machine keeps running; sessions, media and unfinished updates are lost."""
        self.catch_up()
        self._restart_bmc()

    def _restart_bmc(self) -> None:
        state = self.state
        state.bmc_ready_at = self.now + self.timings.bmc_restart_s
        state.bmc_boots += 1
        state.faults.pop("bmc_hung", None)
        state.media = None
        if self.fault("subscriptions_lost") is not None:
            state.subscriptions.clear()
        for task in state.tasks.values():
            if task.state == "Running":
                self._timers.drop(f"task {task.id}")
                task.state = "Exception"
                task.messages.append("The BMC restarted during the update.")
        self._timers.at(state.bmc_ready_at, "bmc", lambda: self._consume_staged("bmc_reset"))

    def takes_password(self) -> bool:
        """Return whether the BMC takes a new password that it accepts. One that dies in its midst has taken it."""
        self.catch_up()
        how = (self.spend_fault("password_change") or {}).get("how")
        if how == "dies":
            self._restart_bmc()
        return how != "ignored"

    def unsubscribe(self, context: str) -> int:
        """Delete the event subscriptions whose Context begins so; return how many there were."""
        self.catch_up()
        found = [id_ for id_, one in self.state.subscriptions.items() if str(one.get("Context")).startswith(context)]
        for id_ in found:
            del self.state.subscriptions[id_]
        return len(found)

    def set_indicator(self, lit: bool) -> None:
        self.catch_up()
        if self.state.indicator is None:
            raise HardwareRejected(Rejection.UNSUPPORTED, "this machine has no locator LED")
        self.state.indicator = lit
        self._touch()

    # --- power ---

    def power(self, action: str) -> None:
        """Change power: on | graceful_off | force_off | graceful_restart | force_restart | power_cycle."""
        self.catch_up()
        orders: Mapping[str, Callable[[], None]] = {
            "on": self._order_on,
            "graceful_off": lambda: self._order_shutdown(self._power_off),
            "force_off": self._order_force_off,
            "graceful_restart": lambda: self._order_shutdown(lambda: self._enter_post(cold=False)),
            "force_restart": self._order_force_restart,
            "power_cycle": self._order_cycle,
        }
        if action not in orders:
            raise HardwareRejected(Rejection.UNSUPPORTED, f"no such reset type: {action}")
        if action != "on" and self.state.power == "off":
            raise HardwareRejected(Rejection.CONFLICT, "the system is already off")
        if action == "on" and self.state.power != "off":
            raise HardwareRejected(Rejection.CONFLICT, "the system is already on")
        if not self.spend_fault("power_ignored"):
            orders[action]()
        self._touch()

    def ac_cycle(self) -> None:
        """Remove mains power briefly: everything restarts, the BMC too, and all staged firmware becomes active."""
        self.set_mains(on=False)
        self.set_mains(on=True)

    def set_mains(self, *, on: bool) -> None:
        """Take the power at the outlets, or give it again: the machine is then as it was before (on or off)."""
        self.catch_up()
        state = self.state
        if state.mains is on:
            return
        state.mains = on
        if not on:
            state.on_before_cut, state.mains_lost = state.power != "off", True
            if state.on_before_cut:
                self._power_off()
            state.bmc_ready_at = float("inf")
            state.counters.cuts += 1
            return
        self._restart_bmc()
        self._consume_staged("ac_cycle", "power_cycle", "reboot", "bmc_reset")
        if state.on_before_cut:
            self._power_on()

    def _order_on(self) -> None:
        state = self.state
        window = self.fault("power_on_conflict")
        if window is not None and self.now - state.powered_off_at < float(window["seconds"]):
            raise HardwareRejected(Rejection.CONFLICT, "the system is still powering off")
        self._power_on()

    def _order_force_off(self) -> None:
        self.state.power = "powering_off"
        self._stop_system()
        self._timers.at(self.now + self.timings.power_off_s, "shutdown", self._power_off)

    def _order_force_restart(self) -> None:
        if self.state.power != "on":
            raise HardwareRejected(Rejection.CONFLICT, "the system is powering off")
        self._enter_post(cold=False)

    def _order_cycle(self) -> None:
        self._power_off()
        self._power_on()

    def _order_shutdown(self, then: Callable[[], None]) -> None:
        """Shut the system down. A hung system never ends (C3); one that is still booting ends at once."""
        system = self.state.os
        if system is None:
            then()
        elif not system.hung:
            system.stopping = True
            self._timers.at(self.now + self.timings.shutdown_s, "shutdown", then)

    # --- settings ---

    def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Stage values for the next POST, all or none. INVALID names those that are unknown or out of range (G1)."""
        self.catch_up()
        bad = tuple(
            name
            for name, value in attributes.items()
            if name not in self.registry or not self.registry[name].accepts(value)
        )
        if bad:
            raise HardwareRejected(Rejection.INVALID, f"not valid here: {', '.join(bad)}", bad)
        self.state.counters.bios_writes += 1
        if self.spend_fault("bios_write_ignored"):
            return
        pending = self.state.pending_bios
        pending.update(attributes)
        for name in [name for name, value in pending.items() if self.state.bios.get(name) == value]:
            del pending[name]
        self._touch()

    def clear_pending_bios(self) -> None:
        self.catch_up()
        self.state.pending_bios.clear()
        self._touch()

    def _reset_bios(self) -> None:
        self.state.bios = bios.defaults(self.registry)

    def set_secure_boot(self, enabled: bool) -> None:
        """Stage secure boot for the next POST."""
        self.catch_up()
        self.state.pending_secure_boot = None if enabled == self.state.secure_boot else enabled
        self._touch()

    def set_boot_order(self, order: Sequence[str]) -> None:
        """Set the boot order at once. `order` must be a permutation of the present entries."""
        self.catch_up()
        if sorted(order) != sorted(self.state.boot_order):
            raise HardwareRejected(Rejection.INVALID, f"the boot entries are {', '.join(self.state.boot_order)}")
        self.state.boot_order = list(order)
        self._touch()

    def set_boot_override(self, target: str, enabled: str) -> None:
        """Set the boot override. `enabled`: Once | Disabled. Refused during POST (A8)."""
        self.catch_up()
        state = self.state
        if state.phase == "post":
            raise HardwareRejected(Rejection.IN_POST, "unable to modify during system POST")
        if target not in BOOT_DEVICES or enabled not in ("Once", "Disabled"):
            raise HardwareRejected(Rejection.INVALID, f"no boot override {target!r} {enabled!r}")
        ignored = self.fault("boot_override_ignored")
        if ignored is not None and ignored["when"] == "write":
            self.spend_fault("boot_override_ignored")
            return
        on = enabled == "Once" and target != "None"
        stays = "Continuous" if self.fault("boot_override_stays") is not None else "Once"
        state.boot_override, state.boot_override_enabled = (target, stays) if on else ("None", "Disabled")
        self._touch()

    def set_http_boot_uri(self, url: str | None) -> None:
        self.catch_up()
        if not self.state.http_boot or self.state.http_attribute:
            raise HardwareRejected(Rejection.UNSUPPORTED, "no boot from an HTTP URI")
        self.state.http_boot_uri = url
        self._touch()

    # --- virtual media ---

    @property
    def shown_media(self) -> str | None:
        """Return the URL of the medium that Redfish shows as inserted."""
        stale = self.fault("stale_media")
        return self.state.media if stale is None else str(stale["url"])

    def insert_media(self, url: str) -> None:
        self.catch_up()
        self._check_media()
        if self.shown_media is not None:
            raise HardwareRejected(Rejection.CONFLICT, "a medium is inserted already; eject it first")
        if not url.startswith(("http://", "https://")) or "?" in url or "=" in url:
            raise HardwareRejected(Rejection.INVALID, f"can't mount {url!r}", ("Image",))
        self.state.media = url
        self._touch()

    def eject_media(self) -> None:
        """Eject the medium; without one, do nothing. An installer that runs from it loses its file system (E1)."""
        self.catch_up()
        self._check_media()
        self.state.faults.pop("stale_media", None)
        if self.state.media is not None:
            self._medium_went()
        self.state.media = None
        self._touch()

    def _check_media(self) -> None:
        if not self.state.has_media:
            raise HardwareRejected(Rejection.UNSUPPORTED, "no virtual media")

    # --- firmware ---

    def start_update(self, inventory_id: str, image_uri: str) -> str:
        """Flash one component and return the task's id. `firmware_images` says which version the image holds."""
        self.catch_up()
        state = self.state
        item = state.firmware.get(inventory_id)
        if item is None:
            raise HardwareRejected(Rejection.ABSENT, f"no firmware {inventory_id!r}")
        if any(task.state == "Running" for task in state.tasks.values()):
            raise HardwareRejected(Rejection.BUSY, "another update is in progress")
        version = self.firmware_images.get(image_uri, {}).get(inventory_id, "")
        state.tasks_started += 1
        number = str(state.tasks_started)
        took = item.minutes * 60 * self.timings.firmware_scale if version else 5.0
        state.tasks[number] = TaskState(number, inventory_id, version, self.now, self.now + took)
        task = state.tasks[number]
        self._timers.at(task.ends, f"task {number}", lambda: self._end_update(task))
        self._touch()
        return number

    def task(self, number: str) -> TaskState | None:
        """Return a task, or None when the BMC does not know it or has forgotten it (A5)."""
        self.catch_up()
        return None if self.fault("firmware_task_lost") else self.state.tasks.get(number)

    def tasks(self) -> list[TaskState]:
        self.catch_up()
        return [] if self.fault("firmware_task_lost") else list(self.state.tasks.values())

    def _end_update(self, task: TaskState) -> None:
        item = self.state.firmware[task.inventory_id]
        lost = self.spend_fault("firmware_task_lost")
        if lost is not None:
            del self.state.tasks[task.id]
        self._touch()
        failed = self.spend_fault("firmware_fails") is not None or not task.target_version
        if failed or (lost is not None and not lost["flashed"]):
            task.state = "Exception"
            task.messages.append("The image does not fit this component." if failed else "The update was lost.")
            self._log("Warning", f"Update of {item.inventory_id} failed")
            return
        task.state = "Completed"
        task.messages.append("The update completed.")
        self._flashed(item, task.target_version)

    def _flashed(self, item: FirmwareState, version: str) -> None:
        self.state.counters.flashes += 1
        item.staged = version
        self._consume_staged("immediate")
        if item.component == "bmc" and item.staged is not None:
            self._restart_bmc()  # a BMC restarts by itself to run its new firmware
