"""reconciler run"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from reconciler.app.ports import AllowedSigners, FleetRequest, RecordTarget
from reconciler.app.recording import open_recorder
from reconciler.app.service import Service, ServiceOptions, SpecSource
from reconciler.app.workspace import Workspace
from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.frontend import workspace_for
from reconciler.cli.json_log import JsonLog
from reconciler.cli.options import (
    Duration,
    grouped,
    record_option,
    signer_options,
    spec_argument,
    spec_options,
)
from reconciler.cli.progress import LineProgress
from reconciler.converge.events import Progress
from reconciler.model.errors import UsageError

LEAST_INTERVAL_S = 10.0

_SOURCE = (
    click.option("--repo", metavar="URL", help="Follow the spec in this git repository, and not in a directory."),
    click.option("--branch", default="", metavar="NAME", help="Of the repository; its own choice if left out."),
    click.option("--path", default="fleet-spec", show_default=True, metavar="DIR",
                 help="Of the spec in the repository."),
    click.option("--repo-secret", "secret", metavar="NAME",
                 help="Secret with user name and password for the repository."),
    click.option("--accept", default="", metavar="COMMIT",
                 help="Go on from this commit, though history was rewritten."),
    click.option("--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                 help="Where the clone of the repository lies. Default: in the state directory."),
)  # fmt: skip
_SERVICE = (
    click.option("--interval", "interval_s", type=Duration(), default="2m", show_default=True, metavar="DURATION",
                 help="Between passes over the whole fleet; what the cluster tells of is looked at once."),
    click.option("--pull", "pull_s", type=Duration(), default="30s", show_default=True, metavar="DURATION",
                 help="Between looks for a new spec."),
    click.option("--listen", default="127.0.0.1:8090", show_default=True, metavar="ADDRESS",
                 help="Serve /healthz, /readyz and /metrics here; off = not at all."),
    click.option("--redact", is_flag=True, envvar="RECONCILER_REDACT",
                 help="Leave serials, names and addresses of machines out of what is recorded."),
)  # fmt: skip


@click.command()
@spec_options(spec_argument)
@grouped(SpecSource, *_SOURCE)
@signer_options
@grouped(ServiceOptions, *_SERVICE)
@click.option("--log", type=click.Choice(["human", "json"]), help="Default: human on a terminal, json elsewhere.")
@record_option
def run(
    request: FleetRequest, source: SpecSource, signers: AllowedSigners, options: ServiceOptions, log: str | None,
    record_to: RecordTarget | None,
) -> None:  # fmt: skip
    """Keep the fleet as its spec says, for as long as it runs.

    Acts when the spec's drift mode is correct, under its budgets, waves and windows; otherwise it reports. Of several
    on one ledger one leads, and the others stand by. SIGTERM parks what runs, and the next one goes on with it.
    """
    if options.interval_s < LEAST_INTERVAL_S:
        raise click.UsageError(f"--interval of {options.interval_s:g}s would never let BMCs rest; 10s is the least")
    if source.repo is not None and record_to is not None and record_to.branch:
        raise UsageError("a branch of a clone of ours would be seen by nobody: with --repo, record to a directory")
    workspace = workspace_for(request)
    service = Service(workspace, source, signers, options, open_recorder(record_to, workspace))
    with _progress(workspace, log) as progress:
        service.serve(progress)
    CRASHES.reset()  # each was reported when it occurred, and none of them ended the service


@contextmanager
def _progress(workspace: Workspace, log: str | None) -> Iterator[Progress]:
    if log == "human" or (log is None and sys.stderr.isatty()):
        yield LineProgress("observing")
        return
    json_log = JsonLog(workspace.clock.now)
    with json_log.libraries():
        yield json_log
