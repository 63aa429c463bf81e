"""The `comment` use case: a report on pull requests, commits and issues, and in the summary of a CI job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.app.comment_publisher import CommentPublisher, is_clean, says_nothing
from reconciler.app.documents import read_document
from reconciler.app.forge_job import connect_forge, forge_job
from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.drivers.git import folder
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render.comment import Comment, Kind, Missing, Place, comment, failure
from reconciler.render.markdown import SUMMARY
from reconciler.spec.naming import fleet_name

_LOG_BYTES: Final = 1024 * 1024

Document = Plan | DriftReport | ApplyOutcome


@dataclass(frozen=True, slots=True)
class CommentTarget:
    """The places where the report is posted.

    `pull`: a pull request. `commit`: its status, and its pull requests. `issue`: the drift issue. `pulls`: every open
    pull request that touches a node with drift. `new_comment`: on a new commit, post a new comment and collapse the
    old one.
    """

    repository: str
    pull: int | None
    commit: str
    issue: bool
    pulls: bool
    spec: Path
    new_comment: bool

    @property
    def is_empty(self) -> bool:
        return self.pull is None and not self.commit and not self.issue and not self.pulls


@dataclass(frozen=True, slots=True)
class CommentSource:
    """The subject of the report: the document in `file`, or that the command `failed` which should have written it.

    `logs`: its output; of several, the last one with any text is shown. `environment`: which of several places of one
    fleet this is.
    """

    file: Path | None
    failed: str | None
    logs: tuple[Path, ...]
    environment: str


@dataclass(frozen=True, slots=True)
class PreparedComment:
    """A rendered comment. `offline`: it is of an offline plan."""

    document: Document | None
    comment: Comment
    place: Place
    offline: bool


def prepare_comment(source: CommentSource, target: CommentTarget) -> PreparedComment:
    """Render the comment. Raise UsageError when the document does not fit the target."""
    place = Place(source.environment, forge_job().run_url, target.commit)
    file = source.file
    missing = file is None or not file.is_file() or not file.stat().st_size
    document = None if source.failed is not None and missing else _read(file)
    if document is not None:
        text = comment(document, place)
        offline = isinstance(document, Plan) and document.offline is not None
    else:
        text = _failure(source, target.spec, place)
        offline = source.failed == Missing.FORK
    if (target.issue or target.pulls) and not isinstance(document, DriftReport) and source.failed != "drift":
        raise UsageError("--issue and --pulls are for drift reports")
    return PreparedComment(document, text, place, offline)


def _read(file: Path | None) -> Document:
    if file is None:
        raise UsageError("name the FILE to report, or the command that failed to write it with --failed")
    if not file.is_file():
        raise UsageError(f"there is no file {file}; if the command that writes it failed, give --failed")
    found = read_document(file)
    if isinstance(found, PeriodReport):
        raise UsageError(
            f"{file}: a period report has no changes to comment on: give a plan, a drift report or an outcome"
        )
    if isinstance(found, FleetOverview):
        raise UsageError(f"{file}: a status is of one instant: give a plan, a drift report or an outcome")
    if isinstance(found, Observation):
        raise UsageError(f"{file}: an observation is not compared with a spec: give a plan or a drift report")
    return found


def _failure(source: CommentSource, spec: Path, place: Place) -> Comment:
    text = next((text for log in reversed(source.logs) if log.is_file() and (text := _tail(log)).strip()), "")
    name = fleet_name(spec) if spec.is_dir() else None
    return failure(Missing(source.failed or ""), name or "unknown", text or "no output was kept", place)


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return stream.read().decode(errors="replace")


def publish_comment(prepared: PreparedComment, target: CommentTarget, say: Callable[[str], None]) -> None:
    """Add the comment to the summary of the CI job, if there is one, and post it to `target`.

    `say` gets a line for each thing that was done. Raise UsageError when there is neither a job nor a target.
    """
    if summary := forge_job().summary:
        _write_summary(Path(summary), prepared)
    if not target.is_empty:
        run_async(_post(prepared, target, say))
    elif not summary:
        raise UsageError("the report has no target: give --pr, --commit, --issue or --pulls; or --dry-run")


def _write_summary(path: Path, prepared: PreparedComment) -> None:
    """Append the comment, at full length where a comment had no room for it."""
    document, full = prepared.document, prepared.comment
    if document is not None and full.truncated:
        full = comment(document, prepared.place, SUMMARY)
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write(full.text.partition("\n")[2] + "\n")


async def _post(prepared: PreparedComment, target: CommentTarget, say: Callable[[str], None]) -> None:
    forge = connect_forge(target.repository)
    try:
        publisher = CommentPublisher(forge, prepared.place, say, target.new_comment)
        await _comment_on_pulls(publisher, prepared, target)
        if target.issue or target.pulls:
            await _report_drift(publisher, prepared, target)
        if target.commit:
            await publisher.check(target.commit, prepared.comment, offline=prepared.offline)
    finally:
        await forge.close()


async def _comment_on_pulls(publisher: CommentPublisher, prepared: PreparedComment, target: CommentTarget) -> None:
    """Comment on the named pull request, or else on those that the commit is the head of or came from.

    A fork may have the commit of a branch of ours: an offline plan is for forks, a plan of the nodes is not.
    """
    applied = prepared.comment.key.startswith(f"{Kind.APPLY}/")
    pulls = [target.pull] if target.pull is not None else []
    if not pulls and target.commit and applied:
        pulls = [pull.number for pull in await publisher.forge.pulls_of(target.commit)]
    elif not pulls and target.commit:
        pulls = [pull.number for pull in await publisher.forge.open_pulls()
                 if pull.head == target.commit and pull.fork == prepared.offline]  # fmt: skip
    quiet = prepared.document is not None and says_nothing(prepared.document)
    for pull in pulls:
        if not applied:
            await publisher.sticky(pull, prepared.comment, quiet=quiet)
        elif not quiet:
            await publisher.applied(pull, prepared.comment)


async def _report_drift(publisher: CommentPublisher, prepared: PreparedComment, target: CommentTarget) -> None:
    report = prepared.document if isinstance(prepared.document, DriftReport) else None
    if target.issue:
        await publisher.issue(prepared.comment, clean=report is not None and is_clean(report))
    if target.pulls and report is not None:
        fleet, below = Workspace(FleetRequest(target.spec), Frontend(publisher.say)).fleet, folder(target.spec)
        await publisher.every_pull(report, lambda files: nodes_of_files(fleet, below, files))


def nodes_of_files(fleet: Fleet, below: str, files: Collection[str]) -> frozenset[str]:
    """Return the nodes that have a value of a changed file. `below`: the spec's folder in the repository.

    A file of the spec that sets no value of any node, such as a new one or a key, counts for every node.
    """
    inside = {file.removeprefix(f"{below}/") if below else file for file in files if _is_in(file, below)}
    by_file = _nodes_by_file(fleet)
    found: set[str] = set()
    for file in inside:
        found |= by_file.get(file, fleet.nodes.keys())
    return frozenset(found)


def _is_in(file: str, below: str) -> bool:
    return not below or file.startswith(f"{below}/")


def _nodes_by_file(fleet: Fleet) -> Mapping[str, set[str]]:
    """Return, by file of the spec, the nodes with a value that it sets."""
    directory = fleet.source.directory
    found: dict[str, set[str]] = {}
    shared: dict[int, frozenset[str]] = {}  # nodes of a kind have one profile
    for name, node in fleet.nodes.items():
        profile = node.profile
        if id(profile) not in shared:
            shared[id(profile)] = frozenset(at.file for at in profile.provenance.values())
        for file in shared[id(profile)] | {at.file for at in node.provenance.values()}:
            found.setdefault(file.removeprefix(directory).lstrip("/"), set()).add(name)
    return found
