"""reconciler reference"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.ports import FleetRequest
from reconciler.app.reference import build_references
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import output_option, spec_argument, spec_options
from reconciler.model.reference import FOLDER


@click.group(cls=Group)
def reference() -> None:
    """Write what certified nodes measured as documents of the spec, for bars by peers."""


@reference.command()
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory. Absent: reference/ in the spec."
)
@spec_options(spec_argument)
@output_option
def build(request: FleetRequest, out: Path | None, output: str) -> None:
    """Write reference/*.json of the spec from the newest certificates in the ledger. Review and commit them.

    Nodes are peers that have the same hardware and image, and ran the same test with the same version of its tool.
    """
    workspace = workspace_for(request)
    made = build_references(workspace, out if out is not None else request.spec / FOLDER)
    rows = [
        (path.name, found.test, name, figures.n, f"{figures.median:g}", f"{figures.mad:g}", f"{figures.p5:g}")
        for path, found in made
        for name, figures in found.metrics.items()
    ]
    columns = ("file", "test", "metric", "n", "median", "MAD", "p5")
    print_listing(columns, rows, output, empty="no node has a certificate with tests")
