"""reconciler forge"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.forge_approvals import require_approvals
from reconciler.app.forge_request import ForgeRequest, forge_request
from reconciler.app.forge_request import reply as post_reply
from reconciler.cli.frontend import TERMINAL
from reconciler.cli.groups import Group
from reconciler.cli.terminal import say
from reconciler.model.forge_commands import CommentCommand, Verb

_REPOSITORY = click.option(
    "--repo", "repository", envvar=["GITHUB_REPOSITORY", "CI_PROJECT_PATH"], default="", metavar="OWNER/NAME",
    help="Repository on the forge.",
)  # fmt: skip


@click.group(cls=Group)
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


@forge.command()
@click.argument("event", envvar=["GITHUB_EVENT_PATH", "TRIGGER_PAYLOAD"],
                type=click.Path(path_type=Path, exists=True, dir_okay=False))  # fmt: skip
@_REPOSITORY
def request(repository: str, event: Path) -> None:
    """Print what EVENT asks for, as variables of a CI job: RECONCILER_VERB and more.

    EVENT is the JSON of a new comment, or of a merge request on GitLab; that of the CI job if left out. A command is
    taken from accounts that may push to the repository, as the forge says. What is no command, or of somebody else, is
    answered in a comment, and RECONCILER_VERB is `nothing`.
    """
    for name, value in forge_request(repository, event).variables().items():
        say(f"{name}={value}")


@forge.command()
@click.argument("output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--pr",
    "pull",
    type=click.IntRange(min=1),
    envvar="RECONCILER_PULL",
    required=True,
    metavar="N",
    help="Pull request with the comment.",
)
@click.option(
    "--verb",
    type=click.Choice([one.value for one in Verb]),
    envvar="RECONCILER_VERB",
    required=True,
    help="Its command.",
)
@click.option("--node", envvar="RECONCILER_NODE", default="", metavar="NODE", help="Its node.")
@click.option("--actor", envvar="RECONCILER_ACTOR", required=True, metavar="NAME", help="Account that wrote it.")
@click.option("--failed", is_flag=True, help="Say that the command failed.")
@_REPOSITORY
def reply(repository: str, pull: int, verb: Verb, node: str, actor: str, output: Path, failed: bool) -> None:
    """Answer a command in a comment with what it printed, which is in FILE."""
    request = ForgeRequest(verb, pull, account=actor, command=CommentCommand(Verb(verb), node))
    TERMINAL.say(f"posted {post_reply(repository, request, output, failed=failed)}")
