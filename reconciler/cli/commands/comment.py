"""reconciler comment"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.comment import CommentSource, CommentTarget, prepare_comment, publish_comment
from reconciler.cli.frontend import TERMINAL
from reconciler.cli.options import grouped
from reconciler.cli.terminal import show

_SOURCE = (
    click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False),
    click.option("--environment", default="", metavar="NAME",
                 help="Name of the environment, where one fleet has several."),
    click.option("--failed", type=click.Choice(["plan", "drift", "apply", "fork"]),
                 help="Command to report as failed when FILE is missing or empty. fork: an offline plan."),
    click.option("--log", "logs", type=click.Path(path_type=Path, dir_okay=False), multiple=True, metavar="FILE",
                 help="Output of the failed command. Of several files, the last one with any text is shown."),
)  # fmt: skip
_TARGET = (
    click.option("--repo", "repository", envvar=["GITHUB_REPOSITORY", "CI_PROJECT_PATH"], default="",
                 metavar="OWNER/NAME",
                 help="Repository to report to."),
    click.option("--pr", "pull", type=click.IntRange(min=1), envvar="CI_MERGE_REQUEST_IID", metavar="N",
                 help="Comment on this pull request, or merge request."),
    click.option("--commit", default="", metavar="SHA",
                 help="Commit that the report is about. It gets a status; without --pr, its pull requests get the "
                 "comment."),
    click.option("--issue", is_flag=True,
                 help="Keep one issue open while there is drift, and close it when there is none."),
    click.option("--pulls", is_flag=True, help="Comment on every open pull request that touches a node with drift."),
    click.option("--comment-mode", "new_comment", type=click.Choice(["edit", "new"]), default="edit",
                 show_default=True, callback=lambda _ctx, _option, value: value == "new",
                 help="On a new commit, edit the comment, or post a new one and collapse the old one."),
    click.option("--spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"),
                 show_default=True, help="Spec for --pulls, and for the name of the fleet with --failed."),
)  # fmt: skip


@click.command()
@grouped(CommentSource, *_SOURCE)
@grouped(CommentTarget, *_TARGET)
@click.option("--dry-run", is_flag=True, help="Print the comment and contact nobody.")
def comment(source: CommentSource, target: CommentTarget, dry_run: bool) -> None:
    """Report a plan, drift report or outcome on the forge: as a comment that later runs edit, as the status of the
    commit, and in the summary of the CI job.

    The token is in RECONCILER_FORGE_TOKEN, or in GITHUB_TOKEN or GITLAB_TOKEN. GITHUB_API_URL names an Enterprise
    server; where CI_API_V4_URL is set, the forge is GitLab.
    """
    prepared = prepare_comment(source, target)
    if dry_run:
        show(prepared.comment.text, "markdown")
    else:
        publish_comment(prepared, target, TERMINAL.say)
