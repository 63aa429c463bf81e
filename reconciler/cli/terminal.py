"""Documents on stdout: as they are in files and pipes, broken at spaces where a person reads them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

import click

from reconciler.render.text import fit


def show(text: str, output: str = "human", *, err: bool = False) -> None:
    """Write a document; one for people is made to fit the terminal that it goes to."""
    stream = sys.stderr if err else sys.stdout
    if output == "human" and stream.isatty():
        text = fit(text, shutil.get_terminal_size().columns)
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
