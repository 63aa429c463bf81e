"""--publish: what an offline plan may be made from, for whoever may read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import OutFile, write_file
from reconciler.cli.terminal import say

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.model.observed import Observation

publish_option = click.option(
    "--publish", type=OutFile(), metavar="FILE",
    help="Also write what anybody may see, for offline plans: digests in place of serials and names of hosts.",
)  # fmt: skip


def write_published(session: Session, observation: Observation, path: Path) -> None:
    """ReconcilerError when it fails: the document is told by then. A blind pass leaves the last good one be."""
    import secrets

    from reconciler.model.documents import dump
    from reconciler.planner.fleet.observer_outage import observer_outage
    from reconciler.render.publish import publish

    if blind := observer_outage(session.watched, observation):
        say(f"not published: {blind}", err=True)
        return
    images = (node.profile.image for node in session.fleet.nodes.values())
    names = {image.key for image in images if image is not None and image.key is not None}
    keys = {name: key for name in sorted(names) if (key := session.secrets.public_key(name)) is not None}
    with session.ledger() as ledger:
        made = publish(session.fleet, observation, ledger, secrets.token_bytes(32), keys)
    overlay = session.overlay
    write_file(path, dump(made if overlay is None else replace(made, epoch=overlay.epoch)))
