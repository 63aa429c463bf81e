"""The only way to stdout and stderr, for documents and lines. It escapes what could act on a terminal or a CI job.

Control sequences of others move no cursor, and no line of theirs is a command to a CI runner. Only the live table
writes to a stream by itself; it escapes its texts one by one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from reconciler.cli import colours
from reconciler.model.printable import json_lines, lines, visible, without_old_commands, without_secrets
from reconciler.render.text import fit


def say(*sentences: object, err: bool = False, bold: bool = False, colour: str | None = None) -> None:
    """Print each sentence as one line, folded on a terminal, and an empty line for none."""
    stream = sys.stderr if err else sys.stdout
    escaped = [visible(str(sentence), keep="\t\u200b") for sentence in sentences]
    shown = lines(_fitted("\n".join(map(without_secrets, escaped) if err else escaped), stream))
    if colours.wanted(stream):
        shown = click.style(shown, bold=bold, fg=colour) if bold or colour else colours.paint(shown)
    click.echo(shown, err=err)


def annotate(commands: Iterable[str], *, err: bool = True) -> None:
    """Print workflow commands of ours, a line each: the only ones that a runner of GitHub finds in our output."""
    for command in commands:
        click.echo(without_old_commands(visible(command)), err=err)


def show(text: str, output: str = "human", *, err: bool = False) -> bool:
    """Print a document. One for people is fitted to the width of the terminal, and has colours there.

    Return whether its reader is still there.
    """
    stream = sys.stderr if err else sys.stdout
    if output == "human":
        text = _fitted(text, stream)
    text = json_lines(text) if output == "json" else lines(text)
    if output == "human" and colours.wanted(stream):
        text = colours.paint(text)
    try:
        click.echo(text, nl=False, err=err)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
        return False
    return True


def _fitted(text: str, stream: TextIO) -> str:
    return fit(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def discard(stream: TextIO) -> None:
    """Discard further output, whose reader is gone (`| head`). The exit code stays that of the command."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
