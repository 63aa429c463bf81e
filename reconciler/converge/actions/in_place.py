"""Write an image from the running system into the slot that does not run, and reboot once (DESIGN 7.5).

The program that writes is a unit of its own on the node, and its state is in files there: a connection that is lost,
or a run that dies, does not end it. Whatever happens to it, the system that runs stays as it is, and bootable. Its word
never proves an install: the booted system does.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.converge.actions.activation import pending_settings, verify_activation
from reconciler.converge.actions.context import ActionContext, Stop, patience_s, tolerate
from reconciler.converge.actions.install_plan import Install, fell_back, journaled_install, judge_install
from reconciler.converge.actions.power import ensure_off, ensure_on, reboot, wait_for_host
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    ContractError,
    InstallDocument,
    InstallPhase,
    InstallStatus,
    in_place_folder,
    load_contract,
)
from reconciler.model.observed import Answered, HostFacts, ImageIdentity
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.model.vocab import Activation

UNIT = "reconciler-install.service"
SILENT_S = 600.0  # without a change of what the program says, or without a connection
LISTEN_S, LOOK_S = 5.0, 30.0  # between reads of what it says, and of whether it runs
START_S, COMMAND_S = 60.0, 15.0
PERCENT_STEP = 5
_LOST = (Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS)

# It takes the files of an attempt from its standard input, and starts the program in them as a unit.
LAUNCHER = """
import base64, json, pathlib, shutil, subprocess, sys
given = json.load(sys.stdin)
folder, unit = pathlib.Path(given["folder"]), given["unit"]
subprocess.run(("systemctl", "stop", unit), capture_output=True)
subprocess.run(("systemctl", "reset-failed", unit), capture_output=True)
shutil.rmtree(folder, ignore_errors=True)
for name, content in given["files"].items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(base64.b64decode(content))
program = (sys.executable, str(folder / "program.pyz"), str(folder))
sys.exit(subprocess.run(("systemd-run", "--quiet", "--collect", "--unit", unit, *program)).returncode)
"""


async def reimage_in_place(ctx: ActionContext, document: InstallDocument) -> Outcome:
    """Install from the running system, or continue what an earlier run began."""
    boot_id = ctx.intent.get("boot_id")
    if boot_id is None:
        return Declined("unknown", "the host gives no boot id, so a reboot could not be proved")
    pending = await pending_settings(ctx)
    install = await journaled_install(ctx.resumed, ctx.installer)
    facts: HostFacts | None = None
    if install is not None and install.is_still_meant(document):
        facts = await _since_rebooted(ctx, boot_id)
    else:
        install = None
    if facts is None:
        if install is None or await _Program(ctx, install).said() is None:
            install = Install("", document)
            await _begin(ctx, install)
        if (ended := await _Watch(ctx, install).until_installed()) is not None:
            return ended
        ctx.journal(boots=True)
        if any(item.activation is Activation.POWER_CYCLE for item in pending.firmware):
            await ensure_off(ctx)
            await ensure_on(ctx)
        else:
            await reboot(ctx)
        facts = await wait_for_host(ctx, unlike=boot_id)
    assert install is not None, "only an attempt of an earlier run is looked for"
    outcome = _judge(facts.image, install)
    if isinstance(outcome, Done):
        await verify_activation(ctx, pending)
    return outcome


async def _since_rebooted(ctx: ActionContext, boot_id: str) -> HostFacts | None:
    """Return the facts of a host that was booted since the attempt began; None if it still is the same boot."""
    reading = await ctx.host.facts((), ())
    if isinstance(reading, Answered) and reading.value.boot_id == boot_id:
        return None
    if isinstance(reading, Answered) or ctx.resumed.get("boots"):
        return await wait_for_host(ctx, unlike=boot_id)
    raise Stop(Transient(f"the host does not answer: {reading.detail}"))


def _judge(found: ImageIdentity | None, install: Install) -> Outcome:
    """Judge the system that was booted. What failed in place is tried by the installer next, so no end is for good."""
    if found is not None and found.nonce == install.nonce:
        return judge_install(found, install)
    return Transient(fell_back(found, install) or "written in place, and then the machine booted nothing of ours")


async def _begin(ctx: ActionContext, install: Install) -> None:
    """Start the program on the node. The ledger has the nonce before the machine does."""
    ctx.journal(**install.journaled())
    ctx.ledger.set_nonce(ctx.node, install.nonce, ctx.clock.now())
    ctx.step("starting to write the other slot")
    given = ctx.installer.in_place(install.document, in_place_folder(install.nonce), UNIT)
    try:
        seconds = max(5.0, ctx.clock.real_seconds(START_S))
        result = await ctx.host.run(("python3", "-c", LAUNCHER), timeout=seconds, stdin=given)
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            raise
        return  # what it says shows whether it was started
    if result.exit_status:
        said = (result.stderr.strip() or result.stdout.strip())[-300:]
        raise Stop(Transient(f"writing in place could not be started: exit {result.exit_status}: {visible(said)}"))


@dataclass(frozen=True, slots=True)
class _Program:
    """The program on the node."""

    ctx: ActionContext
    install: Install

    async def said(self) -> InstallStatus | None:
        """Return its last report; None if there is none. Raise DriverError if the host does not answer."""
        path = f"{in_place_folder(self.install.nonce)}/status.json"
        result = await self.ctx.host.run(("cat", path), timeout=self._seconds)
        if result.exit_status:
            return None
        try:
            return load_contract(InstallStatus, result.stdout)
        except ContractError as error:
            raise Stop(Transient(f"what the program on the node says is not the contract's: {error}")) from None

    async def runs(self) -> bool:
        result = await self.ctx.host.run(("systemctl", "is-active", UNIT), timeout=self._seconds)
        return result.stdout.strip() in ("active", "activating", "deactivating")

    async def stop(self) -> None:
        await tolerate(self.ctx.host.run(("systemctl", "stop", UNIT), timeout=self._seconds), *_LOST)

    @property
    def _seconds(self) -> float:
        return max(2.0, self.ctx.clock.real_seconds(COMMAND_S))


class _Watch:
    """Watches the program until it ends. Deadlines begin when the watch does, also in a run that goes on with it."""

    def __init__(self, ctx: ActionContext, install: Install) -> None:
        self._ctx, self._program = ctx, _Program(ctx, install)
        self._last: InstallStatus | None = None
        self._shown: tuple[InstallPhase | None, int] = (None, 0)
        self._lost = ""
        now = ctx.clock.monotonic()
        self._heard, self._look_at = now, now + LOOK_S

    async def until_installed(self) -> Outcome | None:
        """Return None once the other slot boots next, or else how the attempt has ended."""
        while True:
            try:
                status, runs = await self._listen()
                self._lost = ""
            except DriverError as error:
                if error.kind not in _LOST:
                    raise
                status, runs, self._lost = self._last, True, f": {error.detail}"
            if status is not None and status.phase is InstallPhase.INSTALLED:
                return None
            if status is not None and status.phase is InstallPhase.FAILED:
                return Transient(f"writing in place failed: {visible(status.detail) or 'it did not say why'}")
            if not runs:
                return Transient(f"the program that writes in place ended; its last word was: {self._last_words}")
            if self._ctx.clock.monotonic() >= self._heard + patience_s(self._ctx, SILENT_S):
                await self._program.stop()
                silent = format_duration(SILENT_S)
                return Transient(f"writing in place: nothing new for {silent}{self._lost}; last: {self._last_words}")
            await self._ctx.clock.sleep(LISTEN_S)

    async def _listen(self) -> tuple[InstallStatus | None, bool]:
        """Return what the program says, and whether it runs, as far as that was looked at."""
        status, runs = await self._program.said(), True
        now = self._ctx.clock.monotonic()
        if status != self._last:
            self._last, self._heard = status, now
            self._show(status)
        elif now >= self._look_at:
            self._look_at = now + LOOK_S
            runs = await self._program.runs()
            if not runs:
                status = self._last = await self._program.said()  # it may have ended well in between
        return status, runs

    def _show(self, status: InstallStatus | None) -> None:
        phase, percent = self._shown
        if status is None or (status.phase is phase and (status.percent or 0) < percent + PERCENT_STEP):
            return
        self._shown = status.phase, status.percent or 0
        self._ctx.step(f"in place: {self._last_words}")

    @property
    def _last_words(self) -> str:
        if self._last is None:
            return "nothing"
        percent = "" if self._last.percent is None else f" {self._last.percent} %"
        return f"{self._last.phase}{percent}" + (f", {visible(self._last.detail)}" if self._last.detail else "")
