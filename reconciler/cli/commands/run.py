"""reconciler run"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.recorder import Place, ready_recorder, record_option
from reconciler.app.signed import signer_options
from reconciler.cli.options import Common, Duration, endpoints_option, ledger_option
from reconciler.model.errors import UsageError

LEAST_INTERVAL_S = 10.0


@click.command()
@click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"))
@click.option("--repo", metavar="URL", help="Follow the spec in this git repository, and not in a directory.")
@click.option("--branch", default="", metavar="NAME", help="Of the repository; its own choice if left out.")
@click.option("--path", default="fleet-spec", show_default=True, metavar="DIR", help="Of the spec in the repository.")
@click.option("--repo-secret", metavar="NAME", help="Secret with user name and password for the repository.")
@signer_options
@click.option("--accept", default="", metavar="COMMIT", help="Go on from this commit, though history was rewritten.")
@click.option("--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Where the clone of the repository lies. Default: in the state directory.")  # fmt: skip
@click.option("--interval", type=Duration(), default="2m", show_default=True, metavar="DURATION",
              help="Between passes over the whole fleet; what the cluster tells of is looked at once.")  # fmt: skip
@click.option("--pull", type=Duration(), default="30s", show_default=True, metavar="DURATION",
              help="Between looks for a new spec.")  # fmt: skip
@click.option("--listen", default="127.0.0.1:8090", show_default=True, metavar="ADDRESS",
              help="Serve /healthz, /readyz and /metrics here; off = not at all.")  # fmt: skip
@click.option("--log", type=click.Choice(["human", "json"]), help="Default: human on a terminal, json elsewhere.")
@record_option
@click.option("--redact", is_flag=True, envvar="RECONCILER_REDACT",
              help="Leave serials, names and addresses of machines out of what is recorded.")  # fmt: skip
@ledger_option()
@endpoints_option()
def run(
    spec: Path, repo: str | None, branch: str, path: str, repo_secret: str | None, allowed_signers: Path | None,
    allowed_keys: Path | None, accept: str, state: Path | None, interval: float, pull: float, listen: str,
    log: str | None, record: Place | None, redact: bool, ledger: str | None, endpoints: Path | None,
) -> int:  # fmt: skip
    """Keep the fleet as its spec says, for as long as it runs.

    Acts when the spec's drift mode is correct, under its budgets, waves and windows; otherwise it reports. Of several
    on one ledger one leads, and the others stand by. SIGTERM parks what runs, and the next one goes on with it.
    """
    from reconciler.app.service import Following, Service
    from reconciler.app.session import Session

    if interval < LEAST_INTERVAL_S:
        raise click.UsageError(f"--interval of {interval:g}s would never let BMCs rest; 10s is the least")
    following = Following(spec, repo, branch, path, repo_secret, allowed_signers, allowed_keys, accept, state)
    session = Session(Common(spec, None, "human", (), (), ledger, endpoints))
    if repo is not None and record is not None and record.branch:
        raise UsageError("a branch of a clone of ours would be seen by nobody: with --repo, record to a directory")
    return Service(
        session, following, interval_s=interval, pull_s=pull, listen=listen, log=log,
        recorder=ready_recorder(record, session), redact=redact,
    ).serve()  # fmt: skip
