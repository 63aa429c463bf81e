"""Progress on stderr: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.cli.new_silences import NewSilences
from reconciler.cli.terminal import say
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
    Progress,
    RunPlanned,
    RunProgress,
    Waiting,
)
from reconciler.model.outcome import Ambiguous, Declined, Done, Permanent, Transient, outcome_word
from reconciler.model.silences import Silence
from reconciler.model.units import format_duration
from reconciler.render.text import plain

if TYPE_CHECKING:
    from datetime import datetime

    Now = Callable[[], datetime]


@contextmanager
def make_progress(what: str, now: Now, *, terse: bool = False) -> Iterator[Progress]:
    """Return a Progress for one pass: a table of running actions on a terminal, lines elsewhere.

    `now`: the clock of the fleet, as in all documents: a lab's times would not fit together otherwise. `terse`: for
    logs that others read. Lines name node, action and outcome, and quote no machine.
    """
    live = sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    if live and not REQUESTS.wanted:  # lines of others would break the table
        # rich takes 0.04 s of CPU, which a pipeline need not spend
        from reconciler.cli.live_progress import LiveProgress

        with LiveProgress(what, now) as shown:
            yield shown
    else:
        yield LineProgress(what, now, terse=terse)


class LineProgress:
    """A Progress that prints one line per event, with its time, and how far it is at every tenth of the nodes."""

    def __init__(self, what: str, now: Now, *, terse: bool = False) -> None:
        self._what = what
        self._terse = terse
        self._now = now
        self._newly_silent = NewSilences()
        self._tenths = 0
        self._waiting: tuple[str, ...] = ()
        self._planned: RunPlanned | None = None
        self._nodes = self._ended = self._tenths_told = 0  # nodes of the run, how many have ended, tenths of that

    def __call__(self, event: Event) -> None:
        silent = self._silent(event.silent) if isinstance(event, PassEnded) else ()
        for line in filter(None, (self._line(event), self._far(event), *silent)):
            say(f"{self._now():%H:%M:%S} {line}", err=True)

    def _silent(self, silent: Sequence[Silence]) -> list[str]:
        return [one.sentence() if self._terse else told(one) for one in self._newly_silent(silent)]

    def _line(self, event: Event) -> str:
        match event:
            case NodeObserved(_, done, total):
                tenth = done * 10 // total
                if tenth == self._tenths and done != total:
                    return ""
                self._tenths = tenth
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

    def _far(self, event: Event) -> str:
        """Return how far the run is, at every tenth of its nodes. A run of few nodes tells each anyway."""
        if isinstance(event, RunPlanned):
            self._planned, self._nodes, self._ended, self._tenths_told = event, event.how_far().nodes, 0, 0
        if self._planned is None or not isinstance(event, NodeSettled) or event.state == "converged":
            return ""
        self._ended += 1  # counted here: to ask costs a little for each node of the run, and is done ten times at most
        tenths = min(self._ended * 10 // max(self._nodes, 1), 10)
        if self._nodes <= 10 or tenths <= self._tenths_told:
            return ""
        self._tenths_told = tenths
        return footer(self._planned.run, self._planned.how_far(), self._planned.now())


def footer(run: str, found: RunProgress, now: datetime) -> str:
    """Return how far a run is, in one line. Times are of the clock of the run."""
    parts = [f"wave {found.wave}/{found.waves}"] if found.waves else []
    if found.nodes:
        parts += [f"{found.done}/{found.nodes} done", f"{found.failed} failed"]
    parts.append(f"{found.at_work} at work")
    if found.limit is not None:
        parts.append(f"{found.out} of {found.limit} out")
    if found.ends_at is not None and found.done + found.failed < found.nodes:
        left = (found.ends_at - now).total_seconds()
        parts.append(
            f"ETA {found.ends_at:%H:%M} UTC, in {format_duration(left)}" if left > 0 else "longer than expected"
        )
    return f"{run}: {', '.join(parts)}"


def unbroken(line: str, width: int) -> list[str]:
    """Return the line of a footer in as many lines as a terminal needs, broken between its parts alone."""
    kept = ", ".join(part.replace(" ", "\u00a0") for part in line.replace(": ", ":, ", 1).split(", "))
    return [row.replace("\u00a0", " ").replace(":, ", ": ", 1) for row in textwrap.wrap(kept, width)]


def told(silence: Silence) -> str:
    return plain(silence.explained(), 600)


def describe(event: Event) -> str:
    """Return a line for an event; "" for an event that is shown otherwise."""
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
        case NodeObserved() | PassEnded() | Waiting() | RunPlanned():
            return ""


def outcome_text(outcome: Done | Transient | Permanent | Ambiguous | Declined) -> str:
    """Return an outcome and its detail in words."""
    match outcome:
        case Done(detail, changed):
            word = "done" if changed else "already so"
            return f"{word}, {plain(detail, 300)}" if detail else word
        case Declined(code, detail):
            return f"refused ({code}): {plain(detail, 300)}"
        case Transient(detail) | Permanent(detail) | Ambiguous(detail):
            return f"{type(outcome).__name__.lower()}: {plain(detail, 300)}"
