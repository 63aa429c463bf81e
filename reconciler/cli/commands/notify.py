"""reconciler notify"""

from __future__ import annotations

import click

from reconciler.app.notify import try_channels
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.options import spec_options
from reconciler.cli.terminal import say
from reconciler.render.text import plain


@click.group(cls=Group)
def notify() -> None:
    """Try the channels through which `run` tells people what happens."""


@notify.command("test")
@click.option("--channel", metavar="NAME", help="Channel to try. Default: all.")
@spec_options()
def test(request: FleetRequest, channel: str | None) -> int:
    """Send a test message through the channels of the spec. Exit code 4 when one of them did not take it."""
    failed = False
    for tried in try_channels(workspace_for(request), channel):
        failed = failed or bool(tried.error)
        say(f"FAIL {tried.channel}: {plain(tried.error, 400)}" if tried.error else f"ok   {tried.channel}")
    return ExitCode.INCOMPLETE if failed else ExitCode.DONE
