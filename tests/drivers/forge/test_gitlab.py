"""GitLab over its REST API: all pages, our own words alone, limits of its own, and the API that python-gitlab knows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import gitlab
import gitlab.v4.objects as known
import pytest

from reconciler.drivers.forge import connect
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Check, Forge, ForgeKind
from tests.drivers.forge.test_github import Pacer
from tests.forge.gitlab import BOT, NUMBER, PROJECT, TOKEN, FakeGitLab, serving
from tests.forge.server import Failure as Broken

pytestmark = pytest.mark.wire
T = TypeVar("T")
HEAD = "c" * 40


@pytest.fixture
def fake() -> Iterator[FakeGitLab]:
    with serving() as found:
        found.open_merge(7, HEAD, "fleet-spec/fleet.yaml")
        yield found


@pytest.fixture
def clock() -> Pacer:
    return Pacer()


def ask(fake: FakeGitLab, clock: Pacer, work: Callable[[Forge], Awaitable[T]], project: str = PROJECT) -> T:
    async def run() -> T:
        forge = connect(project, TOKEN, clock, kind=ForgeKind.GITLAB, url=fake.url)
        try:
            return await work(forge)
        finally:
            await forge.close()

    return asyncio.run(run())


def test_own_notes_are_found_on_every_page_and_nobody_elses(fake: FakeGitLab, clock: Pacer) -> None:
    for at in range(250):
        fake.say(7, f"note {at}", BOT if at in (0, 120, 249) else "mallory")
    fake.say(7, "added 1 commit", BOT, system=True)
    found = ask(fake, clock, lambda forge: forge.remarks(7))
    assert [remark.text for remark in found] == ["note 0", "note 120", "note 249"]
    assert found[0].url == f"https://gitlab.example/{PROJECT}/-/merge_requests/7#note_{found[0].id}"


def test_a_note_is_edited_in_place(fake: FakeGitLab, clock: Pacer) -> None:
    async def twice(forge: Forge) -> None:
        await forge.edit_remark(await forge.add_remark(7, "first"), "second")

    ask(fake, clock, twice)
    assert (fake.texts(7), len(fake.edits)) == (["second"], 1)


def test_a_note_is_folded_away_once(fake: FakeGitLab, clock: Pacer) -> None:
    fake.say(7, "<!-- mark -->\nold", BOT)

    async def hide(forge: Forge) -> None:
        await forge.hide_remark((await forge.remarks(7))[0])

    ask(fake, clock, hide)
    ask(fake, clock, hide)
    [text] = fake.texts(7)
    assert text.startswith("<!-- mark -->\n<details><summary>Outdated")
    assert text.count("<details>") == text.count("</details>") == 1
    assert len(fake.edits) == 1


def test_a_note_is_as_long_as_gitlab_takes_and_no_longer(fake: FakeGitLab, clock: Pacer) -> None:
    ask(fake, clock, lambda forge: forge.add_remark(7, "x" * 1_000_000))
    with pytest.raises(DriverError, match="GitLab takes 1000000") as told:
        ask(fake, clock, lambda forge: forge.add_remark(7, "x" * 1_000_001))
    assert told.value.kind is Failure.REJECTED
    assert len(fake.texts(7)) == 1


def test_approvals_are_those_of_others(fake: FakeGitLab, clock: Pacer) -> None:
    for name in ("alice", "bob", "carol"):
        fake.approve(7, name)

    async def read(forge: Forge) -> Any:
        return await forge.approvals(await forge.pull(7))

    assert [one.name for one in ask(fake, clock, read)] == ["bob", "carol"]


def test_forks_are_told_apart(fake: FakeGitLab, clock: Pacer) -> None:
    fake.open_merge(8, "8" * 40, fork=43)
    fake.open_merge(9, "9" * 40, fork=None)
    fake.open_merge(10, "a" * 40)
    fake.merge(10, "b" * 40)
    pulls = ask(fake, clock, lambda forge: forge.open_pulls())
    assert {pull.number: pull.fork for pull in pulls} == {7: False, 8: True, 9: True}
    assert [pull.number for pull in ask(fake, clock, lambda forge: forge.pulls_of("b" * 40))] == [10]
    assert ask(fake, clock, lambda forge: forge.pulls_of(HEAD)) == [], "an open one has brought nothing"


def test_a_renamed_file_is_both(fake: FakeGitLab, clock: Pacer) -> None:
    fake.diffs[7] = [{"old_path": "old", "new_path": "new"}, {"old_path": "same", "new_path": "same"}]
    assert list(ask(fake, clock, lambda forge: forge.files(7))) == ["new", "old", "same"]


def test_an_issue_lives_and_ends(fake: FakeGitLab, clock: Pacer) -> None:
    made = ask(fake, clock, lambda forge: forge.add_issue("t" * 400, "text"))
    fake.issues[1] = {"iid": 1, "state": "opened", "author": fake.user("mallory"), "description": "", "web_url": ""}
    assert [issue.id for issue in ask(fake, clock, lambda forge: forge.open_issues())] == [made.id]
    assert len(fake.issues[made.id]["title"]) == 255
    ask(fake, clock, lambda forge: forge.edit_issue(made.id, "t", "clean", close=True))
    assert (fake.issues[made.id]["state"], fake.issues[made.id]["description"]) == ("closed", "clean")


def test_a_status_for_each_verdict(fake: FakeGitLab, clock: Pacer) -> None:
    async def each(forge: Forge) -> None:
        for verdict in Check:
            await forge.set_check(HEAD, "reconciler/plan", verdict, "t" * 500, "report", "https://x/1")

    ask(fake, clock, each)
    assert [one["state"] for one in fake.statuses] == ["success", "failed", "failed"]
    assert {(one["sha"], one["name"], len(one["description"]), one["target_url"]) for one in fake.statuses} == {
        (HEAD, "reconciler/plan", 255, "https://x/1")
    }


@pytest.mark.parametrize(
    ("status", "message", "kind", "words"),
    [
        (401, "401 Unauthorized", Failure.AUTH, "the token is wrong"),
        (403, "403 Forbidden", Failure.AUTH, "may not do this"),
        (404, "404 Project Not Found", Failure.UNSUPPORTED, "the token may not see it"),
        (400, {"note": ["is too long", "is odd"]}, Failure.REJECTED, "note is too long; note is odd"),
        (429, "Retry later", Failure.BUSY, "Retry later"),
    ],
)
def test_what_gitlab_refuses_is_told(
    fake: FakeGitLab, clock: Pacer, status: int, message: Any, kind: Failure, words: str
) -> None:
    fake.failures = [Broken("POST", "/notes", status, {"Retry-After": "4000"} if status == 429 else {}, message)]
    with pytest.raises(DriverError, match=words) as told:
        ask(fake, clock, lambda forge: forge.add_remark(7, "text"))
    assert told.value.kind is kind
    assert TOKEN not in str(told.value)


@pytest.mark.parametrize("project", ["fleet", "../x", "acme/../x", "acme//x", "acme/fleet/", "acme/fleet?x=1", ""])
def test_what_is_no_project_is_refused(project: str) -> None:
    with pytest.raises(UsageError, match="is no project"):
        connect(project, TOKEN, Pacer(), kind=ForgeKind.GITLAB)


# --- by a client that we did not write ----------------------------------------------------------------------------

MANAGERS = (
    known.ProjectManager, known.ProjectMergeRequestManager, known.ProjectMergeRequestNoteManager,
    known.ProjectMergeRequestApprovalManager, known.ProjectMergeRequestDiffManager, known.ProjectIssueManager,
    known.ProjectMemberAllManager, known.CurrentUserManager,
)  # fmt: skip
# What python-gitlab calls without a manager of that path, from its own sources: ProjectCommit.merge_requests,
# ProjectCommitStatusManager.create, and MergeRequest.diffs of the REST documentation, which it does not have.
WITHOUT = {
    ("GET", r"/projects/[^/]+/repository/commits/\w+/merge_requests"): frozenset(),
    ("POST", r"/projects/[^/]+/statuses/\w+"): frozenset(known.ProjectCommitStatusManager._create_attrs.required)
    | frozenset(known.ProjectCommitStatusManager._create_attrs.optional),
    ("GET", r"/projects/[^/]+/merge_requests/\d+/diffs"): frozenset(),
}
PAGES = {"page", "per_page", "order_by", "sort"}


def unknown(method: str, path: str, body: Any) -> set[str]:
    """What of a request python-gitlab does not know; `path` when it does not know the operation."""
    parts = urlsplit(path.removeprefix("/api/v4"))
    sent = {name for name, _ in parse_qsl(parts.query)} | set(body or {})
    for (verb, pattern), others in WITHOUT.items():
        if verb == method and re.fullmatch(pattern, parts.path):
            return sent - others - PAGES
    for manager in MANAGERS:
        at = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(manager._path))
        listed, one = re.fullmatch(at, parts.path), re.fullmatch(at + r"/[^/]+", parts.path)
        if listed or one:
            names = {
                "GET": getattr(manager, "_list_filters", ()) if listed else (),
                "POST": (*manager._create_attrs.required, *manager._create_attrs.optional),
                "PUT": (*manager._update_attrs.required, *manager._update_attrs.optional),
            }[method]
            return sent - set(names) - (PAGES if method == "GET" else set())
    return {parts.path}


async def everything(forge: Forge) -> None:
    pull = await forge.pull(7)
    await forge.open_pulls()
    await forge.pulls_of(HEAD)
    await forge.approvals(pull)
    await forge.files(7)
    note = await forge.add_remark(7, "<!-- m -->\ntext")
    await forge.edit_remark(note, "<!-- m -->\nmore")
    await forge.hide_remark((await forge.remarks(7))[0])
    await forge.may_write((await forge.said(7, note.id)).account)
    issue = await forge.add_issue("t", "text")
    await forge.open_issues()
    await forge.edit_issue(issue.id, "t", "clean", close=True)
    await forge.set_check(HEAD, "reconciler/plan", Check.SUCCESS, "t", "text", "https://x/1")


def test_each_request_is_one_that_python_gitlab_could_send(fake: FakeGitLab, clock: Pacer) -> None:
    ask(fake, clock, everything, str(NUMBER))
    assert len({(one.method, urlsplit(one.path).path) for one in fake.requests}) >= 12
    for one in fake.requests:
        assert unknown(one.method, one.path, one.body) == set(), one


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v4/projects/42/merge_requests/7/notes", {"text": "x"}),
        ("PUT", "/api/v4/projects/42/issues/7", {"state": "closed"}),
        ("GET", "/api/v4/projects/42/issues?creator=x", None),
        ("GET", "/api/v4/projects/42/pulls", None),
    ],
)
def test_what_python_gitlab_does_not_know_is_noticed(method: str, path: str, body: Any) -> None:
    assert unknown(method, path, body)


def test_python_gitlab_understands_the_server_of_these_tests(fake: FakeGitLab, clock: Pacer) -> None:
    """Else the driver would be tried against answers that no GitLab gives."""
    client = gitlab.Gitlab(fake.url.removesuffix("/api/v4"), private_token=TOKEN, retry_transient_errors=False)
    client.auth()
    assert client.user is not None
    assert client.user.username == BOT
    project = client.projects.get(NUMBER)
    assert project.web_url == f"https://gitlab.example/{PROJECT}"
    merge = project.mergerequests.get(7)
    note = merge.notes.create({"body": "from another client"})
    note.body = "edited"
    note.save()
    fake.approve(7, "bob")
    assert [one["user"]["username"] for one in merge.approvals.get().approved_by] == ["bob"]
    issue = project.issues.create({"title": "t", "description": "d"})
    issue.state_event = "close"
    issue.save()
    assert fake.issues[issue.iid]["state"] == "closed"
    for at in range(30):
        fake.say(7, str(at))
    assert len(merge.notes.list(get_all=True, per_page=10)) == 31
    fake.levels[5] = 30
    assert project.members_all.get(5).access_level == 30
    assert [remark.text for remark in ask(fake, clock, lambda forge: forge.remarks(7))] == ["edited"]
    assert unquote(fake.requests[-1].path).startswith(f"/api/v4/projects/{PROJECT}/merge_requests/7/notes?")
