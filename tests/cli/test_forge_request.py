"""`/reconciler` in comments: taken from those who may, of the commit that the forge names, and never anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.forge_commands import CommentCommand, UnknownCommand, Verb, read_command
from tests.cli.shell import reconciler
from tests.forge import gitlab as gitlab_fake
from tests.forge.gitlab import FakeGitLab
from tests.forge.server import FakeGitHub, secretless, serving
from tests.render.test_comment import balanced

HEAD = "c" * 40
wire = pytest.mark.wire


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serving() as found:
        found.open_pull(7, HEAD)
        found.roles["alice"] = "write"
        yield found


@pytest.fixture
def gitlab() -> Iterator[FakeGitLab]:
    with gitlab_fake.serving() as found:
        found.open_merge(7, HEAD)
        found.levels[found.user("alice")["id"]] = 30
        yield found


def asked(fake: FakeGitHub | FakeGitLab, event: Any, where: Path) -> dict[str, str]:
    file = where / "event.json"
    file.write_text(json.dumps(event))
    name = "GITHUB_EVENT_PATH" if isinstance(fake, FakeGitHub) else "TRIGGER_PAYLOAD"
    done = reconciler("forge", "request", env=fake.env(**{name: str(file)}))
    assert done.code == 0, done.err
    return dict(line.split("=", 1) for line in done.out.splitlines())


# --- what is a command --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/reconciler plan", CommentCommand(Verb.PLAN)),
        ("/reconciler plan\r\nplease", CommentCommand(Verb.PLAN)),
        ("/reconciler hold gpu-0001", CommentCommand(Verb.HOLD, "gpu-0001")),
        ("/reconciler hold gpu-0001  bad  DIMM, INC-1", CommentCommand(Verb.HOLD, "gpu-0001", "bad DIMM, INC-1")),
        ("/reconciler hold n $(rm -rf /) `x` \"y\" 'z'", CommentCommand(Verb.HOLD, "n", "(rm -rf /) x y z")),
        ("/reconciler explain gpu-0001", CommentCommand(Verb.EXPLAIN, "gpu-0001")),
        ("please\n/reconciler plan", None),
        ("> /reconciler plan", None),
        ("/reconcilerplan", None),
        ("", None),
    ],
)
def test_a_comment_that_begins_with_the_word_is_a_command(text: str, command: CommentCommand | None) -> None:
    assert read_command(text) == command


@pytest.mark.parametrize(
    "text",
    ["", "apply", "plan all", "hold", "hold --all", "hold pool/x", "hold ../x", "hold GPU", "explain", "explain a b",
     "hold a/b", "release gpu-1", "PLAN", "hold " + "a" * 300],
)  # fmt: skip
def test_what_is_no_command_of_ours_is_known_as_such(text: str) -> None:
    with pytest.raises(UnknownCommand):
        read_command(f"/reconciler {text}")


@given(st.text(max_size=80), st.sampled_from(["hold gpu-1 ", "explain ", "hold ", "plan ", ""]))
def test_whatever_is_written_is_one_line_that_no_shell_reads_on(text: str, begin: str) -> None:
    try:
        command = read_command(f"/reconciler {begin}{text}")
    except UnknownCommand:
        return
    assert command is not None
    for value in (command.node, command.reason):
        assert value.isprintable()
        assert not set(value) & set("$`\"'\\\n\r;&|<>*?!{}[]~") - {";"}
    assert not command.node.startswith("-")
    assert len(command.reason) <= 200


# --- who may ------------------------------------------------------------------------------------------------------


@wire
@pytest.mark.parametrize("role", ["write", "maintain", "admin"])
def test_who_may_write_is_obeyed(github: FakeGitHub, tmp_path: Path, role: str) -> None:
    github.roles["alice"] = role
    assert asked(github, github.event(7, "/reconciler hold gpu-0001 bad DIMM"), tmp_path) == {
        "RECONCILER_VERB": "hold", "RECONCILER_PULL": "7", "RECONCILER_HEAD": HEAD, "RECONCILER_NODE": "gpu-0001",
        "RECONCILER_REASON": "bad DIMM", "RECONCILER_ACTOR": "alice",
    }  # fmt: skip
    assert github.texts(7) == []


@wire
@pytest.mark.parametrize("role", ["read", "triage", "none", None])
def test_nobody_else_is_whatever_the_event_says_of_them(github: FakeGitHub, tmp_path: Path, role: str | None) -> None:
    """The event calls each an OWNER: `author_association` is not what is asked."""
    github.roles = {} if role is None else {"mallory": role}
    found = asked(github, github.event(7, "/reconciler hold `gpu-0001` @all", "mallory"), tmp_path)
    assert found["RECONCILER_VERB"] == "nothing"
    [text] = github.texts(7)
    assert "nothing was done" in text
    assert "mallory may not write to this repository" in text
    balanced(text)
    secretless(github, text)


@wire
def test_a_name_that_passed_to_somebody_else_is_nobody(github: FakeGitHub, tmp_path: Path) -> None:
    event = github.event(7, "/reconciler plan")
    github.numbers["alice"] = 999
    assert asked(github, event, tmp_path)["RECONCILER_VERB"] == "nothing"


@wire
@pytest.mark.parametrize(
    ("level", "verb"), [(50, "hold"), (30, "hold"), (20, "nothing"), (10, "nothing"), (None, "nothing")]
)
def test_developers_are_obeyed_on_gitlab(gitlab: FakeGitLab, tmp_path: Path, level: int | None, verb: str) -> None:
    gitlab.levels = {} if level is None else {gitlab.user("alice")["id"]: level}
    found = asked(gitlab, gitlab.event(7, "/reconciler hold gpu-0001"), tmp_path)
    assert found["RECONCILER_VERB"] == verb
    assert bool(gitlab.texts(7)) == (verb == "nothing")


@wire
def test_a_member_who_is_blocked_is_not(gitlab: FakeGitLab, tmp_path: Path) -> None:
    gitlab.blocked = set(gitlab.levels)
    assert asked(gitlab, gitlab.event(7, "/reconciler plan"), tmp_path)["RECONCILER_VERB"] == "nothing"


@wire
def test_an_event_can_not_put_words_in_anybodys_mouth(gitlab: FakeGitLab, tmp_path: Path) -> None:
    """Whoever has the trigger token can send any payload: author and text are those of GitLab."""
    event = gitlab.event(7, "looks good", "alice")
    event["object_attributes"]["note"] = "/reconciler hold gpu-0001"
    assert asked(gitlab, event, tmp_path)["RECONCILER_VERB"] == "nothing"
    event = gitlab.event(7, "/reconciler hold gpu-0001", "mallory")
    event["user"] = gitlab.user("alice")
    assert asked(gitlab, event, tmp_path)["RECONCILER_VERB"] == "nothing"


@wire
def test_a_comment_that_was_edited_since_is_no_command(github: FakeGitHub, tmp_path: Path) -> None:
    event = github.event(7, "/reconciler explain gpu-0001")
    github.comments[7][-1]["body"] = "/reconciler hold gpu-0001"
    assert asked(github, event, tmp_path)["RECONCILER_VERB"] == "nothing"
    assert "edited since" in github.texts(7)[0]


# --- what is asked ------------------------------------------------------------------------------------------------


@wire
def test_a_plan_is_of_the_commit_that_the_forge_names(github: FakeGitHub, gitlab: FakeGitLab, tmp_path: Path) -> None:
    for fake in (github, gitlab):
        found = asked(fake, fake.event(7, "/reconciler plan"), tmp_path)
        assert (found["RECONCILER_VERB"], found["RECONCILER_HEAD"]) == ("plan", HEAD)


@wire
def test_a_fork_is_planned_offline_or_not_at_all(github: FakeGitHub, gitlab: FakeGitLab, tmp_path: Path) -> None:
    github.open_pull(8, "8" * 40, fork="mallory/fleet")
    assert asked(github, github.event(8, "/reconciler plan"), tmp_path)["RECONCILER_VERB"] == "nothing"
    assert "planned offline" in github.texts(8)[0]
    gitlab.open_merge(8, "8" * 40, fork=43)
    assert asked(gitlab, gitlab.event(8, "/reconciler plan"), tmp_path)["RECONCILER_VERB"] == "fork"


@wire
def test_an_unknown_command_is_answered_with_those_that_there_are(
    github: FakeGitHub, gitlab: FakeGitLab, tmp_path: Path
) -> None:
    for fake in (github, gitlab):
        assert asked(fake, fake.event(7, "/reconciler apply everything"), tmp_path)["RECONCILER_VERB"] == "nothing"
        [text] = fake.texts(7)
        assert "there is no such command" in text
        for command in ("plan", "hold NODE REASON", "explain NODE"):
            assert f"`/reconciler {command}`" in text
        assert not any(line.startswith("/") for line in text.splitlines()), "an answer gives no command"
        balanced(text)


@wire
@pytest.mark.parametrize("text", ["looks good", "/reconcilerx plan", "see\n/reconciler plan", " > /reconciler plan"])
def test_other_comments_are_nobodys_business(github: FakeGitHub, tmp_path: Path, text: str) -> None:
    assert asked(github, github.event(7, text), tmp_path)["RECONCILER_VERB"] == "nothing"
    assert (github.texts(7), github.requests) == ([], [])


@wire
def test_comments_elsewhere_and_later_edits_are_not_read(
    github: FakeGitHub, gitlab: FakeGitLab, tmp_path: Path
) -> None:
    event = github.event(7, "/reconciler plan")
    events = [event | {"action": "edited"}, event | {"issue": {"number": 7}}]
    assert all(asked(github, one, tmp_path)["RECONCILER_VERB"] == "nothing" for one in events)
    event = gitlab.event(7, "/reconciler plan")
    attributes = event["object_attributes"]
    for other in (attributes | {"action": "update"}, attributes | {"noteable_type": "Issue"}):
        assert asked(gitlab, event | {"object_attributes": other}, tmp_path)["RECONCILER_VERB"] == "nothing"
    assert github.requests == gitlab.requests == []


@wire
def test_a_merge_request_that_changed_is_planned(gitlab: FakeGitLab, tmp_path: Path) -> None:
    gitlab.open_merge(8, "8" * 40, fork=43)
    for number, action, verb in (
        (7, "open", "plan"),
        (7, "update", "plan"),
        (8, "open", "fork"),
        (7, "merge", "nothing"),
    ):
        event = {"object_kind": "merge_request", "object_attributes": {"iid": number, "action": action}}
        assert asked(gitlab, event, tmp_path)["RECONCILER_VERB"] == verb


@wire
@pytest.mark.parametrize("event", ["{", "[]", '{"action": "created", "comment": 1, "issue": {"pull_request": 1}}'])
def test_what_is_no_event_is_said(github: FakeGitHub, tmp_path: Path, event: str) -> None:
    file = tmp_path / "event.json"
    file.write_text(event)
    done = reconciler("forge", "request", file, env=github.env())
    assert (done.code, "event.json" in done.err) == (64, True)


# --- what came of it ----------------------------------------------------------------------------------------------


@wire
def test_the_answer_is_a_block_that_formats_nothing(github: FakeGitHub, gitlab: FakeGitLab, tmp_path: Path) -> None:
    output = tmp_path / "plan.txt"
    output.write_text("gpu-0001 [train]\n/close\n```\n@everybody <!-- x --> </details>\n")
    for fake in (github, gitlab):
        env = fake.env(
            CI_JOB_URL="",
            RECONCILER_VERB="explain",
            RECONCILER_NODE="gpu-0001",
            RECONCILER_PULL="7",
            RECONCILER_ACTOR="bob",
        )
        assert reconciler("forge", "reply", output, env=env).code == 0
        assert reconciler("forge", "reply", tmp_path / "none.txt", "--failed", env=env).code == 0
        good, bad = fake.texts(7)
        assert good.startswith("**`/reconciler explain gpu-0001`, asked by bob: done.**")
        assert "````text\ngpu-0001 [train]\n" in good
        assert "asked by bob: failed." in bad
        balanced(good)
