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
                 help="Which of several places of one fleet, if there are."),
    click.option("--failed", type=click.Choice(["plan", "drift", "apply", "fork"]),
                 help="What to report as failed, if there is no FILE, or an empty one; fork: an offline plan."),
    click.option("--log", "logs", type=click.Path(path_type=Path, dir_okay=False), multiple=True, metavar="FILE",
                 help="What a failure said; of several, the last that says anything."),
)  # fmt: skip
_TARGET = (
    click.option("--repo", "repository", envvar="GITHUB_REPOSITORY", default="", metavar="OWNER/NAME",
                 help="The repository."),
    click.option("--pr", "pull", type=click.IntRange(min=1), metavar="N", help="Comment on this pull request."),
    click.option("--commit", default="", metavar="SHA",
                 help="What the report is about: it gets a status, and without --pr its pull requests get the "
                 "comment."),
    click.option("--issue", is_flag=True,
                 help="Keep one issue while there is drift, and close it when there is none."),
    click.option("--pulls", is_flag=True, help="Tell drift to every open pull request that touches those nodes."),
    click.option("--comment-mode", "new_comment", type=click.Choice(["edit", "new"]), default="edit",
                 show_default=True, callback=lambda _ctx, _option, value: value == "new",
                 help="For a new commit: edit the comment, or post a new one and fold the old one away."),
    click.option("--spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"),
                 show_default=True, help="For --pulls, and for the fleet's name with --failed."),
)  # fmt: skip


@click.command()
@grouped(CommentSource, *_SOURCE)
@grouped(CommentTarget, *_TARGET)
@click.option("--dry-run", is_flag=True, help="Print the comment; contact nobody.")
def comment(source: CommentSource, target: CommentTarget, dry_run: bool) -> None:
    """Report a plan, drift report or outcome where it is decided upon: a comment that is found again and edited, the
    verdict on the commit, and the summary of the job.

    The token is in RECONCILER_FORGE_TOKEN or GITHUB_TOKEN; GITHUB_API_URL names an Enterprise server.
    """
    prepared = prepare_comment(source, target)
    if dry_run:
        show(prepared.comment.text, "markdown")
    else:
        publish_comment(prepared, target, TERMINAL.say)
