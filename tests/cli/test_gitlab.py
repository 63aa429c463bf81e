"""`reconciler comment` and `reconciler forge` in a job of GitLab CI: the same comments by the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.render.comment import mark_of
from reconciler.render.markdown import MarkdownWriter
from reconciler.render.markdown import write as write_markdown
from tests.cli.shell import Done, reconciler
from tests.cli.test_comment import drift, outcome, write
from tests.forge.gitlab import BOT, PROJECT, TOKEN, FakeGitLab, serving
from tests.forge.server import REPOSITORY, Failure
from tests.forge.server import serving as serving_github
from tests.render.test_plan import node, plan

pytestmark = pytest.mark.wire
HEAD = "c" * 40
MERGED = "d" * 40


@pytest.fixture
def gitlab() -> Iterator[FakeGitLab]:
    with serving() as found:
        found.open_merge(7, HEAD, "fleet-spec/pools/infer.yaml")
        yield found


def post(gitlab: FakeGitLab, *words: str | Path, **env: str) -> Done:
    done = reconciler(*words, env=gitlab.env(**env))
    assert TOKEN not in done.out + done.err
    return done


def test_a_merge_request_has_one_note_that_is_edited(gitlab: FakeGitLab, tmp_path: Path) -> None:
    gitlab.say(7, "before")
    for document in (plan(node("a1")), plan(node("a1"), node("a2"))):
        done = post(gitlab, "comment", write(tmp_path, document), "--commit", HEAD, CI_MERGE_REQUEST_IID="7")
        assert done.code == 0, done.err
    [text] = gitlab.texts(7)
    assert "2 nodes to change" in text
    assert mark_of(text) == {
        "key": "plan/f/", "fingerprint": "0" * 64, "head": HEAD, "truncated": False,
        "run": f"https://gitlab.example/{PROJECT}/-/jobs/7",
    }  # fmt: skip
    assert len(gitlab.edits) == 1
    assert [(one["sha"], one["state"], one["name"]) for one in gitlab.statuses] == [
        (HEAD, "success", "reconciler/plan")
    ] * 2


def test_the_note_is_the_comment_of_github(gitlab: FakeGitLab, tmp_path: Path) -> None:
    """The same text, cut by the same rules: two forges are no reason for two reports."""
    nodes = [node(f"gpu-{at:04d}") for at in range(2000)]
    items = tuple(replace(drift(f"gpu-{at:04d}").items[0], observed=f"Off {at}") for at in range(2000))
    for document in (plan(*nodes), replace(drift("x"), items=items)):
        words = ("comment", write(tmp_path, document), "--pr", "7")
        assert post(gitlab, *words, CI_JOB_URL="").code == 0
        with serving_github() as github:
            github.open_pull(7, HEAD)
            assert reconciler(*words, env=github.env()).code == 0
            assert github.texts(7) == gitlab.texts(7)[-1:]
    assert mark_of(gitlab.texts(7)[-1])["truncated"] is True
    assert len(gitlab.texts(7)[-1]) <= 60_000


def test_a_note_of_another_author_with_our_mark_is_not_edited(gitlab: FakeGitLab, tmp_path: Path) -> None:
    words = ("comment", write(tmp_path, plan(node("a1"))), "--pr", "7")
    post(gitlab, *words)
    [text] = gitlab.texts(7)
    gitlab.notes[7].clear()
    gitlab.say(7, text.replace("1 node", "0 nodes"), "mallory")
    post(gitlab, *words)
    assert (gitlab.edits, gitlab.texts(7)) == ([], [text])


def test_a_new_commit_may_have_a_note_of_its_own(gitlab: FakeGitLab, tmp_path: Path) -> None:
    later = "e" * 40
    words = ("comment", write(tmp_path, plan(node("a1"))), "--pr", "7", "--comment-mode", "new", "--commit")
    post(gitlab, *words, HEAD)
    gitlab.merges[7]["sha"] = later
    post(gitlab, *words, later)
    post(gitlab, *words, later)
    old, new = gitlab.texts(7)
    assert (mark_of(old)["head"], mark_of(new)["head"]) == (HEAD, later)
    assert "<details><summary>Outdated" in old
    assert "Outdated" not in new


def test_what_was_applied_is_told_where_it_was_approved(gitlab: FakeGitLab, tmp_path: Path) -> None:
    post(gitlab, "comment", write(tmp_path, plan(node("a1"))), "--pr", "7", "--commit", HEAD)
    gitlab.merge(7, MERGED)
    assert post(gitlab, "comment", write(tmp_path, outcome()), "--commit", MERGED).code == 0
    sticky, applied = gitlab.texts(7)
    assert "Applied to fleet f: 1 done" in sticky
    assert mark_of(applied)["key"] == "apply/f/"
    assert gitlab.statuses[-1]["sha"] == MERGED


def test_one_issue_lives_as_long_as_the_drift(gitlab: FakeGitLab, tmp_path: Path) -> None:
    for document in (drift("gpu-a001"), drift("gpu-a001", "gpu-a002"), drift()):
        assert post(gitlab, "comment", write(tmp_path, document), "--issue").code == 0
    [issue] = gitlab.issues.values()
    assert (issue["state"], "no node differs" in issue["description"]) == ("closed", True)


def test_a_note_that_gitlab_took_but_did_not_confirm_is_there_once(gitlab: FakeGitLab, tmp_path: Path) -> None:
    gitlab.failures = [Failure("POST", "/notes", 502, done=True)]
    assert post(gitlab, "comment", write(tmp_path, plan(node("a1"))), "--pr", "7").code == 0
    assert len(gitlab.texts(7)) == 1


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"GITLAB_TOKEN": ""}, "set RECONCILER_FORGE_TOKEN or GITLAB_TOKEN"),
        ({"CI_PROJECT_PATH": ""}, "--repo OWNER/NAME"),
        ({"CI_PROJECT_PATH": "fleet"}, "GROUP/NAME is expected"),
        ({"CI_API_V4_URL": "http://gitlab.example/api/v4"}, "https://"),
    ],
)
def test_what_is_not_known_is_named(gitlab: FakeGitLab, tmp_path: Path, env: dict[str, str], said: str) -> None:
    done = post(gitlab, "comment", write(tmp_path, plan(node("a1"))), "--pr", "7", **env)
    assert (done.code, said in done.err, gitlab.requests) == (64, True, []), done.err


# --- approvals ----------------------------------------------------------------------------------------------------


def test_a_change_that_somebody_else_approved_may_go_on(gitlab: FakeGitLab) -> None:
    gitlab.merge(7, MERGED)
    gitlab.approve(7, "alice")
    refused = post(gitlab, "forge", "approvals", MERGED)
    assert (refused.code, "#7 has 0 approvals; 1 by others than its author" in refused.err) == (8, True)
    gitlab.approve(7, "bob")
    refused = post(gitlab, "forge", "approvals", MERGED)
    assert (refused.code, "#7 has 0 approvals" in refused.err) == (8, True), "who may not push approves nothing"
    gitlab.levels[gitlab.user("bob")["id"]] = 30
    allowed = post(gitlab, "forge", "approvals", CI_COMMIT_SHA=MERGED)
    assert (allowed.code, "#7 is approved: bob" in allowed.err) == (0, True), allowed.err
    assert post(gitlab, "forge", "approvals", MERGED, "--least", "2").code == 8


def test_a_commit_that_no_pull_request_brought_is_approved_by_nobody(gitlab: FakeGitLab) -> None:
    done = post(gitlab, "forge", "approvals", "f" * 40)
    assert (done.code, "came with no pull request" in done.err) == (8, True)
    gitlab.approve(7, "bob")
    assert post(gitlab, "forge", "approvals", HEAD).code == 8, "what is still open has brought nothing"


def test_approvals_on_github() -> None:
    with serving_github() as github:
        github.open_pull(7, HEAD)
        github.merge(7, MERGED)
        assert reconciler("forge", "approvals", MERGED, env=github.env()).code == 8
        github.review(7, "bob", "APPROVED")
        github.review(7, "eve", "APPROVED")
        assert reconciler("forge", "approvals", MERGED, env=github.env()).code == 8, "they have no role"
        github.roles |= {"bob": "write", "eve": "read"}
        done = reconciler("forge", "approvals", MERGED, env=github.env())
    assert (done.code, "#7 is approved: bob\n" in done.err) == (0, True)
    assert REPOSITORY in github.requests[0].path


def test_the_account_is_the_tokens_own(gitlab: FakeGitLab, tmp_path: Path) -> None:
    gitlab.users["glpat-other"] = gitlab.user("group_9_bot")
    words = ("comment", write(tmp_path, plan(node("a1"))), "--pr", "7")
    post(gitlab, *words)
    post(gitlab, *words, RECONCILER_FORGE_TOKEN="glpat-other")
    assert [len(gitlab.texts(7, name)) for name in (BOT, "group_9_bot")] == [1, 1]


def test_what_a_machine_says_gives_gitlab_no_orders() -> None:
    """GitLab acts on a line of a note that begins with a slash, and links milestones and snippets."""

    def body(writer: MarkdownWriter) -> None:
        writer.paragraph("/merge now")
        writer.paragraph("  /approve", bold=True)
        writer.table(["a"], [["/close"], ["%3 and $4"]])

    text = write_markdown(body, "", most=1000).text
    assert not any(line.startswith("/") for line in text.splitlines())
    assert "\\%3 and \\$4" in text
