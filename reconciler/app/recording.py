"""`--record`: saving reports to a branch or a directory, once or beside the loop of `run`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from reconciler import __version__
from reconciler.app.ports import RecordTarget
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace, drift_report
from reconciler.converge.events import ActionFinished, Event, LoopTold, NodeSettled, Progress
from reconciler.drivers.record import BranchRecorder, DirectoryRecorder
from reconciler.model.desired import Fleet
from reconciler.model.errors import ReconcilerError, UsageError
from reconciler.model.observed import Observation
from reconciler.model.outcome import outcome_word
from reconciler.model.plan import Plan
from reconciler.model.recording import Recorder, RecordError, Recording
from reconciler.model.report import APPLY_FORMAT, ActionEnd, ApplyOutcome, NodeEnd
from reconciler.render.record import of_apply, of_drift
from reconciler.render.redact import Names, redact_drift, redact_outcome

CLOSING_S = 4.0  # wall clock


def open_recorder(target: RecordTarget | None, workspace: Workspace) -> Recorder | None:
    """Return the recorder that writes to `target`. Raise UsageError when it can't be written to, as far as is known."""
    if target is None:
        return None
    spec = workspace.request.spec
    recorder: Recorder
    if target.directory is None:
        recorder = BranchRecorder(spec, target.branch)
    elif target.directory.resolve().is_relative_to(spec.resolve()):
        raise UsageError(f"{target.directory} is part of the spec: record to another directory")
    else:
        recorder = DirectoryRecorder(target.directory)
    try:
        run_async(recorder.check())
    except RecordError as error:
        raise UsageError(str(error)) from error
    return recorder


def record(recorder: Recorder, recording: Recording) -> None:
    """Save `recording`. Raise RecordError when that fails, which undoes nothing of what is recorded."""
    run_async(recorder.save(recording))


def pools_of(fleet: Fleet, names: Iterable[str]) -> Mapping[str, str]:
    return {name: fleet.nodes[name].pool for name in names if name in fleet.nodes}


# --- the loop ---------------------------------------------------------------------------------------------------------


class LoopRecorder:
    """Records what passes found and what was done between them, beside the loop: it waits for nothing of this.

    What could not be recorded is said, once for as long as it is the same, and tried again after the next pass.
    """

    def __init__(
        self, recorder: Recorder, progress: Progress, now: Callable[[], datetime], failed: Callable[[], None]
    ) -> None:
        self._recorder = recorder
        self._progress = progress
        self._now = now
        self._failed = failed
        self.names: Callable[[Fleet, Observation], Names] | None = None  # what of machines is not to be told
        self._running: dict[str, list[ActionEnd]] = {}  # by node, what is not over
        self._done: list[ActionEnd] = []  # and is not recorded
        self._ends: dict[str, NodeEnd] = {}
        self._kept: Mapping[str, str] | None = None  # the files of the drift, as last recorded
        self._latest: tuple[Fleet, Plan, Observation] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._trouble = ""

    def __call__(self, event: Event) -> None:
        """A Progress that listens on its way."""
        match event:
            case ActionFinished(node, action, outcome, seconds):
                began = self._now() - timedelta(seconds=seconds)
                end = ActionEnd(node, action.id, outcome_word(outcome), outcome.detail, began, seconds)
                self._running.setdefault(node, []).append(end)
            case NodeSettled(node, state, detail) if node in self._running:
                self._done += self._running.pop(node)
                self._ends[node] = NodeEnd(state, detail)
        self._progress(event)

    def saw(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """A pass has ended."""
        self._latest = fleet, plan, observation
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save(fleet, plan, observation))

    async def saved(self) -> None:
        """The latest pass that began to be recorded is, or could not be."""
        if self._saving is not None:
            await self._saving

    async def close(self) -> None:
        """What is to be recorded still, if that does not take long: who is told to end has seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self.saved()
                if self._done and self._latest is not None:
                    await self._save(*self._latest)

    async def _save(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """Whatever is in the way of it, the ledger too: who can't record goes on."""
        try:
            await self._keep(fleet, plan, observation)
        except ReconcilerError as error:
            self._failed()
            self._tell(str(error))

    async def _keep(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        names = {} if self.names is None else self.names(fleet, observation)
        left, pools = redact_drift(drift_report(plan, observation), names), pools_of(fleet, plan.nodes)
        drift, done, ends = of_drift(left, pools), list(self._done), dict(self._ends)
        if not done and drift.files == self._kept:
            return
        outcome = redact_outcome(self._outcome(plan, done, ends), names) if done else None
        await self._recorder.save(drift if outcome is None else of_apply(outcome, left, pools))
        self._tell("")
        self._kept = drift.files
        del self._done[: len(done)]
        self._ends = {node: end for node, end in self._ends.items() if ends.get(node) is not end}

    def _outcome(self, plan: Plan, done: Sequence[ActionEnd], ends: Mapping[str, NodeEnd]) -> ApplyOutcome:
        return ApplyOutcome(
            format_version=APPLY_FORMAT, tool_version=__version__, run=plan.id, plan=plan.id, fleet=plan.fleet,
            source=plan.source, scope=plan.scope, started_at=min(end.started_at for end in done), ended_at=self._now(),
            interrupted=False, nodes=ends, actions=tuple(done), abandoned=(), incomplete=plan.incomplete,
            tolerated=plan.tolerated, changes=plan.changes, insecure=plan.insecure, time_scale=plan.time_scale,
            rollouts=plan.rollouts, stopped=plan.stopped, braked=plan.braked,
        )  # fmt: skip

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            message = trouble or "what happens is recorded again"
            self._progress(LoopTold("record", message, problem=bool(trouble)))
        self._trouble = trouble
