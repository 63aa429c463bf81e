"""reconciler comment"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from reconciler.app.comment_publisher import CommentPublisher
    from reconciler.model.forge import Forge
    from reconciler.model.plan import Plan
    from reconciler.model.report import ApplyOutcome, DriftReport
    from reconciler.render.comment import Comment, Place

_LOG: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Where the report goes."""

    repository: str
    pull: int | None
    commit: str
    issue: bool
    pulls: bool
    spec: Path
    afresh: bool

    @property
    def nowhere(self) -> bool:
        return self.pull is None and not self.commit and not self.issue and not self.pulls


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--repo", envvar="GITHUB_REPOSITORY", default="", metavar="OWNER/NAME", help="The repository.")
@click.option("--pr", type=click.IntRange(min=1), metavar="N", help="Comment on this pull request.")
@click.option(
    "--commit", default="", metavar="SHA",
    help="What the report is about: it gets a status, and without --pr its pull requests get the comment.",
)  # fmt: skip
@click.option("--issue", is_flag=True, help="Keep one issue while there is drift, and close it when there is none.")
@click.option("--pulls", is_flag=True, help="Tell drift to every open pull request that touches those nodes.")
@click.option("--comment-mode", "mode", type=click.Choice(["edit", "new"]), default="edit", show_default=True,
              help="For a new commit: edit the comment, or post a new one and fold the old one away.")  # fmt: skip
@click.option("--environment", default="", metavar="NAME", help="Which of several places of one fleet, if there are.")
@click.option(
    "--failed", type=click.Choice(["plan", "drift", "apply", "fork"]),
    help="What to report as failed, if there is no FILE, or an empty one; fork: an offline plan.",
)  # fmt: skip
@click.option("--log", "logs", type=click.Path(path_type=Path, dir_okay=False), multiple=True, metavar="FILE",
              help="What a failure said; of several, the last that says anything.")  # fmt: skip
@click.option("--spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"),
              show_default=True, help="For --pulls, and for the fleet's name with --failed.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the comment; contact nobody.")
def comment(
    file: Path | None, repo: str, pr: int | None, commit: str, issue: bool, pulls: bool, mode: str, environment: str,
    failed: str | None, logs: tuple[Path, ...], spec: Path, dry_run: bool,
) -> None:  # fmt: skip
    """Report a plan, drift report or outcome where it is decided upon: a comment that is found again and edited, the
    verdict on the commit, and the summary of the job.

    The token is in RECONCILER_FORGE_TOKEN or GITHUB_TOKEN; GITHUB_API_URL names an Enterprise server.
    """
    from reconciler.app.session import run_async

    target = Target(repo, pr, commit, issue, pulls, spec, mode == "new")
    place = _place(environment, commit)
    missing = file is None or not file.is_file() or not file.stat().st_size
    document = None if failed is not None and missing else _document(file)
    made = _comment(document, place) if document is not None else _failure(failed or "", logs, spec, place)
    if issue or pulls:
        _check_drift(document, failed)
    if dry_run:
        show(made.text, "markdown")
        return
    _summary(document, made, place)
    if target.nowhere:
        if "GITHUB_STEP_SUMMARY" not in os.environ:
            raise UsageError("say where the report goes: --pr, --commit, --issue or --pulls; or --dry-run")
        return
    run_async(_post(target, place, document, made, offline=_offline(document, failed)))


def _place(environment: str, head: str) -> Place:
    """The address of this attempt of this job, from what GitHub Actions sets."""
    from reconciler.render.comment import Place

    parts = [os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    url = ""
    if all(parts):
        server, repository, run = parts
        url = f"{server}/{repository}/actions/runs/{run}/attempts/{os.environ.get('GITHUB_RUN_ATTEMPT', '1')}"
    return Place(environment, url, head)


def _document(file: Path | None) -> Plan | DriftReport | ApplyOutcome:
    from reconciler.app.documents import read_document
    from reconciler.model.observed import Observation
    from reconciler.model.period_report import PeriodReport

    if file is None:
        raise UsageError("name the document to report, or say with --failed what there is none of")
    if not file.is_file():
        raise UsageError(f"there is no file {file}; if the command failed that should have written it, say --failed")
    found = read_document(file)
    if isinstance(found, PeriodReport):
        raise UsageError(f"{file}: a report of a period is about no change: report a plan, a drift or an outcome")
    if isinstance(found, Observation):
        raise UsageError(f"{file}: an observation says what is, and not whether it should: report a plan or a drift")
    return found


def _comment(document: Plan | DriftReport | ApplyOutcome, place: Place) -> Comment:
    from reconciler.render.comment import comment as write

    return write(document, place)


def _failure(what: str, logs: tuple[Path, ...], spec: Path, place: Place) -> Comment:
    from reconciler.render.comment import Missing, failure
    from reconciler.spec.naming import fleet_name

    said = next((text for log in reversed(logs) if log.is_file() and (text := _end(log)).strip()), "")
    name = fleet_name(spec) if spec.is_dir() else None
    return failure(Missing(what), name or "unknown", said or "no output was kept", place)


def _end(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG))
        return stream.read().decode(errors="replace")


def _check_drift(document: object, failed: str | None) -> None:
    from reconciler.model.report import DriftReport

    if not isinstance(document, DriftReport) and failed != "drift":
        raise UsageError("--issue and --pulls are for drift reports")


def _offline(document: object, failed: str | None) -> bool:
    from reconciler.model.plan import Plan
    from reconciler.render.comment import Missing

    return failed == Missing.FORK if document is None else isinstance(document, Plan) and document.offline is not None


def _summary(document: Plan | DriftReport | ApplyOutcome | None, made: Comment, place: Place) -> None:
    """Of the job, where there is one: what a reader of its page sees, and where there is room for more."""
    from reconciler.render.comment import comment as write
    from reconciler.render.markdown import SUMMARY

    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        full = write(document, place, SUMMARY) if document is not None and made.truncated else made
        with Path(path).open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(full.text.partition("\n")[2] + "\n")


def _forge(repository: str) -> Forge:
    from reconciler.app.clocks import RealClock
    from reconciler.drivers.forge import connect

    if not repository:
        raise UsageError("say which repository with --repo OWNER/NAME")
    token = os.environ.get("RECONCILER_FORGE_TOKEN") or os.environ.get("GITHUB_TOKEN") or ""
    if not token:
        raise UsageError("there is no token: set RECONCILER_FORGE_TOKEN or GITHUB_TOKEN")
    url, login = os.environ.get("GITHUB_API_URL", ""), os.environ.get("RECONCILER_FORGE_LOGIN", "")
    return connect(repository, token, RealClock(), url=url, login=login)


async def _post(
    target: Target, place: Place, document: Plan | DriftReport | ApplyOutcome | None, made: Comment, *, offline: bool
) -> None:
    from reconciler.app.comment_publisher import CommentPublisher

    forge = _forge(target.repository)
    try:
        desk = CommentPublisher(forge, place, lambda line: say(line, err=True), target.afresh)
        await _comments(desk, target, document, made, offline=offline)
        if target.issue or target.pulls:
            await _drift(desk, target, document, made)
        if target.commit:
            await desk.check(target.commit, made, offline=offline)
    finally:
        await forge.close()


async def _comments(
    desk: CommentPublisher,
    target: Target,
    document: Plan | DriftReport | ApplyOutcome | None,
    made: Comment,
    *,
    offline: bool,
) -> None:
    """On the pull request that was named; else on those that the commit is the head of, or came from.

    A fork may have the commit of a branch of ours: what is made offline is for forks, what is made of nodes is not.
    """
    from reconciler.app.comment_publisher import says_nothing
    from reconciler.render.comment import Kind

    applied = made.key.startswith(f"{Kind.APPLY}/")
    pulls = [target.pull] if target.pull is not None else []
    if not pulls and target.commit and applied:
        pulls = [pull.number for pull in await desk.forge.pulls_of(target.commit)]
    elif not pulls and target.commit:
        pulls = [pull.number for pull in await desk.forge.open_pulls()
                 if pull.head == target.commit and pull.fork == offline]  # fmt: skip
    quiet = document is not None and says_nothing(document)
    for pull in pulls:
        if not applied:
            await desk.sticky(pull, made, quiet=quiet)
        elif not quiet:
            await desk.applied(pull, made)


async def _drift(desk: CommentPublisher, target: Target, document: object, made: Comment) -> None:
    from reconciler.app.comment_publisher import is_clean
    from reconciler.model.report import DriftReport

    report = document if isinstance(document, DriftReport) else None
    if target.issue:
        await desk.issue(made, clean=report is not None and is_clean(report))
    if target.pulls and report is not None:
        from reconciler.app.session import Session
        from reconciler.app.touched import touched
        from reconciler.cli.options import Common
        from reconciler.drivers.git import folder

        fleet = Session(Common(target.spec, None, "human", (), (), None, None)).fleet
        below = folder(target.spec)
        await desk.every_pull(report, lambda files: touched(fleet, below, files))
