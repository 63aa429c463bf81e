"""Progress on a terminal: running actions in a live table below the lines of finished ones."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reconciler.cli.new_silences import NewSilences
from reconciler.cli.progress import describe, footer, told, unbroken
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
from reconciler.model.outcome import Done
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.render.text import fit, plain

if TYPE_CHECKING:
    from datetime import datetime

    from reconciler.cli.progress import Now

_REDRAW_S = 0.2
_ROWS = 12  # running actions shown; more would scroll the finished ones away
_PROGRESS_S = 1.0  # between two looks at how far the run is, which cost a little for each of its nodes
_STYLES = {"done": "bold green", "converged": "green", "failed": "bold red", "crashed": "bold red"}


class LiveProgress:
    """A Progress and context manager that shows running actions in a table below the lines of finished ones.

    The last line says how far the run is. A thread draws, so that durations go on between events. It is not rich's own:
    what two threads write at once leaves rows of the table among the lines. Here one lock has both.
    """

    def __init__(self, what: str, now: Now) -> None:
        self._what = what
        self._now = now
        self._newly_silent = NewSilences()
        self._running: dict[str, tuple[str, str, datetime]] = {}  # node -> action, step, since
        self._status = ""
        self._planned: RunPlanned | None = None
        self._footer = ""
        self._footer_at = 0.0
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, get_renderable=self._draw, auto_refresh=False, transient=True)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._drawing = threading.Thread(target=self._keep_drawn, name="progress", daemon=True)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        self._drawing.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._drawing.join()
        self._live.stop()

    def _keep_drawn(self) -> None:
        while not self._over.wait(_REDRAW_S):
            with self._lock:
                self._live.refresh()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._take(event)
            for one in self._newly_silent(event.silent) if isinstance(event, PassEnded) else ():
                self._print(told(one), "yellow", whole=True)
            self._look()

    def _take(self, event: Event) -> None:
        match event:
            case NodeObserved(_, done, total):
                self._status = f"{self._what}: {done} of {total} nodes" if done < total else ""
            case RunPlanned():
                self._planned, self._footer_at = event, 0.0
            case ActionStarted(node, action):
                self._running[node] = (action.id, "", self._now())
                self._status = ""
            case ActionStep(node, action_id, step):
                if (running := self._running.get(node)) is not None:  # else it has ended: a row would stay
                    self._running[node] = (action_id, step, running[2])
            case ActionFinished(node, _, outcome, _):
                self._running.pop(node, None)
                good = isinstance(outcome, Done)
                self._print(describe(event), "green" if good else "red", mark="✓ " if good else "✗ ")
            case NodeSettled(node, state, _):
                self._running.pop(node, None)
                if state != "converged":
                    self._print(describe(event), _STYLES.get(state, "yellow"), whole=True)
            case Waiting(nodes, seconds):
                self._status = f"waiting up to {format_duration(seconds)} for {', '.join(nodes[:5])}"
            case LoopTold(_, _, problem):
                self._print(describe(event), "yellow" if problem else "", whole=True)

    def _print(self, line: str, style: str, *, mark: str = "", whole: bool = False) -> None:
        """Print a line above the table. `mark`: what has the style, unless the `whole` line has."""
        at = f"{self._now():%H:%M:%S} "
        text = Text(fit(at + mark + visible(line), self._console.width), style if whole else "", no_wrap=True)
        text.stylize("dim", 0, len(at))
        text.stylize(style, len(at), len(at + mark))
        self._console.print(text, overflow="ignore", crop=False)
        self._live.refresh()  # the print has drawn the table as it was before

    def _look(self) -> None:
        if self._planned is not None and (now := time.monotonic()) >= self._footer_at + _PROGRESS_S:
            self._footer_at = now
            self._footer = footer(self._planned.run, self._planned.how_far(), self._planned.now())

    def _draw(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for _ in range(4):
            table.add_column(no_wrap=True, overflow="ellipsis")
        now, rows = self._now(), list(self._running.items())
        for node, (action, step, since) in rows[:_ROWS]:
            spent = format_duration((now - since).total_seconds())
            table.add_row(
                Text(visible(node), style="bold"), Text(visible(action)), Text(plain(step, 60), style="dim"), spent
            )
        lines = [f"and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []
        lines += [self._status] if self._status else []
        lines += unbroken(self._footer, self._console.width)
        below = (Text(visible(line), style="dim", no_wrap=True, overflow="ellipsis") for line in lines)
        return Group(table, *below)
