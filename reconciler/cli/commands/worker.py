"""reconciler worker"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import SiteName, endpoints_option, engine_tls_option


@click.command()
@click.option("--site", type=SiteName(), required=True, metavar="NAME",
              help="Site whose nodes it reads: domains.site in the spec.")  # fmt: skip
@click.option("--scheduler", required=True, metavar="URL", help="tls://host:port of the scheduler.")
@click.option("--listen", metavar="ADDRESS",
              help="Address at which the scheduler reaches it. Default: 127.0.0.1, for one there.")  # fmt: skip
@engine_tls_option
@endpoints_option()
def worker(site: str, scheduler: str, listen: str | None, engine_tls: Path | None, endpoints: Path | None) -> None:
    """Read the nodes of one site for `plan`, `apply` and `run --engine`, with the secrets of this machine.

    It writes nothing, and works until SIGTERM, or until its scheduler is gone.
    """
    request = FleetRequest(Path(), endpoints=endpoints, engine=scheduler, engine_tls=engine_tls)
    workspace = workspace_for(request)  # refuses without Dask, which the next line imports
    from reconciler.app.worker import work

    work(workspace, site, listen)
