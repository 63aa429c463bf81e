"""The program that writes the other slot from a machine's running system: what it says, and what the disk has then."""

from __future__ import annotations

from reconciler.lab.hardware.install_document import InstallRefused, image_of, layout_of, target_drive
from reconciler.lab.hardware.installer_side import STEPS, InstallerSide
from reconciler.lab.hardware.state import DiskImage, InPlaceRun
from reconciler.model.install import InstallDocument, InstallPhase, InstallStatus, dump_contract

RATE = "800 MB/s"


class InPlaceSide(InstallerSide):
    """A reboot or a power cut ends the program where it is; a connection that is lost does not."""

    def start_in_place(self, document: InstallDocument) -> None:
        """Start the program. One that still runs is ended."""
        self._timers.drop("in_place")
        self.state.in_place = InPlaceRun(document.nonce)
        self._say(InstallPhase.STARTED)
        self._timers.at(self.now + 1.0, "in_place", lambda: self._check(document))

    def stop_in_place(self) -> None:
        self._timers.drop("in_place")
        if self.state.in_place is not None:
            self.state.in_place.active = False

    def in_place_status(self, nonce: str) -> str | None:
        """Return the text of its last report."""
        run = self.state.in_place
        return run.status if run is not None and run.nonce == nonce else None

    def _say(self, phase: InstallPhase, detail: str = "", percent: int | None = None) -> None:
        run = self.state.in_place
        assert run is not None, "only the program speaks"
        run.status = dump_contract(InstallStatus(phase=phase, detail=detail, percent=percent))
        run.active = phase not in (InstallPhase.INSTALLED, InstallPhase.FAILED)

    def _check(self, document: InstallDocument) -> None:
        try:
            drive = target_drive(document, self.state)
            image = image_of(document, self.state, drive, self.images)
            self._fail_at(InstallPhase.STARTED)
        except InstallRefused as refused:
            self._say(InstallPhase.FAILED, str(refused))
            return
        running = self.state.disks[drive]
        if document.layout is None or not running.slot or running.layout != layout_of(document):
            self._say(InstallPhase.FAILED, "the disk does not have the layout")
            return
        image.slot, image.layout = "b" if running.slot == "a" else "a", running.layout
        held = self.state.idle_slots.get(drive)
        if held is not None and (held.image, held.version, held.sha256) == (image.image, image.version, image.sha256):
            self._publish(drive, image)
            return
        self.state.counters.writes += 1
        self.state.idle_slots.pop(drive, None)  # its entry is taken from the menu before a byte of it changes
        self._step(document, drive, image, 0)

    def _step(self, document: InstallDocument, drive: str, image: DiskImage, percent: int) -> None:
        try:
            if percent >= 100:
                self._fail_at(InstallPhase.WRITTEN)
                self.state.counters.installs += 1
                self._publish(drive, image)
                return
            self._say(InstallPhase.WRITING, RATE if percent else "", percent)
            self._fail_at(InstallPhase.WRITING, percent)
        except InstallRefused as refused:
            self._say(InstallPhase.FAILED, str(refused))
            return
        if self._dies_at(percent):
            self.stop_in_place()
            return
        following = percent + 100 // STEPS
        at = self.now + self.timings.install_s / STEPS
        self._timers.at(at, "in_place", lambda: self._step(document, drive, image, following))

    def _publish(self, drive: str, image: DiskImage) -> None:
        self._say(InstallPhase.WRITTEN)
        self.publish_slot(drive, image)
        self._say(InstallPhase.INSTALLED)
