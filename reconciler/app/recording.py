"""`--record`: saving reports to a branch or a directory, once or beside the loop of `run`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from reconciler import __version__
from reconciler.app.drift_report import drift_report
from reconciler.app.ports import RecordTarget
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
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
from reconciler.render.redact import D, Identifiers, redact

CLOSING_S = 4.0  # wall clock


def open_recorder(target: RecordTarget | None, workspace: Workspace) -> Recorder | None:
    """Return the recorder that writes to `target`. Raise UsageError when a check shows that it can't."""
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
    """Save `recording`. Raise RecordError when that fails; what it describes has happened all the same."""
    run_async(recorder.save(recording))


def pools_of(fleet: Fleet, names: Iterable[str]) -> Mapping[str, str]:
    """Return node -> pool for the nodes that the fleet has."""
    return {name: fleet.nodes[name].pool for name in names if name in fleet.nodes}


# --- the loop ---------------------------------------------------------------------------------------------------------


class LoopRecorder:
    """Records the drift that passes find and the actions between them, in a task that the loop never waits for.

    A failure is reported once for as long as its message stays the same, and recording is tried again after the next
    pass. Called with an event, it is a Progress that passes the event on.
    """

    def __init__(
        self, recorder: Recorder, progress: Progress, now: Callable[[], datetime], failed: Callable[[], None]
    ) -> None:
        self._recorder = recorder
        self._progress = progress
        self._now = now
        self._failed = failed
        self.names: Callable[[Fleet, Observation], Identifiers] | None = None  # texts to redact
        self._running: dict[str, list[ActionEnd]] = {}  # by node, of nodes that are not settled
        self._done: list[ActionEnd] = []  # of settled nodes, not recorded yet
        self._ends: dict[str, NodeEnd] = {}
        self._recorded_drift: Mapping[str, str] | None = None  # the drift as last recorded: file -> text
        self._latest: tuple[Fleet, Plan, Observation] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._problem = ""

    def __call__(self, event: Event) -> None:
        """Collect the actions of settled nodes, and pass the event on."""
        match event:
            case ActionFinished(node, action, outcome, seconds):
                began = self._now() - timedelta(seconds=seconds)
                end = ActionEnd(node, action.id, outcome_word(outcome), outcome.detail, began, seconds)
                self._running.setdefault(node, []).append(end)
            case NodeSettled(node, state, detail) if node in self._running:
                self._done += self._running.pop(node)
                self._ends[node] = NodeEnd(state, detail)
        self._progress(event)

    def pass_ended(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """Start to record this pass, unless an earlier one is still being recorded."""
        self._latest = fleet, plan, observation
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save(fleet, plan, observation))

    async def saved(self) -> None:
        """Wait until the recording under way has ended, with success or without."""
        if self._saving is not None:
            await self._saving

    async def close(self) -> None:
        """Record what is left, for at most CLOSING_S: a process that must end has seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self.saved()
                if self._done and self._latest is not None:
                    await self._save(*self._latest)

    async def _save(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """Record a pass. An error of whatever kind, of the ledger too, is reported and stops nothing."""
        try:
            await self._record(fleet, plan, observation)
        except ReconcilerError as error:
            self._failed()
            self._report(str(error))

    async def _record(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        names = None if self.names is None else self.names(fleet, observation)

        def shown(document: D) -> D:
            return document if names is None else redact(document, names, fleet)

        left, pools = shown(drift_report(plan, observation)), pools_of(fleet, plan.nodes)
        drift, done, ends = of_drift(left, pools), list(self._done), dict(self._ends)
        if not done and drift.files == self._recorded_drift:
            return
        outcome = shown(self._outcome(plan, done, ends)) if done else None
        await self._recorder.save(drift if outcome is None else of_apply(outcome, left, pools))
        self._report("")
        self._recorded_drift = drift.files
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

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            message = problem or "what happens is recorded again"
            self._progress(LoopTold("record", message, problem=bool(problem)))
        self._problem = problem
