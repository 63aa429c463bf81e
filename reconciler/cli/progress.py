"""Progress on stderr: live on a terminal, plain lines in CI. Nothing is decided by it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.cli.terminal import say
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    LoopTold,
    NodeObserved,
    NodeSettled,
    Progress,
    Waiting,
)
from reconciler.model.outcome import Ambiguous, Declined, Done, Permanent, Transient, outcome_word
from reconciler.model.units import format_duration
from reconciler.render.text import plain

EVERY = 0.1  # seconds between redraws of a terminal


@contextmanager
def make_progress(what: str, time_scale: float, *, terse: bool = False) -> Iterator[Progress]:
    """A Progress for one pass: a live line and a table of running actions on a terminal, lines elsewhere.

    `terse`: lines that are kept where others read them. Which node, what and how it ended; no word that a machine said.
    """
    if sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        from reconciler.cli.live import LiveProgress

        with LiveProgress(what, time_scale) as live:
            yield live
    else:
        yield LineProgress(what, terse=terse)


class LineProgress:
    """One line for each thing that happened; a pass over many nodes says where it is every tenth of the way."""

    def __init__(self, what: str, *, terse: bool = False) -> None:
        self._what = what
        self._terse = terse
        self._said = 0
        self._waiting: tuple[str, ...] = ()
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        line = self._line(event)
        if line:
            say(line, err=True)

    def _line(self, event: Event) -> str:
        match event:
            case NodeObserved(_, done, total):
                tenth = done * 10 // total
                if tenth == self._said and done != total:
                    return ""
                self._said = tenth
                return f"{self._what}: {done} of {total} nodes" if done == total or total > 20 else ""
            case Waiting(nodes, seconds):
                if nodes == self._waiting:
                    return ""
                self._waiting = nodes
                return f"waiting up to {format_duration(seconds)} for {', '.join(nodes)}"
            case ActionStep() if self._terse:
                return ""
            case ActionFinished(node, action, outcome, seconds) if self._terse:
                return f"{node} {action.id}: {outcome_word(outcome)} ({format_duration(seconds)})"
            case NodeSettled(node, state, _) if self._terse:
                return describe(NodeSettled(node, state, ""))
            case _:
                return describe(event)


def describe(event: Event) -> str:
    """One event in words; "" for what is told elsewhere."""
    match event:
        case ActionStarted(node, action):
            return f"{node} {action.id} ..."
        case ActionStep(node, action_id, step):
            return f"{node} {action_id}: {plain(step, 200)}"
        case ActionFinished(node, action, outcome, seconds):
            return f"{node} {action.id}: {outcome_text(outcome)} ({format_duration(seconds)})"
        case NodeSettled(node, state, detail):
            return f"{node}: {state.replace('_', ' ')}" + (f": {plain(detail, 300)}" if detail else "")
        case LoopTold(_, message):
            return plain(message, 1000)
        case NodeObserved() | Waiting():
            return ""


def outcome_text(outcome: Done | Transient | Permanent | Ambiguous | Declined) -> str:
    match outcome:
        case Done(detail, changed):
            word = "done" if changed else "already so"
            return f"{word}, {plain(detail, 300)}" if detail else word
        case Declined(code, detail):
            return f"refused ({code}): {plain(detail, 300)}"
        case Transient(detail) | Permanent(detail) | Ambiguous(detail):
            return f"{type(outcome).__name__.lower()}: {plain(detail, 300)}"
