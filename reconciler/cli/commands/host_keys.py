"""reconciler host-keys"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.host_keys import export_krl, known_keys
from reconciler.app.ledger_admin import existing_ledger
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import ledger_location_options, output_option
from reconciler.cli.terminal import say
from reconciler.model.host_certificate import HostCertificate
from reconciler.render.text import clock, count


@click.group(cls=Group, name="host-keys")
def host_keys() -> None:
    """List the SSH host keys of nodes, or export those that are revoked."""


@host_keys.command(name="list")
@ledger_location_options
@output_option
def listed(request: FleetRequest, output: str) -> None:
    """List the host keys that installs had certified or revoked, by node.

    A node's own key is `certified`, an earlier one `replaced`. What is `revoked` is never trusted again. `from` and
    `until`: when its newest certificate is valid, `-` where it has none.
    """
    workspace = workspace_for(request)
    with existing_ledger(workspace) as ledger:
        rows = [
            (one.node, one.state, clock(one.since), *_validity(one.certificate), one.key)
            for one in known_keys(ledger.installs())
        ]
    head = ("node", "state", "since", "from", "until", "key")
    print_listing(head, rows, output, empty="no host key was certified or revoked", time_scale=workspace.time_scale)


def _validity(certificate: HostCertificate | None) -> tuple[str, str]:
    return ("-", "-") if certificate is None else (clock(certificate.valid_after), clock(certificate.valid_before))


@host_keys.command()
@ledger_location_options
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE",
              help="The list, for RevokedHostKeys of ssh_config(5). It is replaced as a whole.")  # fmt: skip
def krl(request: FleetRequest, out: Path) -> None:
    """Export the revoked host keys as an OpenSSH key revocation list, so that your own SSH refuses them."""
    with existing_ledger(workspace_for(request)) as ledger:
        found = export_krl(ledger, out)
    say(f"{count(found, 'revoked host key')} written to {out}")
