"""`-v` and `-vv`, which every command takes: what is sent to nodes and clusters, on stderr."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import click

from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.terminal import say

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_LOGGER: Final = "reconciler.requests"  # of drivers/requests_log.py, which is imported when something is sent


class RequestLines(logging.Handler):
    """Prints a line for each request, or gives it to `sink`, which writes the log of `run` for machines.

    Where what machines report is left out (`--redact`), so are their addresses and paths, and so all of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sink: Callable[[str], None] | None = None

    @property
    def wanted(self) -> bool:
        return logging.getLogger(_LOGGER).level in _LEVELS[1:]

    def emit(self, record: logging.LogRecord) -> None:
        if CRASHES.terse:
            return
        if self.sink is not None:
            self.sink(record.getMessage())
        else:
            say(f"{time.strftime('%H:%M:%S', time.gmtime())} {record.getMessage()}", err=True)


REQUESTS: Final = RequestLines()


def option() -> click.Option:
    """Return the option, which hands nothing to its command."""
    return click.Option(
        ["-v", "--verbose"], count=True, expose_value=False, callback=_set,
        help="Print each request that may change something; -vv: those that read, too.",
    )  # fmt: skip


def _set(_ctx: click.Context, _param: click.Parameter, given: Any) -> None:
    logger = logging.getLogger(_LOGGER)
    logger.removeHandler(REQUESTS)
    logger.setLevel(_LEVELS[min(int(given), len(_LEVELS) - 1)])
    if given:
        logger.addHandler(REQUESTS)


def with_option(command: click.Command) -> click.Command:
    """Give the option to a command and to all of a group."""
    for one in command.commands.values() if isinstance(command, click.Group) else (command,):
        if not any(param.name == "verbose" for param in one.params):
            one.params.append(option())
    return command
