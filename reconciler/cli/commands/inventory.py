"""reconciler inventory"""

from __future__ import annotations

import click

from reconciler.app.inventory.propose import check_committed, difference_of, drafted_change, left_to_you
from reconciler.app.ports import FleetRequest
from reconciler.app.proposing import propose_by_hand
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.options import spec_options
from reconciler.cli.terminal import say, show


@click.group(cls=Group)
def inventory() -> None:
    """Keep the nodes of the spec in step with the inventory that the Fleet names."""


@inventory.command()
@click.option("--repo", default="", metavar="OWNER/NAME", help="Repository of the spec. Default: the CI job's.")
@click.option("--dry-run", is_flag=True, help="Print the text and the edits of the spec, and ask no forge.")
@spec_options()
def propose(request: FleetRequest, repo: str, dry_run: bool) -> None:
    """Keep one pull request that adds, changes and retires nodes as the inventory says. It removes none."""
    workspace = workspace_for(request)
    if not dry_run:
        check_committed(workspace)
    difference = difference_of(workspace)
    change, files = drafted_change(workspace, difference)
    if dry_run:
        show("\n".join((change.text, *(line.rstrip("\n") for line in files.diff("")), "")))
        return
    for sentence in left_to_you(difference):
        say(sentence, err=True)
    propose_by_hand(change, repo, lambda text: say(text, err=True))
