"""Follow an installer from power on to power off (contract v1): what it reports, its silence, and how it ends.

Its word decides when the disk is booted, never whether the install is done: the booted system proves that.
"""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, patience_s
from reconciler.converge.actions.install_plan import Install, judge_install, untold
from reconciler.converge.actions.power import ensure_off, is_off
from reconciler.model.install import InstallCause, InstallPhase
from reconciler.model.install_progress import InstallProgress
from reconciler.model.observed import Answered, ImageIdentity
from reconciler.model.outcome import Outcome, Permanent, Transient
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.planner.node.corroboration import BOOT_S

SILENT_S = 600.0  # without a call of the installer, while our server could be reached
ENDS_S = 120.0  # from its last words until the machine is off
LISTEN_S = 2.0  # between reads of what it reports, which lies in our ledger; once it is done, of the power, too
LOOK_S, AGAIN_S = 30.0, 5.0  # between looks at the machine, and until the second one at a machine that seems off
PERCENT_STEP = 5
OWNER = "install server"
# Asking the same again may end otherwise for these, and for what no cause is given of.
_PASSING = (None, InstallCause.FETCH, InstallCause.DISK)


class InstallWatch:
    """Watches one attempt. Deadlines begin when the watch does, also in a run that goes on with it."""

    def __init__(self, ctx: ActionContext, install: Install) -> None:
        self._ctx = ctx
        self._install = install
        self.progress: InstallProgress | None = None
        self._is_off = self._off_twice = False
        self._shown: tuple[InstallPhase | None, int] = (None, 0)
        now = ctx.clock.monotonic()
        self._heard = self._last_word = self._look_at = now
        self._boots_until = now + patience_s(ctx, BOOT_S)

    async def until_off(self) -> Outcome | None:
        """Return None once the machine is off, to boot its disk; or else how the attempt has ended."""
        while True:
            progress = await self._listen()
            if (ended := await self._ended(progress)) is not None:
                return ended
            if progress.phase is InstallPhase.INSTALLED and await self._is_off_now():
                return None
            if self._ctx.clock.monotonic() >= self._look_at:
                self._off_twice, self._is_off = self._is_off, await is_off(self._ctx)
                if self._is_off and progress.may_boot:
                    return None
                ended = self._interrupted() if self._is_off else await self._other_system()
                if ended is not None:
                    return ended
                # A second look at once: one answer proves nothing (pitfall A11), and the last word may come meanwhile.
                self._look_at = self._ctx.clock.monotonic() + (AGAIN_S if self._is_off else LOOK_S)
            await self._ctx.clock.sleep(LISTEN_S)

    @property
    def has_begun(self) -> bool:
        """Return whether the installer has its document, without which it writes nothing."""
        return self.progress is not None and (self.progress.fetched or self.progress.phase is not None)

    @property
    def last_words(self) -> str:
        return "nothing" if self.progress is None or self.progress.phase is None else _words(self.progress)

    # --- what it reports ---

    async def _listen(self) -> InstallProgress:
        before, self.progress = self.progress, await self._ctx.installer.progress(self._install.token)
        now = self._ctx.clock.monotonic()
        if before is None or (before.at, before.listening_since) != (self.progress.at, self.progress.listening_since):
            self._heard = now  # by this clock: the difference of two times of day is no elapsed time
        if before is None or before.phase is not self.progress.phase:
            self._last_word = now
        self._show(self.progress)
        return self.progress

    def _show(self, progress: InstallProgress) -> None:
        phase, percent = self._shown
        if progress.phase is None or (progress.phase is phase and (progress.percent or 0) < percent + PERCENT_STEP):
            return
        self._shown = progress.phase, progress.percent or 0
        self._ctx.step(f"installer: {_words(progress)}")

    async def _ended(self, progress: InstallProgress) -> Outcome | None:
        now = self._ctx.clock.monotonic()
        if progress.incident:
            return await self._incident(visible(progress.incident))
        if progress.phase is InstallPhase.FAILED:
            return judge_failure(visible(progress.detail), progress.cause)
        if not self.has_begun:
            return self._not_begun(f"{format_duration(BOOT_S)} after power on") if now >= self._boots_until else None
        if progress.phase is not InstallPhase.INSTALLED and now >= self._heard + patience_s(self._ctx, SILENT_S):
            return Transient(
                f"the installer has been silent for {format_duration(SILENT_S)}; its last word was: {self.last_words}"
            )
        return None

    async def _incident(self, what: str) -> Outcome:
        """End the attempt for good: whoever else has its token, nothing boots from it, and a person must look."""
        ctx = self._ctx
        ctx.journal(incident=what)
        ctx.ledger.hold(ctx.node, f"install attempt ended: {what}", OWNER, None, ctx.clock.now())
        await ensure_off(ctx)
        return Permanent(f"{what}: the attempt is ended, and the node is held until a person has looked")

    @staticmethod
    def _not_begun(when: str) -> Outcome:
        return Transient(f"the installer did not start: {when}, it has not asked for its document")

    # --- what the machine shows ---

    async def _is_off_now(self) -> bool:
        if await is_off(self._ctx):
            return True
        if self._ctx.clock.monotonic() >= self._last_word + patience_s(self._ctx, ENDS_S):
            await ensure_off(self._ctx)  # it has nothing left to write
            return True
        return False

    def _interrupted(self) -> Outcome | None:
        """Judge a machine that is off before all was written: nothing boots from its disk. None: look once more."""
        if not self.has_begun:
            return self._not_begun("the machine is off")
        why = f"the machine went off, and the installer's last word was: {self.last_words}"
        return Transient(why) if self._off_twice else None

    async def _other_system(self) -> Outcome | None:
        """Judge a system that answers: the old one is off, so another was booted in place of the installer."""
        reading = await self._ctx.host.facts((), ())
        if not isinstance(reading, Answered) or untold(reading.value):
            return None
        found = reading.value.image
        if found is not None and found.nonce == self._install.nonce:
            return judge_install(found, self._install)
        if self.has_begun:
            return Permanent(f"the installer ran, and then the machine booted {describe(found)} (L1)")
        return Transient(f"the machine did not boot the installer but {describe(found)}")


def judge_failure(why: str, cause: InstallCause | None) -> Outcome:
    """Return the outcome of an install that its installer gave up. Only what may end otherwise is tried again."""
    said = f"the installer failed: {why or 'it did not say why'}"
    return Transient(said) if cause in _PASSING else Permanent(said)


def describe(found: ImageIdentity | None) -> str:
    return "nothing of ours" if found is None else f"{found.image} {found.version} from another installation"


def _words(progress: InstallProgress) -> str:
    percent = "" if progress.percent is None else f" {progress.percent} %"
    detail = f", {visible(progress.detail)}" if progress.detail else ""
    return f"{progress.phase}{percent}{detail}"
