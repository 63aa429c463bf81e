"""Colours for people on a terminal: what must not be overlooked at 3 a.m., and how each node is.

Only the first word of a line and whole cells of a table have one, so that sentences, which may quote a machine, stay
as they are.
"""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

import click

_CELLS: Final = {
    "red": ("blocked", "failed", "crashed", "isolated", "unfinished", "fail", "error", "firmware", "reimage"),
    "yellow": ("held", "waiting", "set aside", "set_aside", "parked", "unjudged", "reboot", "power cycle"),
    "green": ("converged", "done", "pass", "ok"),
}
_COLOUR_OF: Final = {word: colour for colour, words in _CELLS.items() for word in words}
_CELL: Final = re.compile(rf"(?:(?<=  )|^)({'|'.join(_COLOUR_OF)})(?=  |$)")
_LOUD: Final = re.compile(r"(?:INCIDENT|INSECURE:|STOPPED|STORM BRAKE|FAIL|error:|warning:|reconciler:)(?= )")
_HEADING: Final = re.compile(r"\S.*(?::|\(\d+\))")


def wanted(stream: TextIO) -> bool:
    """Return whether this stream takes colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str) -> str:
    """Return a document with colours. It is fitted to its terminal already, as they have no width there."""
    painted = []
    below_heading = False  # where a table has its head
    for line in text.split("\n"):
        if heading := _HEADING.fullmatch(line) is not None and not _LOUD.match(line):
            painted.append(click.style(line, bold=True))
        elif loud := _LOUD.match(line):
            colour = "yellow" if loud[0] == "warning:" else "red"
            painted.append(click.style(loud[0], bold=True, fg=colour) + line[loud.end() :])
        elif below_heading:
            painted.append(line)
        else:
            painted.append(_CELL.sub(lambda cell: click.style(cell[0], fg=_COLOUR_OF[cell[0]]), line))
        below_heading = heading
    return "\n".join(painted)
