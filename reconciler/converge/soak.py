"""Follow a soak on its node: start it or go on with one, look at it, and end it at the first bad sign.

The node needs nobody to watch: a reconciler that was killed, or its successor, finds all that happened in files there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.converge.observe import io_seconds
from reconciler.converge.ports import SoakRun
from reconciler.gate.soak import look, on_node
from reconciler.gate.soak.look import Look, Run
from reconciler.gate.soak.steps import steps_of
from reconciler.gate.soak.verdict import Soak, broken
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Desired, GateTest
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.observed import Observed
from reconciler.model.ports import Clock, Host
from reconciler.model.soak import NAME, loads_of, seconds_of
from reconciler.model.soak_progress import SoakProgress

LOOK_S: Final = 60.0
LOOKS: Final = 500  # of a long soak, which is looked at less often than a short one
SELDOM_S: Final = 600.0  # between two looks, at most: the first bad sign should not wait
SILENT_S: Final = 1800.0  # of a host, before the attempt ends: a network that comes back finds the soak at work
SHUTDOWN_S: Final = 120.0  # that a system takes to stop its other units, at most 90 s each unless told otherwise
_COMMAND_S: Final = 60.0
_KEPT_RUNS: Final = 50  # whose outputs whoever comes next reads again, at most
_STARTED, _BEGUN_BEFORE = 0, on_node.BEGUN  # exit statuses of the start
_HEALTH: Final = GateTest("health", "xid", {}, (), _COMMAND_S)


@dataclass(slots=True)
class Follower:
    """Follows one soak. A DriverError is raised where the host was lost for longer than a network may be."""

    test: GateTest
    desired: Desired
    observed: Observed
    host: Host
    clock: Clock
    run: SoakRun
    _soak: Soak = field(init=False)
    _load_of: Mapping[int, tuple[GateTest, bool]] = field(init=False)  # step -> its load, whether it is the last of it
    _outputs: list[tuple[Run, CommandResult]] = field(default_factory=list)  # of the load that is not whole yet
    _read: int = 0  # runs that were read
    _whole: int = 0  # the last of them that made a load whole
    _kept: int = 0  # the last run of which the node keeps what came of it, instead of its output

    async def result(self) -> TestResult:
        """Return what the soak measured. Its unit and its files are gone from the node then, however it ended."""
        loads = loads_of(self.test)
        steps = steps_of(loads, self.desired, self.observed)
        if isinstance(steps, str):
            return self._ended(Verdict.UNJUDGED, steps)
        self._soak = Soak(loads, seconds_of(self.test))
        whole = [(load, at == len(steps[load.name])) for load in loads for at in range(1, len(steps[load.name]) + 1)]
        self._load_of = dict(enumerate(whole, 1))
        every = [step for load in loads for step in steps[load.name]]
        if problem := await (self._restore() if self.run.resumed else self._start(every)):
            await stop(self.host, self.clock, self.run.id)
            return self._ended(Verdict.ERROR, problem)
        result = await self._follow()
        await stop(self.host, self.clock, self.run.id)
        return result

    async def _start(self, steps: list[on_node.Step]) -> str:
        argv, loads = on_node.start(self.run.id, self._soak.seconds, steps)
        started = await self._command(argv, loads)
        if started.exit_status in (_STARTED, _BEGUN_BEFORE):  # begun before: what was said of it did not arrive
            return ""
        return f"systemd does not start the soak: {started.stderr.strip()[:200]}"

    async def _restore(self) -> str:
        """Go on from what the reconciler before this one has judged, so that only what is new is read."""
        kept = await self._command(on_node.kept(self.run.id))
        number, _, judged = kept.stdout.partition("\n")
        if kept.exit_status != 0 or not number:
            return ""  # nothing was judged yet, or its files are gone, which the first look tells
        try:
            self._soak.restore(judged)
            self._read = self._whole = self._kept = int(number)
        except ValueError as error:
            return f"what was judged of the soak before can't be read: {error}"
        return ""

    async def _keep(self) -> None:
        """Let the node keep what came of the runs so far, instead of what they printed."""
        if self._whole > self._kept:
            kept = await self._command(*on_node.keep(self.run.id, self._whole, self._soak.kept()))
            if kept.exit_status == 0:  # else at the next look: until then there is more to read again, and no harm
                self._kept = self._whole

    async def _follow(self) -> TestResult:
        while True:
            found = await self._look()
            self._show(found)
            if ended := await self._judge(found):
                return ended
            if (progress := self._progress(found)) is not None:
                self.run.note(progress)
            await self._keep()
            if len(found.runs) == on_node.MOST_RUNS:
                continue  # there are more
            await self.clock.sleep(min(SELDOM_S, max(LOOK_S, self._soak.seconds / LOOKS)))

    async def _judge(self, found: Look) -> TestResult | None:
        """Return the result as soon as there is one. Runs count first: they may say why the rest is broken.

        A soak whose node was booted since is over, so what its runs printed is not fetched.
        """
        if (why := broken(found)) is not None and why[0] is Verdict.FAIL:
            return self._ended(*why)
        for run in found.runs:
            if (bad := await self._add(run)) is not None:
                return self._ended(*bad, lasted_s=run.ended_s)
            if self._whole - self._kept >= _KEPT_RUNS:
                await self._keep()
        if len(found.runs) == on_node.MOST_RUNS:
            return None  # its last ones come first: they may say why the rest is broken
        if (why := broken(found)) is not None:
            if why[0] is Verdict.ERROR:  # a system that shuts down stops its units first, and answers for a while
                await self.clock.sleep(SHUTDOWN_S)
                why = broken(await self._look()) or why
            return self._ended(*why)
        health = await self._health()
        if health.verdict is Verdict.FAIL or found.lasted_s is not None:
            return self._ended(health.verdict, "; ".join(health.reasons), lasted_s=found.lasted_s)
        return None

    async def _health(self) -> TestResult:
        """Judge the passive health of the node under load: XIDs, the GPUs' cells, their links."""
        wanted = self.desired.profile.host
        reading = await self.host.facts(tuple(wanted.sysctls), tuple(wanted.services))
        return TOOLS[_HEALTH.tool].judge(_HEALTH, self.desired, replace(self.observed, host=reading), ())

    async def _add(self, run: Run) -> tuple[Verdict, str] | None:
        """Judge a run together with the other commands of its load; return why it ends the soak, or None."""
        self._read += 1
        if run.number != self._read or run.step not in self._load_of:
            return Verdict.ERROR, f"run {run.number} is not the next after {self._read - 1}"
        printed = await self._command(on_node.output(self.run.id, run.number))
        if printed.exit_status != 0:
            return Verdict.ERROR, f"the output of run {run.number} is not there: {printed.stderr.strip()[:200]}"
        output = CommandResult(run.status, printed.stdout, printed.stderr, timed_out=run.status == on_node.KILLED)
        self._outputs.append((run, output))
        load, whole = self._load_of[run.step]
        if not whole:
            return None
        outputs, self._outputs, self._whole = self._outputs, [], run.number
        result = TOOLS[load.tool].judge(load, self.desired, self.observed, [each for _, each in outputs])
        verdict, reasons = self._soak.add(load, outputs[0][0].began_s, run.ended_s, result)
        return None if verdict is Verdict.PASS else (verdict, "; ".join(reasons))

    def _ended(self, verdict: Verdict, why: str, *, lasted_s: int | None = None) -> TestResult:
        metrics = {} if lasted_s is None else self._soak.metrics(lasted_s)
        return TestResult(NAME, NAME, verdict, (why,) if why else (), metrics)

    def _show(self, found: Look) -> None:
        if (progress := self._progress(found)) is not None:
            self.run.step(progress.words)

    def _progress(self, found: Look) -> SoakProgress | None:
        """Return how far the soak is; None where the node does not say, as after another boot."""
        done = found.lasted_s if found.lasted_s is not None else found.elapsed_s
        if done is None or found.began != found.boot:
            return None
        return SoakProgress(self._soak.seconds, done, self.clock.now())

    # --- the node ------------------------------------------------------------------------------------------------

    async def _look(self) -> Look:
        found = look.read(await self._command(on_node.look(self.run.id, self._read + 1)))
        if isinstance(found, str):
            await stop(self.host, self.clock, self.run.id)  # else the next reconciler would find the same
            raise DriverError(Failure.MALFORMED, found)
        return found

    async def _command(self, argv: tuple[str, ...], stdin: str = "") -> CommandResult:
        return await _patiently(self.host, self.clock, argv, stdin)


async def stop(host: Host, clock: Clock, soak: str = "") -> None:
    """Stop a soak, or all of them, and remove what they kept on the node. Raise DriverError where that fails."""
    stopped = await _patiently(host, clock, on_node.stop(soak))
    if stopped.exit_status != 0:
        raise DriverError(Failure.MALFORMED, f"the soak can't be stopped: {stopped.stderr.strip()[:200]}")


async def _patiently(host: Host, clock: Clock, argv: tuple[str, ...], stdin: str = "") -> CommandResult:
    """Run a command on the node. A node that can't be reached, or is too busy to answer in time, is waited for.

    Neither is a failure of the soak. Each of its commands may be run twice.
    """
    until = clock.monotonic() + SILENT_S
    while True:
        try:
            found = await host.run(argv, timeout=io_seconds(clock, _COMMAND_S), stdin=stdin)
        except DriverError:
            if clock.monotonic() >= until:
                raise
        else:
            if not found.timed_out or clock.monotonic() >= until:
                return found
        await clock.sleep(LOOK_S)
