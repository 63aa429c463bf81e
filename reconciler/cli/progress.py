"""Progress on stderr: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

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
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.render.text import plain

_REDRAW_S = 0.1
_ROWS = 12  # running actions shown; more would scroll the finished ones away


@contextmanager
def make_progress(what: str, time_scale: float, *, terse: bool = False) -> Iterator[Progress]:
    """Return a Progress for one pass: a table of running actions on a terminal, lines elsewhere.

    `terse`: for logs that others read. Lines name node, action and outcome, and quote no machine.
    """
    if sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        with LiveProgress(what, time_scale) as live:
            yield live
    else:
        yield LineProgress(what, terse=terse)


class LineProgress:
    """A Progress that prints one line per event, and every tenth of a pass over many nodes."""

    def __init__(self, what: str, *, terse: bool = False) -> None:
        self._what = what
        self._terse = terse
        self._tenths = 0
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


class LiveProgress:
    """A Progress and context manager that shows running actions in a table below the lines of finished ones."""

    def __init__(self, what: str, time_scale: float) -> None:
        self._what = what
        self._time_scale = time_scale
        self._running: dict[str, tuple[str, str, float]] = {}  # node -> action, step, since
        self._status = ""
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(  # draws at once
            console=self._console, get_renderable=self._draw, refresh_per_second=1 / _REDRAW_S, transient=True
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case NodeObserved(_, done, total):
                self._status = f"{self._what}: {done} of {total} nodes" if done < total else ""
            case ActionStarted(node, action):
                self._running[node] = (action.id, "", time.monotonic())
                self._status = ""
            case ActionStep(node, action_id, step):
                since = self._running.get(node, ("", "", time.monotonic()))[2]
                self._running[node] = (action_id, step, since)
            case ActionFinished(node, _, outcome, _):
                self._running.pop(node, None)
                good = isinstance(outcome, Done)
                mark = Text("✓ " if good else "✗ ", style="green" if good else "red")
                self._console.print(mark + Text(visible(describe(event))))
            case NodeSettled(_, state, _):
                style = {"done": "bold green", "converged": "green", "failed": "bold red", "crashed": "bold red"}.get(
                    state, "yellow"
                )
                if state != "converged":
                    self._console.print(Text(visible(describe(event)), style=style))
            case Waiting(nodes, seconds):
                self._status = f"waiting up to {format_duration(seconds)} for {', '.join(nodes[:5])}"
            case _:
                pass

    def _draw(self) -> Table:
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for node, (action, step, since) in list(self._running.items())[:_ROWS]:
            spent = format_duration((now - since) * self._time_scale)
            table.add_row(
                Text(visible(node), style="bold"), Text(visible(action)), Text(plain(step, 60), style="dim"), spent
            )
        if len(self._running) > _ROWS:
            table.add_row(f"and {len(self._running) - _ROWS} more", "", "", "")
        if self._status:
            table.add_row(Text(visible(self._status), style="dim"), "", "", "")
        return table


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
        case NodeObserved() | Waiting():
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
