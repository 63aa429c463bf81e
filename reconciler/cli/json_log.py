"""Structured logs for machines: one JSON object per line on stderr. cli/progress.py writes lines for people.

    {"time": "2026-11-21T12:00:00.000Z", "level": "info", "event": "action_finished", "message": "drain: done",
     "run": "apply-...", "node": "gpu-001", "action": "drain", ...}

`time`, `level`, `event` and `message` are in every line. Only plain values are written: any other object, a secret
above all, raises a TypeError. Everything outside of ASCII is escaped, so that the output of a machine can't break a
line or a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any, TextIO, assert_never

from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.new_silences import NewSilences
from reconciler.cli.progress import outcome_text
from reconciler.cli.terminal import discard
from reconciler.cli.verbosity import REQUESTS
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    LoopTold,
    NodeObserved,
    NodeSettled,
    PassEnded,
    RunPlanned,
    Waiting,
)
from reconciler.converge.run import Ended
from reconciler.model.outcome import Ambiguous, Declined, Done, Outcome, Permanent, Transient, outcome_word
from reconciler.model.printable import json_lines, without_secrets
from reconciler.model.units import format_duration
from reconciler.render.text import fold

_LONGEST = 2000  # characters of one text
_LIBRARIES = ("asyncio", "aiohttp", "asyncssh")  # the drivers put the messages of other libraries into their errors

Value = str | int | float | bool | datetime | Enum | Sequence["Value"] | Mapping[str, "Value"] | None


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class JsonLog:
    """A Progress that logs events, with `say` for other lines. `with_` returns a log whose lines have more fields."""

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        stream: TextIO | None = None,
        least: Level = Level.INFO,
        **fields: Value,
    ) -> None:
        self._now = now
        self._stream = sys.stderr if stream is None else stream
        self._least = least
        self._fields = fields
        self._waiting: tuple[str, ...] = ()
        self._newly_silent = NewSilences()

    def with_(self, **fields: Value) -> JsonLog:
        return JsonLog(self._now, stream=self._stream, least=self._least, **(self._fields | fields))

    def say(self, level: Level, event: str, message: str, **fields: Value) -> None:
        """Write one line. A closed pipe or a full disk ends the log, and not the run."""
        if level < self._least:
            return
        at = self._now().astimezone(UTC)
        record: dict[str, Value] = {"time": at, "level": level.name.lower(), "event": event, "message": message}
        line = json.dumps(
            {key: _plain(value) for key, value in (record | self._fields | fields).items()}, allow_nan=False
        )
        try:
            self._stream.write(json_lines(line) + "\n")
            self._stream.flush()
        except OSError:
            discard(self._stream)

    def __call__(self, event: Event) -> None:
        match event:
            case NodeObserved(node, done, total):
                self.say(Level.DEBUG, "node_observed", f"{done} of {total} nodes", node=node, done=done, total=total)
            case PassEnded(silent):
                for one in self._newly_silent(silent):
                    self.say(
                        Level.WARNING, "silent", one.explained(), source=one.source, reason=one.reason, nodes=one.nodes
                    )
            case ActionStarted(node, action):
                self.say(
                    Level.INFO, "action_started", f"{action.id}: started", node=node, action=action.id,
                    disruption=action.disruption.label, because=action.because, estimate_s=action.estimate_s,
                )  # fmt: skip
            case ActionStep(node, action_id, step):
                self.say(Level.DEBUG, "action_step", f"{action_id}: {step}", node=node, action=action_id)
            case ActionFinished(node, action, outcome, seconds):
                self.say(
                    _level(outcome), "action_finished", f"{action.id}: {outcome_text(outcome)}", node=node,
                    action=action.id, outcome=outcome_word(outcome), detail=outcome.detail, seconds=round(seconds, 3),
                )  # fmt: skip
            case NodeSettled(node, state, detail):
                level = Level.ERROR if state in (Ended.FAILED, Ended.CRASHED) else Level.INFO
                self.say(level, "node_settled", f"{state.replace('_', ' ')}: {detail}", node=node, state=state)
            case Waiting(nodes, seconds):
                if nodes != self._waiting:
                    message = f"waiting up to {format_duration(seconds)} for {fold(nodes)}"
                    self.say(Level.INFO, "waiting", message, nodes=nodes, seconds=round(seconds, 3))
                self._waiting = nodes
            case RunPlanned(run, how_far):
                far = how_far()
                message = f"{far.done} of {far.nodes} nodes done, {far.failed} failed"
                self.say(
                    Level.DEBUG, "run_planned", message, run=run, nodes=far.nodes, done=far.done, failed=far.failed,
                    out=far.out, limit=far.limit, wave=far.wave, waves=far.waves, ends_at=far.ends_at,
                )  # fmt: skip
            case LoopTold(event_name, message, problem, fields):
                self.say(Level.WARNING if problem else Level.INFO, event_name, message, **fields)
            case _:
                assert_never(event)

    def _crashed(self, node: str, sentence: str, trace: str) -> None:
        self.say(Level.ERROR, "node_crashed", sentence, node=node, traceback=trace.splitlines())

    def _requested(self, line: str) -> None:
        self.say(Level.INFO, "request", line)

    @contextmanager
    def libraries(self) -> Iterator[None]:
        """Log the warnings of libraries, crashes, and the requests of `-v`, which would else be printed as they are."""
        handler = _LibraryHandler(self)
        loggers = [logging.getLogger(name) for name in _LIBRARIES]
        for logger in loggers:
            logger.addHandler(handler)
        CRASHES.sink, before = self._crashed, CRASHES.sink
        REQUESTS.sink = self._requested
        try:
            yield
        finally:
            CRASHES.sink, REQUESTS.sink = before, None
            for logger in loggers:
                logger.removeHandler(handler)


class _LibraryHandler(logging.Handler):
    """Logs the message of a library and the type of its error without their values, which may be secrets."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        self._log.say(
            Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING, "library", str(record.msg),
            logger=record.name, error=error.__name__ if error else "", at=f"{record.filename}:{record.lineno}",
        )  # fmt: skip


def _level(outcome: Outcome) -> Level:
    match outcome:
        case Done() | Declined():
            return Level.INFO
        case Transient() | Ambiguous():
            return Level.WARNING
        case Permanent():
            return Level.ERROR


def _plain(value: Value) -> Any:
    """Return the value as JSON has it. Raise TypeError for another type, whose text might be a secret."""
    match value:
        case Enum():
            return value.name.lower() if isinstance(value, IntEnum) else value.value
        case None | bool() | int() | float():
            return value
        case str():
            value = without_secrets(value)
            return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            raise TypeError(f"a {type(value).__name__} is not for logs")
