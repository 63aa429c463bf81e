"""reconciler forge"""

from __future__ import annotations

import click

from reconciler.app.forge_approvals import require_approvals
from reconciler.cli.frontend import TERMINAL

_REPOSITORY = click.option(
    "--repo", "repository", envvar=["GITHUB_REPOSITORY", "CI_PROJECT_PATH"], default="", metavar="OWNER/NAME",
    help="Repository on the forge.",
)  # fmt: skip


@click.group()
def forge() -> None:
    """Ask the forge (GitHub or GitLab) about pull requests. Token and forge are those of `comment`."""


@forge.command()
@click.argument("commit", envvar=["GITHUB_SHA", "CI_COMMIT_SHA"])
@click.option("--least", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Accounts that must have approved, besides the author's.")  # fmt: skip
@_REPOSITORY
def approvals(repository: str, commit: str, least: int) -> None:
    """Fail unless the pull request that brought COMMIT was approved, with its last commit.

    COMMIT is that of the CI job if left out.
    """
    require_approvals(repository, commit, least, TERMINAL.say)
