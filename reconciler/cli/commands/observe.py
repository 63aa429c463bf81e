"""reconciler observe"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from reconciler.app.publish import publish_option, write_published
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, OutFile, fleet_options, write_file
from reconciler.cli.terminal import show


@click.command()
@fleet_options(rev=True)
@click.option("--out", type=OutFile(), metavar="FILE", help="Write the observation here.")
@publish_option
def observe(common: Common, out: Path | None, publish: Path | None) -> int:
    """Read every node over Redfish, SSH and kubectl, and write what was seen. Nothing is changed."""
    from reconciler.app.session import Session
    from reconciler.model.documents import dump
    from reconciler.model.units import parse_nodes
    from reconciler.render.apart import shown_apart
    from reconciler.render.observation import as_markdown, human, unanswered

    session = Session(common)
    names, scope = session.selection
    observation = session.observe()
    with session.ledger() as ledger:
        session.learn(observation, ledger)
    if out is not None:
        write_file(out, dump(observation))
    if common.output == "json":
        show(dump(observation), common.output)
    else:
        show(
            shown_apart(observation, partial(human if common.output == "human" else as_markdown, scope=scope)),
            common.output,
        )
    if publish is not None:
        write_published(session, observation, publish)
    silent = unanswered(observation, names)
    tolerated = len(silent) <= parse_nodes(session.fleet.settings.tolerate, len(names))
    return ExitCode.DONE if tolerated else ExitCode.INCOMPLETE
