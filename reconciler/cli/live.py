"""Live progress on a terminal (rich): what runs now, below the lines of what has happened."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reconciler.cli.progress import EVERY, describe
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    NodeObserved,
    NodeSettled,
    Waiting,
)
from reconciler.model.outcome import Done
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.render.text import plain

_ROWS = 12  # running actions shown; more would scroll away what has happened


class LiveProgress:
    """A Progress and a context manager; the screen is redrawn ten times a second at most."""

    def __init__(self, what: str, time_scale: float) -> None:
        self._what = what
        self._time_scale = time_scale
        self._running: dict[str, tuple[str, str, float]] = {}  # node -> action, step, since
        self._status = ""
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(  # draws at once
            console=self._console, get_renderable=self._draw, refresh_per_second=1 / EVERY, transient=True
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
