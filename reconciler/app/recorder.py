"""--record: where what happened is kept, and who keeps it while the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler import __version__
from reconciler.converge.events import ActionFinished, Event, LoopTold, NodeSettled, Progress
from reconciler.model.errors import ReconcilerError, UsageError
from reconciler.model.outcome import outcome_word
from reconciler.model.recording import Recorder, RecordError
from reconciler.model.report import APPLY_FORMAT, ActionEnd, ApplyOutcome, NodeEnd

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.model.desired import Fleet
    from reconciler.model.observed import Observation
    from reconciler.model.plan import Plan
    from reconciler.model.recording import Recording
    from reconciler.render.redact import Identifiers

BRANCH = "branch:"
CLOSING_S = 4.0  # wall clock


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of the spec's repository, or a directory."""

    branch: str = ""
    directory: Path | None = None


class PlaceType(click.ParamType[Place]):
    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if isinstance(value, Place):
            return value
        text = str(value)
        if text.startswith(BRANCH):
            branch = text.removeprefix(BRANCH)
            return Place(branch) if branch else self.fail("branch: needs a name", param, ctx)
        path = Path(text)
        if path.exists() and not path.is_dir():
            self.fail(f"{text} is a file: name a directory, or branch:NAME", param, ctx)
        return Place(directory=path)


record_option = click.option(
    "--record", type=PlaceType(), metavar="PLACE",
    help="Also keep what changed in branch:NAME of the spec's repository, or in a directory: a commit per change.",
)  # fmt: skip


def recorder_of(place: Place, spec: Path) -> Recorder:
    from reconciler.drivers.record import BranchRecorder, DirectoryRecorder

    if place.directory is None:
        return BranchRecorder(spec, place.branch)
    if place.directory.resolve().is_relative_to(spec.resolve()):
        raise UsageError(f"{place.directory} is part of the spec: record to another directory")
    return DirectoryRecorder(place.directory)


def ready_recorder(place: Place | None, session: Session) -> Recorder | None:
    """One that can be written to, as far as anybody knows before there is anything to write."""
    from reconciler.app.session import run_async

    if place is None:
        return None
    recorder = recorder_of(place, session.common.spec)
    try:
        run_async(recorder.check())
    except RecordError as error:
        raise UsageError(str(error)) from error
    return recorder


def keep(recorder: Recorder, recording: Recording) -> None:
    """RecordError when it fails: the document is told by then, and what was done is done."""
    from reconciler.app.session import run_async

    run_async(recorder.save(recording))


def pools_of(fleet: Fleet, names: Iterable[str]) -> Mapping[str, str]:
    return {name: fleet.nodes[name].pool for name in names if name in fleet.nodes}


# --- the loop ---------------------------------------------------------------------------------------------------------


class Keeper:
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
        self.names: Callable[[Fleet, Observation], Identifiers] | None = None  # what of machines is not to be told
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
        from reconciler.app.session import drift_report
        from reconciler.render.record import of_apply, of_drift
        from reconciler.render.redact import redact

        names = {} if self.names is None else self.names(fleet, observation)
        left, pools = redact(drift_report(plan, observation), names), pools_of(fleet, plan.nodes)
        drift, done, ends = of_drift(left, pools), list(self._done), dict(self._ends)
        if not done and drift.files == self._kept:
            return
        outcome = redact(self._outcome(plan, done, ends), names) if done else None
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
