"""reconciler status"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.status import fleet_overview, with_work
from reconciler.app.workspace import Workspace
from reconciler.cli.colours import paint
from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.exit_codes import ExitCode, exit_code_of, strongest
from reconciler.cli.frontend import TERMINAL, workspace_for
from reconciler.cli.options import Duration, fleet_options, observation_option
from reconciler.cli.terminal import show
from reconciler.model import printable
from reconciler.model.documents import dump
from reconciler.model.errors import ReconcilerError, UsageError
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.observed import Observation
from reconciler.model.units import format_duration
from reconciler.render.status import as_markdown, human
from reconciler.render.text import clock, fit, plain

_LOOK_S = 2.0  # between two looks at what runs, which reads the ledger and no node
_LEAST_S = 5.0  # between two readings: BMCs are slow, and serve the loop as well
QUIET: Final = Frontend(exit_code=exit_code_of)  # a reading that nobody sees: lines would break the screen


@click.command()
@fleet_options(rev=True)
@observation_option("Show the status by this observation, and read no node.")
@click.option("--watch", is_flag=True,
              help="Show it until Ctrl-C: what runs anew every two seconds, the nodes every --interval.")  # fmt: skip
@click.option("--interval", type=Duration(), default="30s", show_default=True, metavar="DURATION",
              help="With --watch: time between two readings of the nodes, at least 5s.")  # fmt: skip
@click.option("--detailed-exitcode", is_flag=True,
              help="Exit with 8 when something needs a person, with 2 when a node differs or is out.")  # fmt: skip
def status(
    request: FleetRequest, observation: Path | None, watch: bool, interval: float, detailed_exitcode: bool, output: str
) -> int:
    """Show how the fleet stands: pools, clusters, rollouts, incidents, what needs a person, and what runs now.

    It reads the nodes, as drift does, and writes nothing, in the ledger neither.
    """
    if watch:
        if observation is not None:
            raise UsageError("--watch reads the nodes again and again, and --observation reads none: use one of them")
        _watch(request, max(interval, _LEAST_S), output)
    found = fleet_overview(workspace_for(request), observation)
    show(_written(found, output), output)
    return exit_code(found, detailed=detailed_exitcode)


def exit_code(found: FleetOverview, *, detailed: bool) -> ExitCode:
    """Return the code for scripts and monitors."""
    codes = [ExitCode.DONE if found.tolerated else ExitCode.INCOMPLETE, CRASHES.code]
    if detailed and found.needs_person:
        codes.append(ExitCode.REFUSED)
    if detailed and (found.changes or found.incomplete):
        codes.append(ExitCode.CHANGES)
    return strongest(codes)


def _written(found: FleetOverview, output: str) -> str:
    if output == "json":
        return dump(found)
    return human(found) if output == "human" else as_markdown(found)


def _watch(request: FleetRequest, interval_s: float, output: str) -> None:
    """Show the status until it is interrupted. The spec is loaded anew with each reading."""
    seen: Observation | None = None
    found: FleetOverview | None = None
    with _screen(output) as screen:
        while True:
            due, trouble = time.monotonic() + interval_s, ""
            workspace = Workspace(request, QUIET if screen else TERMINAL)
            try:
                seen = workspace.observe(seen)
                found = fleet_overview(workspace, None, seen)
            except ReconcilerError as error:
                if found is None:
                    raise
                trouble = f"NOT READ AGAIN: {plain(str(error), 300)}; this is of {clock(found.finished_at)}"
            if screen is None:
                show(_written(found, output), output)
                time.sleep(max(due - time.monotonic(), 0.0))
            else:
                _follow(screen, workspace, found, due, trouble)


def _follow(screen: Live, workspace: Workspace, found: FleetOverview, due: float, trouble: str) -> None:
    """Draw a reading, and what runs, until the next reading is due."""
    while (left := due - time.monotonic()) > 0:
        next_ = f"The nodes are read again in {format_duration(max(left, 1.0))}. Ctrl-C ends it."
        size = shutil.get_terminal_size()
        room = size.lines - 3
        lines = [*fit(human(found, room), size.columns).split("\n")[:room], trouble, next_]
        drawn = Text.from_ansi(paint(printable.lines("\n".join(lines))), no_wrap=True, overflow="ellipsis")
        screen.update(drawn, refresh=True)
        time.sleep(min(_LOOK_S, left))
        if not trouble:
            found = with_work(workspace, found)


@contextmanager
def _screen(output: str) -> Iterator[Live | None]:
    """Take the whole terminal while the context is open; off a terminal there is none to take."""
    if output != "human" or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        yield live
