"""Documents on stdout: as they are in files and pipes, broken at spaces where a person reads them."""

from __future__ import annotations

import shutil
import sys

import click

from reconciler.render.text import fit


def show(text: str, output: str = "human", *, err: bool = False) -> None:
    """Write a document; one for people is made to fit the terminal that it goes to."""
    stream = sys.stderr if err else sys.stdout
    if output == "human" and stream.isatty():
        text = fit(text, shutil.get_terminal_size().columns)
    click.echo(text, nl=False, err=err)
