"""`reconciler comment`: a comment that is found again, an apply's own, statuses, issues, failures that are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.model.desired import SpecSource
from reconciler.model.documents import dump
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import BlockCode, Blocked, Offline, Plan, Scope
from reconciler.model.report import ActionEnd, ApplyOutcome, DriftReport, NodeEnd
from reconciler.model.vocab import Concern
from reconciler.render.comment import mark_of
from tests import builders as b
from tests.cli.shell import Done, reconciler
from tests.cli.test_plan_change import git
from tests.forge.server import BOT, REPOSITORY, Failure, FakeGitHub, secretless, serving
from tests.render.test_comment import balanced
from tests.render.test_plan import node, plan

pytestmark = pytest.mark.wire
HEAD = "c" * 40
RUN = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "7"}


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serving() as found:
        found.open_pull(7, HEAD, "fleet-spec/pools/infer.yaml")
        yield found


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path


def write(directory: Path, document: Plan | DriftReport | ApplyOutcome) -> Path:
    path = directory / f"{type(document).__name__}.json"
    path.write_text(dump(document))
    return path


def drift(*nodes: str, incomplete: tuple[str, ...] = ()) -> DriftReport:
    items = tuple(DriftItem(name, Concern.BIOS, "bios.X", DriftClass.DRIFTED, "On", "Off") for name in nodes)
    return DriftReport(
        "1.0", "0", "demo", SpecSource("fleet-spec"), b.NOW, b.NOW, b.NOW, Scope((), (), 12, 12), incomplete,
        not incomplete, bool(nodes), items, {},
    )  # fmt: skip


def outcome(state: str = "done") -> ApplyOutcome:
    actions = (ActionEnd("a1", "drain", state, "", b.NOW, 60.0),) if state != "converged" else ()
    return ApplyOutcome(
        "1.0", "0", "run-1", "plan-1", "f", SpecSource("fleet-spec"), Scope((), (), 1, 1), b.NOW, b.NOW, False,
        {"a1": NodeEnd(state, "in service as specified")}, actions, (), (), True, False,
    )  # fmt: skip


def post(github: FakeGitHub, *words: str | Path, **env: str) -> Done:
    done = reconciler("comment", *words, env=github.env(**RUN, **env))
    secretless(github, done.out, done.err)
    return done


# --- one comment --------------------------------------------------------------------------------------------------


def test_a_plan_is_one_comment_however_often_it_is_made(github: FakeGitHub, files: Path) -> None:
    first, second = plan(node("a1")), plan(node("a1"), node("a2"))
    github.say(7, "before")
    assert post(github, write(files, first), "--pr", "7", "--commit", HEAD).code == 0
    github.say(7, "after")
    assert post(github, write(files, second), "--pr", "7", "--commit", HEAD).code == 0
    [text] = github.texts(7)
    assert "2 nodes to change" in text
    assert [one["user"]["login"] for one in github.comments[7]] == ["alice", BOT, "alice"]
    assert mark_of(text) == {
        "key": "plan/f/", "fingerprint": "0" * 64, "head": HEAD, "truncated": False,
        "run": f"https://github.com/{REPOSITORY}/actions/runs/7/attempts/1",
    }  # fmt: skip
    assert [(one["sha"], one["state"], one["context"]) for one in github.statuses] == [
        (HEAD, "success", "reconciler/plan")
    ] * 2


def test_a_comment_of_another_author_with_our_mark_is_not_edited(github: FakeGitHub, files: Path) -> None:
    """By author and key (conventions R1): else anybody could have us overwrite their words, or hide ours."""
    post(github, write(files, plan(node("a1"))), "--pr", "7")
    [text] = github.texts(7)
    github.comments[7].clear()
    forged = github.say(7, text.replace("1 node", "0 nodes"), "mallory")
    post(github, write(files, plan(node("a1"))), "--pr", "7")
    assert github.edits == []
    assert github.texts(7) == [text]
    assert github.comments[7][0]["id"] == forged


def test_environments_and_fleets_have_comments_of_their_own(github: FakeGitHub, files: Path) -> None:
    for environment in ("prod", "staging", "prod"):
        post(github, write(files, plan(node("a1"))), "--pr", "7", "--environment", environment, "--commit", HEAD)
    post(github, write(files, plan(node("a1"), fleet="g")), "--pr", "7", "--environment", "prod")
    assert [mark_of(text)["key"] for text in github.texts(7)] == ["plan/f/prod", "plan/f/staging", "plan/g/prod"]
    assert {one["context"] for one in github.statuses} == {"reconciler/plan (prod)", "reconciler/plan (staging)"}


def test_no_change_corrects_a_comment_and_makes_none(github: FakeGitHub, files: Path) -> None:
    nothing = plan(node("a1", actions=()))
    assert post(github, write(files, nothing), "--pr", "7", "--commit", HEAD).code == 0
    assert github.texts(7) == []
    assert [one["state"] for one in github.statuses] == ["success"], "a required check must report (conventions G8)"
    post(github, write(files, plan(node("a1"))), "--pr", "7")
    post(github, write(files, nothing), "--pr", "7")
    [text] = github.texts(7)
    assert "nothing to do" in text


def test_a_new_commit_may_have_a_comment_of_its_own(github: FakeGitHub, files: Path) -> None:
    """Conventions R2: the old one is folded away; the same commit again is an edit."""
    later = "d" * 40
    mode = ("--pr", "7", "--comment-mode", "new", "--commit")
    assert post(github, write(files, plan(node("a1"))), *mode, HEAD).code == 0
    github.pulls[7]["head"]["sha"] = later
    for document in (plan(node("a1"), node("a2")), plan(node("a1"), node("a2"), node("a3"))):
        assert post(github, write(files, document), *mode, later).code == 0
    old, new = github.texts(7)
    assert (mark_of(old)["head"], mark_of(new)["head"]) == (HEAD, later)
    assert "3 nodes to change" in new
    assert list(github.hidden) == [github.comments[7][0]["node_id"]]
    assert post(github, write(files, plan(node("a1"))), "--pr", "7", "--commit", later).code == 0
    assert "1 node to change" in github.texts(7)[1], "whoever changes the mode goes on with the newest"


def test_what_can_not_be_folded_away_does_not_fail_the_report(github: FakeGitHub, files: Path) -> None:
    mode = ("--pr", "7", "--comment-mode", "new", "--commit")
    post(github, write(files, plan(node("a1"))), *mode, HEAD)
    github.pulls[7]["head"]["sha"] = "d" * 40
    github.failures = [Failure("POST", "/graphql", 403, message="Resource not accessible")]
    done = post(github, write(files, plan(node("a1"))), *mode, "d" * 40)
    assert (done.code, len(github.texts(7))) == (0, 2)
    assert "could not be collapsed" in done.err


def test_the_report_of_an_older_commit_does_not_replace_a_newer_one(github: FakeGitHub, files: Path) -> None:
    post(github, write(files, plan(node("a1"), node("a2"))), "--pr", "7", "--commit", HEAD)
    done = post(github, write(files, plan(node("a1"))), "--pr", "7", "--commit", "b" * 40)
    assert (done.code, "a newer commit" in done.err) == (0, True)
    assert "2 nodes to change" in github.texts(7)[0]


def test_a_verdict_that_needs_a_person_fails_the_check(github: FakeGitHub, files: Path) -> None:
    refused = plan(node("a1", blocked=Blocked(BlockCode.HALTED, "x")), refused=("too many reimages",))
    post(github, write(files, refused), "--pr", "7", "--commit", HEAD)
    assert github.statuses[0]["state"] == "failure"
    assert "REFUSED" in github.statuses[0]["description"]


def test_a_failure_is_always_posted(github: FakeGitHub, files: Path, spec: Path) -> None:
    log = files / "plan.log"
    log.write_text("reading\nreconciler: pools/a.yaml:3:1: no such image\n")
    words = ("--failed", "plan", "--log", log, "--spec", spec, "--pr", "7", "--commit", HEAD)
    post(github, write(files, plan(node("a1"), fleet="demo")), "--pr", "7")
    assert post(github, *words).code == 0
    [text] = github.texts(7)
    assert "pools/a.yaml:3:1: no such image" in text
    assert "nobody knows what this change would do" in text
    assert github.statuses[-1]["state"] == "error"
    (spec / "fleet.yaml").write_text("{")
    assert post(github, *words[:2], "--spec", spec, "--pr", "7").code == 0, "with a broken spec too"
    assert "fleet unknown" in github.texts(7)[1].lower()


def test_a_fork_gets_a_comment_on_the_missing_plan_and_a_failed_check(
    github: FakeGitHub, files: Path, spec: Path
) -> None:
    """Its pull request is found by its commit: what the fork's job says of itself is nobody's word but the fork's."""
    github.open_pull(8, "f" * 40, fork="mallory/fleet")
    log = files / "fork.log"
    log.write_text("valid </details> ``` @maintainer\n")
    words = ("--failed", "fork", "--log", log, "--spec", spec, "--commit", "f" * 40)
    assert post(github, *words).code == 0
    assert github.texts(7) == []
    [text] = github.texts(8)
    balanced(text)
    assert "A fork gets no credentials" in text
    assert [(one["sha"], one["state"]) for one in github.statuses] == [("f" * 40, "error")]


def test_a_fork_that_takes_our_commit_speaks_for_itself_alone(github: FakeGitHub, files: Path, spec: Path) -> None:
    """Else anybody could have a red plan replaced by an offline one, and its check turn green."""
    live = plan(node("a1", blocked=Blocked(BlockCode.HALTED, "x")), refused=("too many reimages",))
    offline = replace(plan(node("a1")), offline=Offline(b.NOW, {}))
    assert post(github, write(files, live), "--commit", HEAD).code == 0
    [said] = github.texts(7)
    github.open_pull(8, HEAD, fork="mallory/fleet")
    failed = ("--failed", "fork", "--log", files / "none.log", "--spec", spec)
    for words in ((write(files, offline),), failed, (write(files, offline), "--pr", "8")):
        done = post(github, *words, "--commit", HEAD)
        assert (done.code, "not set, since #7" in done.err) == (0, True)
        assert github.texts(7) == [said]
    assert github.texts(8), "the fork has its answer"
    assert [one["state"] for one in github.statuses] == ["failure"]
    told = github.texts(8)
    assert post(github, write(files, live), "--commit", HEAD).code == 0
    assert github.texts(8) == told, "what is made of the nodes is for whoever may see it there"
    github.pulls[8]["head"]["repo"] = None
    del github.pulls[7]
    assert post(github, write(files, offline), "--commit", HEAD).code == 0
    assert github.statuses[-1]["state"] == "success", "a fork that was deleted is one, and has the commit to itself"


def test_a_document_that_was_not_written_is_a_failure(github: FakeGitHub, files: Path, spec: Path) -> None:
    """`> outcome.json` makes an empty file before the command says a word."""
    empty, log = files / "outcome.json", files / "apply.log"
    empty.touch()
    log.write_text("reconciler: the lease is held\n")
    words = ("--failed", "apply", "--log", files / "none.log", "--log", log, "--spec", spec, "--pr", "7")
    for path in (empty, files / "missing.json"):
        assert post(github, path, *words).code == 0
    assert "the lease is held" in github.texts(7)[0]
    assert "it was not approved, or the command failed" in github.texts(7)[0], "who rejects it leaves none either"
    assert post(github, write(files, outcome("failed")), *words).code == 0
    assert "1 failed" in github.texts(7)[-1], "where there is one, it is reported"


def test_an_apply_that_did_nothing_says_nothing(github: FakeGitHub, files: Path) -> None:
    """The schedule calls it again and again while waves bake."""
    done = post(github, write(files, outcome("converged")), "--pr", "7", "--commit", HEAD)
    assert (done.code, github.texts(7), len(github.statuses)) == (0, [], 1)


def test_a_comment_that_github_took_but_did_not_confirm_is_there_once(github: FakeGitHub, files: Path) -> None:
    github.failures = [Failure("POST", "/comments", 502, done=True)]
    assert post(github, write(files, plan(node("a1"))), "--pr", "7").code == 0
    assert len(github.texts(7)) == 1
    github.comments.clear()
    github.failures = [Failure("POST", "/comments", 502)]
    assert post(github, write(files, plan(node("a1"))), "--pr", "7").code == 0
    assert len(github.texts(7)) == 1


def test_the_summary_of_the_job_is_written(github: FakeGitHub, files: Path) -> None:
    summary = files / "summary.md"
    document = write(files, plan(node("a1")))
    assert post(github, document, GITHUB_STEP_SUMMARY=str(summary)).code == 0, "nowhere else to go is fine then"
    assert summary.read_text().startswith("## 🔶 Plan for fleet f")
    assert github.requests == []


def test_what_has_no_room_in_a_comment_is_in_the_summary(github: FakeGitHub, files: Path) -> None:
    summary = files / "summary.md"
    items = tuple(replace(drift(f"gpu-{at:04d}").items[0], observed=str(at), detail="x" * 200) for at in range(390))
    document = write(files, replace(drift("x"), items=items))
    assert post(github, document, "--issue", GITHUB_STEP_SUMMARY=str(summary)).code == 0
    [issue] = github.issues.values()
    assert mark_of(issue["body"])["truncated"] is True
    assert issue["body"].count("| bios.X |") < 390
    assert summary.read_text().count("| bios.X |") == 390


def test_printing_contacts_nobody(github: FakeGitHub, files: Path) -> None:
    done = reconciler("comment", write(files, plan(node("a1"))), "--pr", "7", "--dry-run")
    assert done.code == 0
    balanced(done.out)
    assert mark_of(done.out)["key"] == "plan/f/"
    assert github.requests == []


# --- what was applied ---------------------------------------------------------------------------------------------


def test_the_outcome_of_an_apply_is_posted_on_the_pull_request_and_never_edited(
    github: FakeGitHub, files: Path
) -> None:
    merged = "d" * 40
    post(github, write(files, plan(node("a1"))), "--pr", "7", "--commit", HEAD)
    [before] = github.texts(7)
    github.merge(7, merged)
    assert post(github, write(files, outcome()), "--commit", merged).code == 0
    assert post(github, write(files, outcome("failed")), "--commit", merged).code == 0
    sticky, first, second = github.texts(7)
    assert [mark_of(text)["key"] for text in (first, second)] == ["apply/f/", "apply/f/"]
    assert "1 done" in first
    assert "1 failed" in second
    assert "Applied to fleet f: 1 failed" in sticky
    assert sticky.endswith(before.partition("\n\n")[2]), "the report stands as it was approved"
    assert [(one["sha"], one["state"]) for one in github.statuses[1:]] == [(merged, "success"), (merged, "failure")]
    assert post(github, write(files, outcome("failed")), "--commit", merged).code == 0
    assert len(github.texts(7)) == 3, "a step that is run again reports once"


def test_a_commit_without_a_pull_request_gets_its_status(github: FakeGitHub, files: Path) -> None:
    assert post(github, write(files, outcome()), "--commit", "e" * 40).code == 0
    assert github.statuses[0]["context"] == "reconciler/apply"


# --- drift --------------------------------------------------------------------------------------------------------


def test_one_issue_lives_as_long_as_the_drift(github: FakeGitHub, files: Path) -> None:
    assert post(github, write(files, drift()), "--issue").code == 0
    assert github.issues == {}
    post(github, write(files, drift("gpu-a001")), "--issue")
    post(github, write(files, drift("gpu-a001", "gpu-a002")), "--issue")
    [issue] = github.issues.values()
    assert (issue["state"], issue["title"]) == ("open", "Drift of fleet demo: 2 nodes differ")
    post(github, write(files, drift(incomplete=("gpu-a001",))), "--issue")
    assert issue["state"] == "open", "what could not be read is not clean"
    post(github, write(files, drift()), "--issue")
    assert (issue["state"], "no node differs" in issue["body"]) == ("closed", True)
    post(github, write(files, drift("gpu-a001")), "--issue")
    assert [one["state"] for one in github.issues.values()] == ["closed", "open"]


def test_reviewers_hear_of_drift_below_what_they_review(github: FakeGitHub, files: Path, spec: Path) -> None:
    """Conventions D11: those alone whose change is about nodes that drifted."""
    git(spec.parent, "init", "-q", "-b", "main")
    github.open_pull(8, "8" * 40, "fleet-spec/pools/train.yaml")
    github.open_pull(9, "9" * 40, "README.md")
    github.open_pull(10, "a" * 40, "fleet-spec/fleet.yaml")
    words = ("--pulls", "--spec", spec)
    assert post(github, write(files, drift("gpu-a001")), *words).code == 0
    assert [number for number in (7, 8, 9, 10) if github.texts(number)] == [8, 10]
    assert mark_of(github.texts(8)[0])["head"] == "8" * 40
    assert post(github, write(files, drift("gpu-b001")), *words).code == 0
    assert "no node differs" in github.texts(8)[0]
    assert "gpu-b001" in github.texts(7)[0]
    assert [len(github.texts(number)) for number in (7, 8, 9, 10)] == [1, 1, 0, 1]


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permission", "words"), [("pull_requests", ["--pr", "7"]), ("statuses", ["--commit", HEAD])], ids=str
)
def test_a_report_that_could_not_be_posted_fails_the_job(
    github: FakeGitHub, files: Path, permission: str, words: list[str]
) -> None:
    github.permissions.discard(permission)
    done = post(github, write(files, plan(node("a1"))), *words)
    assert done.code == 1
    assert f"{permission}=write" in done.err


def test_an_issue_that_could_not_be_opened_fails_the_job(github: FakeGitHub, files: Path) -> None:
    github.permissions.discard("issues")
    done = post(github, write(files, drift("gpu-a001")), "--issue")
    assert (done.code, "issues=write" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure("POST", "/comments", 422, message="Validation Failed", errors=({"message": "locked"},)), "locked"),
        (Failure("POST", "/comments", 403, message="Unable to create comment because issue is locked."), "is locked"),
        (Failure("GET", "/comments", 401, message="Bad credentials"), "Bad credentials"),
        (Failure("POST", "/comments", 404, message="Not Found"), "Not Found"),
        (Failure("POST", "/comments", 410, message="This issue was deleted"), "was deleted"),
        (
            Failure("GET", "/comments", 403, {"Retry-After": "5000"}, "You have exceeded a secondary rate limit"),
            "limit",
        ),
        (Failure("POST", "/comments", 301, {"Location": "https://github.com/moved"}, "Moved"), "has moved to"),
    ],
    ids=lambda value: value.message if isinstance(value, Failure) else "",
)
def test_what_github_refuses_fails_the_job_and_sets_no_check(
    github: FakeGitHub, files: Path, failure: Failure, said: str
) -> None:
    """A check that says that all is well would be about a report that nobody can read."""
    github.failures = [replace(failure, times=1)]
    done = post(github, write(files, plan(node("a1"))), "--pr", "7", "--commit", HEAD)
    assert done.code == 1
    assert said in done.err
    assert (github.texts(7), github.statuses, github.checks) == ([], [], [])


def test_a_locked_pull_request_keeps_the_others_from_nothing(github: FakeGitHub, files: Path, spec: Path) -> None:
    git(spec.parent, "init", "-q", "-b", "main")
    github.open_pull(8, "8" * 40, "fleet-spec/fleet.yaml")
    github.failures = [Failure("POST", "/issues/7/comments", 403, message="issue is locked")]
    done = post(github, write(files, drift("gpu-b001")), "--pulls", "--spec", spec)
    assert (done.code, len(github.texts(7)), len(github.texts(8))) == (1, 0, 1)
    assert "issue is locked" in done.err


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        ([], {}, "name the FILE to report"),
        (["missing.json", "--pr", "7"], {}, "give --failed"),
        (["Plan.json"], {}, "the report has no target"),
        (["Plan.json", "--pr", "7"], {"GITHUB_TOKEN": ""}, "there is no token"),
        (["Plan.json", "--pr", "7"], {"GITHUB_REPOSITORY": ""}, "--repo OWNER/NAME"),
        (["Plan.json", "--pr", "7", "--repo", "acme"], {}, "OWNER/NAME is expected"),
        (["Plan.json", "--issue"], {}, "for drift reports"),
        (["Plan.json", "--pr", "0"], {}, "0 is not in the range"),
        (["broken.json", "--pr", "7"], {}, "not JSON"),
        (["Plan.json", "--pr", "7"], {"GITHUB_API_URL": "http://example.com"}, "https://"),
    ],
    ids=str,
)
def test_a_wrong_command_line(
    github: FakeGitHub, files: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], env: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(files)
    write(files, plan(node("a1")))
    (files / "broken.json").write_text("{")
    done = reconciler("comment", *words, env=github.env(**env))
    assert (done.code, github.requests) == (64, [])
    assert said in done.err


def test_two_thousand_nodes_that_differ_each_in_its_way_fit(github: FakeGitHub, files: Path) -> None:
    items = tuple(replace(drift(f"gpu-{at:04d}").items[0], observed=f"Off {at}") for at in range(2000))
    assert post(github, write(files, replace(drift("x"), items=items)), "--issue").code == 0
    [issue] = github.issues.values()
    assert len(issue["body"]) <= 60_000
    assert mark_of(issue["body"])["truncated"] is True
    assert json.dumps(issue["body"]).count("all of it is in drift.json") == 1
