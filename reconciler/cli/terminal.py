"""The one way to stdout and stderr: documents and sentences, in which no string of others acts on who reads them.

A terminal is not moved, a job's log gets no line that its runner would take for a command. Nothing else in cli/ writes
to a stream, but for the live table, whose texts are made visible one by one.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

import click

from reconciler.model.printable import json_lines, lines, visible, without_secrets
from reconciler.render.text import fit


def say(*sentences: object, err: bool = False, bold: bool = False, colour: str | None = None) -> None:
    """A line for each, whatever is in it; an empty one for nothing."""
    told = [visible(str(sentence), keep="\t\u200b") for sentence in sentences]
    shown = lines("\n".join(map(without_secrets, told) if err else told))
    click.echo(click.style(shown, bold=bold, fg=colour) if bold or colour else shown, err=err)


def show(text: str, output: str = "human", *, err: bool = False) -> None:
    """Write a document; one for people is made to fit the terminal that it goes to."""
    stream = sys.stderr if err else sys.stdout
    if output == "human" and stream.isatty():
        text = fit(text, shutil.get_terminal_size().columns)
    text = json_lines(text) if output == "json" else lines(text)
    try:
        click.echo(text, nl=False, err=err)
        stream.flush()
    except BrokenPipeError:
        leave(stream)


def leave(stream: TextIO) -> None:
    """Its reader went away (`| head`). Nothing is wrong, and the exit code is still the command's own."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
