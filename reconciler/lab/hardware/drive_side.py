"""Erasing drives: sanitizes that go on by themselves after a loss of power, and erases that the BMC is asked for."""

from __future__ import annotations

import hashlib

from reconciler.lab.hardware import bios
from reconciler.lab.hardware.lifecycle import HardwareRejected, Lifecycle, Rejection
from reconciler.lab.hardware.state import DriveState, TaskState

BLOCK_ERASE, CRYPTO_ERASE = 2, 4  # Sanitize Action
_CAN = {BLOCK_ERASE: 2, CRYPTO_ERASE: 1}  # action -> its bit in sanicap
_TAKES_S = {BLOCK_ERASE: 600.0, CRYPTO_ERASE: 20.0}
_BMC_TAKES_S = 900.0


class DriveSide(Lifecycle):
    # --- sanitize ---

    def sanitize(self, drive: DriveState, action: int) -> None:
        """Begin a sanitize, which no power cycle ends. INVALID: the drive can't; BUSY: one runs."""
        self.catch_up()
        if not drive.sanicap & _CAN.get(action, 0):
            raise HardwareRejected(Rejection.INVALID, "Invalid Field in Command")
        if drive.sanitize_status == 2:
            raise HardwareRejected(Rejection.BUSY, "Sanitize In Progress")
        drive.sanitizes += 1
        drive.sanitize_status, drive.sanitize_s = 2, _TAKES_S[action] * self.timings.firmware_scale
        self._go_on_erasing(drive)

    def sanitize_progress(self, drive: DriveState) -> int:
        """Return the progress as the log has it, of 65536."""
        if drive.sanitize_status != 2:
            return 0xFFFF
        return min(0xFFFE, int(65536 * (self.now - drive.sanitize_began) / max(drive.sanitize_s, 1.0)))

    def sanitize_log(self, drive: DriveState) -> bytes:
        """Return the log page of a drive's sanitizes."""
        status = drive.sanitize_status | (0x100 if drive.sanitize_status == 1 and not drive.holds else 0)
        action = 0 if not drive.sanitizes else 2
        numbers = ((self.sanitize_progress(drive), 2), (status, 2), (action, 4), (0xFFFFFFFF, 4), (600, 4), (20, 4))
        return b"".join(number.to_bytes(size, "little") for number, size in numbers).ljust(512, b"\0")

    @staticmethod
    def content(drive: DriveState, skip: int, count: int) -> bytes:
        """Return what is on a drive."""
        if not drive.holds:
            return bytes(count)
        return (hashlib.sha256(f"{drive.serial} {skip}".encode()).digest() * (count // 32 + 1))[:count]

    def _go_on_erasing(self, drive: DriveState) -> None:
        drive.sanitize_began = self.now
        self._timers.at(self.now + drive.sanitize_s, f"sanitize {drive.serial}", lambda: self._sanitized(drive))

    def _sanitized(self, drive: DriveState) -> None:
        drive.sanitize_status = 3 if self.spend_fault("sanitize_fails") else 1
        if drive.sanitize_status == 1:
            self.wipe(drive)

    def wipe(self, drive: DriveState) -> None:
        """Destroy all data on a drive; a system that runs from it hangs."""
        if self.spend_fault("erase_lies"):
            return
        drive.holds = False
        self.state.disks.pop(drive.serial, None)
        if self.state.booted_disk == drive.serial and self.state.os is not None:
            self.state.os.hung = True

    def _power_off(self) -> None:
        super()._power_off()
        for drive in self.state.drives:
            if drive.sanitize_status == 2:
                self._timers.drop(f"sanitize {drive.serial}")
                drive.sanitize_s = max(drive.sanitize_s - (self.now - drive.sanitize_began), 1.0)

    def _power_on(self) -> None:
        super()._power_on()
        for drive in self.state.drives:
            if drive.sanitize_status == 2:
                self._go_on_erasing(drive)

    # --- by the BMC ---

    def secure_erase(self, serial: str) -> str:
        """Begin to erase a drive by the BMC, and return the number of its task."""
        self.catch_up()
        drive = next((drive for drive in self.state.drives if drive.serial == serial), None)
        if drive is None:
            raise HardwareRejected(Rejection.ABSENT, f"no drive {serial}")
        if not drive.bmc_erases:
            raise HardwareRejected(Rejection.UNSUPPORTED, "the BMC can't erase drives")
        self.state.tasks_started += 1
        number = str(self.state.tasks_started)
        ends = self.now + _BMC_TAKES_S * self.timings.firmware_scale
        task = self.state.tasks[number] = TaskState(number, "", "", self.now, ends, drive=serial)
        drive.sanitizes += 1
        self._timers.at(ends, f"task {number}", lambda: self._end_erase(task, drive))
        return number

    def _end_erase(self, task: TaskState, drive: DriveState) -> None:
        failed = self.spend_fault("sanitize_fails") is not None
        task.state = "Exception" if failed else "Completed"
        if not failed:
            self.wipe(drive)

    # --- TPM ---

    def _end_post(self) -> None:
        """Carry out what the BIOS was told to do once."""
        super()._end_post()
        if self.state.bios.get(bios.TPM) == bios.TPM_CLEAR:
            self.state.bios[bios.TPM] = bios.TPM_IDLE
            self.state.counters.tpm_clears += 1
