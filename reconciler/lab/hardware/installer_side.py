"""The installer of one machine, by contract v1 (model/install.py): calls to its server, and pauses between them.

It runs as a generator, which the machine's timers and the answers to its calls move on. Whatever ends it, the machine
powers off; what interrupts it (a power cut, a medium that goes away) leaves it where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from reconciler.gate.attestation.buffers import Malformed
from reconciler.lab.hardware import remedies
from reconciler.lab.hardware.drive_side import BLOCK_ERASE, DriveSide
from reconciler.lab.hardware.install_document import (
    InstallRefused,
    check_machine,
    image_of,
    is_done,
    layout_of,
    make_anew,
    refuse_loss,
    target_drive,
)
from reconciler.lab.hardware.state import DriveState, InstallerCall, InstallerRun
from reconciler.lab.hardware.tpm import TpmSide
from reconciler.model.install import (
    AttestationChallenge,
    ContractError,
    DriveSample,
    EraseDocument,
    Erasure,
    InstallCause,
    InstallDocument,
    InstallPhase,
    InstallStatus,
    dump_contract,
    load_contract,
)

Serve = Callable[[str, str | None, float], str | None]  # (URL, body, time of the call) -> answer; None: there is none

SANITIZING = 2  # of a sanitize's status
LOOK_S = 10.0
STEPS = 10  # reports of a write
_IMAGE_MB = 8000  # of a typical image, for the rates that are reported


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


class Hang:
    """The installer stops where it is, and the machine stays on."""


Program = Generator[InstallerCall | Pause | Hang, str | None, None]


class InstallerSide(DriveSide, TpmSide):
    """`serve` answers an installer's calls at once. Without it, the machine sets `state.installer.wants`, and its owner
    calls `answer`. `images`: (name, version) -> contents of those that the lab knows; a document has no contents."""

    serve: Serve | None = None
    images: Mapping[tuple[str, str], Mapping[str, str]] = {}
    host_public_key: str = ""
    _program: Program | None = None

    def _boot_installer(self, medium: str) -> None:
        self._enter("installer")
        silent = self.spend_fault("installer_silent") is not None
        self.state.installer = run = InstallerRun(medium, silent=silent)
        self._program = self._installing(run)
        self._timers.at(self.now + self.timings.installer_boot_s, "phase", lambda: self._go_on(None))

    def answer(self, text: str | None) -> None:
        """Answer the installer's call; None means no answer. An answer nobody waits for is ignored."""
        self.catch_up()
        run = self.state.installer
        if run is not None and run.wants is not None:
            run.wants = None
            self._go_on(text)

    def _go_on(self, answer: str | None) -> None:
        run, program = self.state.installer, self._program
        assert run is not None
        assert program is not None
        while True:
            try:
                step = program.send(answer)
            except StopIteration:
                self._power_off()
                return
            if isinstance(step, Pause):
                self._timers.at(self.now + step.seconds, "phase", lambda: self._go_on(None))
                return
            if isinstance(step, Hang):
                return
            if self.serve is None:
                run.wants = step
                return
            answer = self.serve(step.url, step.body, self.now)

    def _medium_went(self) -> None:
        run = self.state.installer
        if run is not None and not run.error:
            self._timers.drop("phase")
            run.wants = None
            self._installer_fails(run, "the medium went away")

    def _installer_fails(self, run: InstallerRun, why: str) -> None:
        run.error = why
        run.log.append(f"error: {why}")
        self._log("Warning", f"Installer: {why}")

    # --- the program ---

    def _installing(self, run: InstallerRun) -> Program:
        base, text = run.medium.rpartition("/")[0], None
        for _ in range(self.timings.document_tries):
            run.asked += 1
            run.log.append(f"asking for {base}/install.json")
            text = yield InstallerCall(f"{base}/install.json")
            if text is not None:
                break
            run.log.append("no document")
            yield Pause(self.timings.document_retry_s)
        if text is None:
            self._installer_fails(run, "got no document")
            return
        yield from self._report(run, base, InstallPhase.STARTED)
        erases = '"then":"erase"' in text
        try:
            yield from (self._erase(base, text) if erases else self._write(run, base, text))
        except InstallRefused as refused:
            self._installer_fails(run, str(refused))
            yield from self._last_word(run, base, InstallPhase.FAILED, str(refused), refused.cause)
        else:
            yield from self._last_word(run, base, InstallPhase.ERASED if erases else InstallPhase.INSTALLED, "")

    def _erase(self, base: str, text: str) -> Program:
        """Sanitize drives, and send what shows it."""
        try:
            document = load_contract(EraseDocument, text)
        except ContractError as error:
            raise InstallRefused(str(error)) from None
        check_machine(document.machine, self.state)
        drives = {drive.serial: drive for drive in self.state.drives}
        for serial in document.drives:
            if serial not in drives:
                raise InstallRefused(f"no drive has the serial number {serial}; drives here: {', '.join(drives)}")
        refused: dict[str, str] = {}
        for serial in document.drives:
            if why := self._refuses(drives[serial]):
                refused[serial] = why
                told = Erasure(serial=serial, model="", firmware="", method="", tool="", failed=why)
                yield from self._report_erasure(base, told)
            else:
                yield from self._sanitize(base, drives[serial])
        if refused:
            raise InstallRefused("; ".join(f"{serial}: {why}" for serial, why in refused.items()))

    @staticmethod
    def _refuses(drive: DriveState) -> str:
        return "" if drive.sanicap and not drive.sata else f"drive {drive.serial} can't be sanitized: destroy it"

    def _sanitize(self, base: str, drive: DriveState) -> Program:
        begun = Erasure(
            serial=drive.serial, model=drive.model, firmware="GDC7302Q", method="nvme sanitize, block erase",
            tool="nvme version 2.3", log_before=self.sanitize_log(drive)[:64].hex(), samples=self._samples(drive),
        )  # fmt: skip
        yield from self._report_erasure(base, begun)
        if drive.sanitize_status != SANITIZING:
            self.sanitize(drive, BLOCK_ERASE)
        while drive.sanitize_status == SANITIZING:
            yield Pause(LOOK_S)
        log = self.sanitize_log(drive)[:64].hex()
        after = {"log": log, "samples_after": self._samples(drive), "ended": True}
        yield from self._report_erasure(base, begun.model_copy(update=after))

    def _report_erasure(self, base: str, found: Erasure) -> Program:
        text = dump_contract(InstallStatus(phase=InstallPhase.ERASING, erasure=found))
        while (yield InstallerCall(f"{base}/status", text)) is None:
            yield Pause(self.timings.document_retry_s)

    def _samples(self, drive: DriveState) -> tuple[DriveSample, ...]:
        places = (0, drive.capacity_bytes // 2)
        data = {at: self.content(drive, at, 512) for at in places}
        return tuple(
            DriveSample(offset=at, digest=hashlib.sha256(one).hexdigest(), blank=len(set(one)) == 1)
            for at, one in data.items()
        )

    def _write(self, run: InstallerRun, base: str, text: str) -> Program:
        try:
            document = load_contract(InstallDocument, text)
        except ContractError as error:
            raise InstallRefused(str(error), InstallCause.DOCUMENT) from None
        state = self.state
        drive = target_drive(document, state)
        if is_done(document, state):
            run.log.append("this attempt is done already: nothing is written")
            return
        image, old = image_of(document, state, drive, self.images), state.disks.get(drive)
        refuse_loss(document, old, drive)
        self._fail_at(InstallPhase.STARTED)
        run.log.append(f"writing {image.image} {image.version} to {drive}")
        state.counters.writes += 1
        layout = layout_of(document)
        keeps = old is not None and old.slot != "" and old.layout == layout
        if not keeps:
            state.disks.pop(drive, None)  # both copies of its partition table are wiped first, and written last
        image.layout, image.slot = layout, ("" if not layout else "b" if keeps and old and old.slot == "a" else "a")
        state.idle_slots.pop(drive, None)
        if drive in state.next_slots:
            state.next_slots.remove(drive)
        rate = f"{_IMAGE_MB / self.timings.install_s:.0f} MB/s"
        for percent in range(0, 100, 100 // STEPS):
            yield from self._report(run, base, InstallPhase.WRITING, rate if percent else "", percent)
            self._fail_at(InstallPhase.WRITING, percent)
            if self._dies_at(percent):
                yield Hang()
            yield Pause(self.timings.install_s / STEPS)
        self._fail_at(InstallPhase.WRITTEN)
        yield from self._until_heard(run, base, InstallPhase.WRITTEN)
        if document.attest:
            yield from self._prove(base)
        for key in self._host_keys():
            yield from self._until_certified(run, base, key)
        if keeps:
            make_anew(document, state.disks[drive])
            self.publish_slot(drive, image)
        else:
            state.disks[drive] = image
        state.boot_disk = drive
        state.counters.installs += 1
        for kind in remedies.ended(state, remedies.INSTALL):
            self.end_fault(kind)
        for gpu in state.gpus:
            gpu.mig_pending = False
            gpu.mig_instances.clear()

    def _prove(self, base: str) -> Program:
        """Let the TPM vouch for the host key. A server that judges nobody, as a rehearsal's, answers with nothing."""
        text = yield InstallerCall(f"{base}/attest/begin", dump_contract(self.tpm_keys()))
        if text == "":
            return
        try:
            answer = self.tpm_answer(load_contract(AttestationChallenge, text or ""), self.own_host_key())
        except (ContractError, Malformed) as error:
            raise InstallRefused(f"attest/begin: {error}") from None
        if (yield InstallerCall(f"{base}/attest/finish", dump_contract(answer))) is None:
            raise InstallRefused("attest/finish: the server refused it")

    def _report(
        self,
        run: InstallerRun,
        base: str,
        phase: InstallPhase,
        detail: str = "",
        percent: int | None = None,
        cause: InstallCause | None = None,
    ) -> Generator[InstallerCall | Pause | Hang, str | None, bool]:
        """Send one report, and return whether the server has it."""
        if run.silent:
            return False
        text = dump_contract(InstallStatus(phase=phase, detail=detail, percent=percent, cause=cause))
        answer = yield InstallerCall(f"{base}/status", text)
        return answer is not None

    def _until_heard(self, run: InstallerRun, base: str, phase: InstallPhase) -> Program:
        """Report a phase until the server has it, without which it certifies no host key: for two hours at most."""
        for _ in range(4 * self.timings.last_word_tries):
            if run.silent or (yield from self._report(run, base, phase)):
                return
            yield Pause(self.timings.document_retry_s)
        raise InstallRefused(f"{phase}: the server does not answer", InstallCause.FETCH)

    def _until_certified(self, run: InstallerRun, base: str, key: str) -> Program:
        """Send the host key until it is certified, for two hours at most: what makes the disk boot comes after it."""
        for _ in range(4 * self.timings.last_word_tries):
            if (yield InstallerCall(f"{base}/hostkey", key)) is not None or run.silent:
                return
            yield Pause(self.timings.document_retry_s)
        raise InstallRefused("hostkey: the server does not answer", InstallCause.FETCH)

    def _last_word(
        self, run: InstallerRun, base: str, phase: InstallPhase, detail: str, cause: InstallCause | None = None
    ) -> Program:
        """Report the end until the server has it, for half an hour at most."""
        for _ in range(self.timings.last_word_tries):
            if (yield from self._report(run, base, phase, detail, cause=cause)):
                return
            yield Pause(self.timings.document_retry_s)

    # --- faults ---

    def _fail_at(self, phase: InstallPhase, percent: int = 0) -> None:
        fault = self.fault("installer_fails")
        early = phase is InstallPhase.WRITING and fault is not None and percent < int(fault["percent"])
        if fault is not None and fault["phase"] == phase and not early:
            self.spend_fault("installer_fails")
            cause = str(fault["cause"])
            raise InstallRefused(str(fault["why"]), InstallCause(cause) if cause else None)

    def _dies_at(self, percent: int) -> bool:
        fault = self.fault("installer_dies")
        if fault is None or percent < int(fault["percent"]):
            return False
        self.spend_fault("installer_dies")
        return True

    def own_host_key(self) -> str:
        return self.host_public_key or f"ssh-ed25519 {self.state.uuid}"

    def _host_keys(self) -> tuple[str, ...]:
        key = self.own_host_key()
        other = () if self.spend_fault("installer_second_key") is None else (f"ssh-ed25519 {self.state.uuid}-other",)
        return (key, *other)
