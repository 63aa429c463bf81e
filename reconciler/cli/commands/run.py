"""reconciler run"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.app.ports import AllowedSigners, FleetRequest, RecordTarget
from reconciler.app.recording import open_recorder
from reconciler.app.service import Service, ServiceOptions, ServiceRequest, SpecSource, WebRequest
from reconciler.app.workspace import Workspace
from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.frontend import workspace_for
from reconciler.cli.json_log import JsonLog
from reconciler.cli.options import (
    Duration,
    Roles,
    by_name,
    engine_options,
    grouped,
    record_option,
    signer_options,
    spec_argument,
    spec_options,
)
from reconciler.cli.progress import make_progress
from reconciler.model.errors import UsageError
from reconciler.model.records import LEAST_RETENTION

if TYPE_CHECKING:
    from reconciler.app.ports import Progress

LEAST_INTERVAL_S = 10.0

_SOURCE = (
    click.option("--repo", metavar="URL", help="Follow the spec in this git repository, in place of a directory."),
    click.option("--branch", default="", metavar="NAME", help="Branch of the repository. Default: its default branch."),
    click.option("--path", default="fleet-spec", show_default=True, metavar="DIR",
                 help="Directory of the spec in the repository."),
    click.option("--repo-secret", "secret", metavar="NAME",
                 help="Secret with user name and password for the repository."),
    click.option("--accept", default="", metavar="COMMIT",
                 help="Continue from this commit although history was rewritten."),
    click.option("--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                 help="Directory of the clone of the repository. Default: in the state directory."),
)  # fmt: skip
_SERVICE = (
    click.option("--interval", "interval_s", type=Duration(), default="2m", show_default=True, metavar="DURATION",
                 help="Time between passes over the fleet. Nodes with events in the cluster are read at once."),
    click.option("--pull", "pull_s", type=Duration(), default="30s", show_default=True, metavar="DURATION",
                 help="Time between checks for a new spec."),
    click.option("--retention", "retention_s", type=Duration(), metavar="DURATION",
                 help="Prune older rows of the journal that nothing needs, such as 400d. Default: keep all."),
    click.option("--redact", is_flag=True, envvar="RECONCILER_REDACT",
                 help="Leave serials, host names and addresses of machines out of what is recorded."),
)  # fmt: skip
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_WEB = (
    click.option("--listen", default="127.0.0.1:8090", show_default=True, metavar="ADDRESS",
                 help="Address of the page, the API and /metrics: host:port, unix:PATH, or off."),
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate of the address, with its chain, in PEM."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of that certificate."),
    click.option("--tls-client-ca", type=_FILE, metavar="FILE",
                 help="CA that clients need a certificate of, such as a reverse proxy."),
    click.option("--token", "tokens", type=Roles(), multiple=True, metavar="NAME=ROLE", callback=by_name,
                 help="The secret NAME is a bearer token with a role: viewer, operator or admin. Repeatable."),
    click.option("--proxy-role", "proxy_roles", type=Roles(), multiple=True, metavar="GROUP=ROLE", callback=by_name,
                 help="Users of GROUP in X-Forwarded-Groups of the proxy have a role. Repeatable."),
    click.option("--pod", default="", metavar="NAMESPACE/NAME",
                 help="Pod that this runs in: its label reconciler.dev/role tells a Service which of several leads."),
    click.option("--health-map", default="", metavar="NAMESPACE/NAME",
                 help="ConfigMap in which the leader says how the fleet is, for Argo CD's health check."),
)  # fmt: skip


@click.command()
@spec_options(spec_argument, *engine_options)
@grouped(SpecSource, *_SOURCE)
@signer_options
@grouped(ServiceOptions, *_SERVICE)
@grouped(WebRequest, *_WEB)
@click.option(
    "--log", type=click.Choice(["human", "json"]), help="Log format. Default: human on a terminal, json elsewhere."
)
@record_option
def run(
    request: FleetRequest, source: SpecSource, signers: AllowedSigners, options: ServiceOptions, web: WebRequest,
    log: str | None, record_to: RecordTarget | None,
) -> None:  # fmt: skip
    """Keep the fleet converged to its spec, as a service.

    It acts when the drift mode of the spec is `correct`, within its budgets, waves and windows; otherwise it reports.
    Of several services on one ledger, one leads and the others wait. SIGTERM parks what runs, and the next service
    continues it.
    """
    if options.interval_s < LEAST_INTERVAL_S:
        raise click.UsageError(f"--interval of {options.interval_s:g}s is too short for BMCs; 10s is the minimum")
    if options.retention_s is not None and options.retention_s < LEAST_RETENTION.total_seconds():
        raise click.UsageError(f"--retention is {LEAST_RETENTION.days}d at least")
    if source.repo is not None and record_to is not None and record_to.branch:
        raise UsageError("--record branch:NAME would write to a private clone: with --repo, record to a directory")
    workspace = workspace_for(request)
    recorder = open_recorder(record_to, workspace)
    service = Service(workspace, source, ServiceRequest(signers, options, web, recorder))
    with _progress(workspace, log) as progress:
        service.serve(progress)
    CRASHES.reset()  # each was reported when it occurred, and none of them ended the service


@contextmanager
def _progress(workspace: Workspace, log: str | None) -> Iterator[Progress]:
    if log == "human" or (log is None and sys.stderr.isatty()):
        with make_progress("observing", workspace.clock.now) as progress:
            yield progress
        return
    json_log = JsonLog(workspace.clock.now)
    with json_log.libraries():
        yield json_log
