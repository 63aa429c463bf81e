"""reconciler audit"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from reconciler.app.ledger_admin import existing_ledger
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import ledger_location_options, output_option
from reconciler.cli.terminal import show
from reconciler.render.text import clock, count, markdown, plain


@click.group(cls=Group)
def audit() -> None:
    """Verify or list the journal of everything that was done."""


@audit.command()
@ledger_location_options
@click.option("--head", "noted", default="", metavar="DIGEST",
              help="Head that an earlier verification printed. It must still be part of the chain.")  # fmt: skip
@output_option
def verify(request: FleetRequest, noted: str, output: str) -> int:
    """Verify the hash chain of the journal, and name the first row that was changed, removed, inserted or cut off.

    Certificates, serial numbers, UUIDs and TPMs of nodes, their proved boots and their installs (with host keys that
    were certified or revoked) are verified with it, and that the fencing token is higher than that of every row and
    lease. What the chain does not cover is printed.

    Somebody who can write the whole database can write a new chain. Store the head that this command prints
    elsewhere, and pass it with --head the next time.
    """
    workspace = workspace_for(request)
    with existing_ledger(workspace) as ledger:
        found, name = ledger.audit(noted, workspace.clock.now()), ledger.name
    if output == "json":
        show(json.dumps({"ledger": name, **asdict(found)}, indent=1) + "\n", output)
    else:
        bound = (
            f"{count(found.certificates, 'certificate')} and the serial numbers of {count(found.identities, 'node')}"
        )
        whole = f"{count(found.rows, 'row')}, {bound} as they were written"
        where = f"row {found.row} " if found.row is not None else ""
        if found.pruned:
            older = f"; {count(found.pruned, 'row')} of until {found.pruned_until[:10]} were pruned"
            whole += f"{older}, which {count(found.anchors, 'anchor')} stand for"
        verdict = whole if not found.problem else f"NOT as it was written: {where}{found.problem}: {found.detail}"
        lines = [f"Journal of {name}: {plain(verdict, 1000)}", f"  {count(found.rows, 'row')}, head {found.head}"]
        limits = f"Not covered: {'; '.join(found.not_covered)}."
        lines.append(f"  {limits}")
        if output == "markdown":
            sign = "🔴" if found.problem else "✅"
            lines = [
                f"## {sign} Audit",
                "",
                f"**{markdown(lines[0], 1000)}**",
                "",
                f"<sub>head {found.head}</sub>",
                "",
                limits,
            ]
        show("\n".join([*lines, ""]), output)
    return ExitCode.INTERNAL_ERROR if found.problem else ExitCode.DONE


@audit.command(name="list")
@ledger_location_options
@click.option("--node", metavar="NODE", help="Only rows of this node.")
@click.option(
    "--last", type=click.IntRange(1, 1_000_000), default=50, show_default=True, metavar="N", help="Number of rows."
)
@output_option
def listed(request: FleetRequest, node: str | None, last: int, output: str) -> None:
    """List the newest rows of the journal, of all nodes and runs."""
    workspace = workspace_for(request)
    with existing_ledger(workspace) as ledger:
        entries = ledger.journal(node, last)
    rows = [(number, clock(e.at), e.event, e.node, e.action, e.detail, e.run) for number, e in entries]
    head = ("row", "when", "what", "node", "action", "detail", "run")
    print_listing(head, rows, output, empty="the journal is empty", time_scale=workspace.time_scale)
