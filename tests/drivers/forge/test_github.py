"""GitHub over its REST API: all pages, our own words alone, limits waited for, and no write done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

import pytest

from reconciler.drivers.forge import connect
from reconciler.drivers.forge.http import PATIENCE_S
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Check, Forge, Remark
from tests.forge.server import BOT, REPOSITORY, TOKEN, FakeGitHub, serving
from tests.forge.server import Failure as Broken

pytestmark = pytest.mark.wire
T = TypeVar("T")


class Pacer:
    """A clock whose sleeps take no time, and are remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(seconds=sum(self.slept))

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def real_seconds(self, seconds: float) -> float:
        return seconds


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    with serving() as found:
        found.open_pull(7, "c" * 40, "fleet-spec/fleet.yaml")
        yield found


@pytest.fixture
def clock() -> Pacer:
    return Pacer()


def ask(fake: FakeGitHub, clock: Pacer, work: Callable[[Forge], Awaitable[T]], token: str = TOKEN) -> T:
    async def run() -> T:
        forge = connect(REPOSITORY, token, clock, url=fake.url)
        try:
            return await work(forge)
        finally:
            await forge.close()

    return asyncio.run(run())


def test_own_comments_are_found_on_every_page_and_nobody_elses(fake: FakeGitHub, clock: Pacer) -> None:
    for at in range(250):
        fake.say(7, f"remark {at}", BOT if at in (0, 120, 249) else "mallory")
    fake.comments[7].append({"id": 1, "body": None, "user": None, "html_url": "x"})  # of an account that is gone
    found = ask(fake, clock, lambda forge: forge.remarks(7))
    assert [remark.text for remark in found] == ["remark 0", "remark 120", "remark 249"]
    assert len(fake.asked("GET", "/comments")) == 3


def test_the_token_of_a_person_writes_as_that_person(fake: FakeGitHub, clock: Pacer) -> None:
    fake.tokens["ghp_person"] = "dependable"
    fake.say(7, "mine", "dependable")
    fake.say(7, "not mine", BOT)
    found = ask(fake, clock, lambda forge: forge.remarks(7), "ghp_person")
    assert [remark.text for remark in found] == ["mine"]


def test_files_of_a_large_pull_request(fake: FakeGitHub, clock: Pacer) -> None:
    fake.page = 30
    fake.files[7] = [{"filename": f"f{at}"} for at in range(100)]
    fake.files[7].append({"filename": "new", "previous_filename": "old", "status": "renamed"})
    found = ask(fake, clock, lambda forge: forge.files(7))
    assert len(found) == 102
    assert {"new", "old"} <= set(found)


def test_approvals_are_the_latest_word_of_others_on_the_head(fake: FakeGitHub, clock: Pacer) -> None:
    said = [
        ("alice", "APPROVED", ""), ("bob", "APPROVED", ""), ("bob", "COMMENTED", ""), ("carol", "APPROVED", "d" * 40),
        ("dan", "APPROVED", ""), ("dan", "CHANGES_REQUESTED", ""), ("erin", "CHANGES_REQUESTED", ""),
        ("erin", "APPROVED", ""), ("frank", "APPROVED", ""), ("frank", "DISMISSED", ""),
    ]  # fmt: skip
    for login, state, commit in said:
        fake.review(7, login, state, commit)

    async def read(forge: Forge) -> Any:
        return await forge.approvals(await forge.pull(7))

    found = [one.name for one in ask(fake, clock, read)]
    assert found == ["bob", "erin"], "alice is its author, and carol has read another commit"


def test_issues_of_ours_are_no_pull_requests(fake: FakeGitHub, clock: Pacer) -> None:
    made = ask(fake, clock, lambda forge: forge.add_issue("t" * 400, "text"))
    fake.issues[1] = {
        "number": 1,
        "state": "open",
        "user": {"login": BOT},
        "pull_request": {},
        "body": "",
        "html_url": "",
    }
    assert [issue.id for issue in ask(fake, clock, lambda forge: forge.open_issues())] == [made.id]
    assert len(fake.issues[made.id]["title"]) <= 256
    ask(fake, clock, lambda forge: forge.edit_issue(made.id, "t", "clean", close=True))
    assert (fake.issues[made.id]["state"], fake.issues[made.id]["body"]) == ("closed", "clean")


def test_a_status_is_short_enough_for_github(fake: FakeGitHub, clock: Pacer) -> None:
    ask(fake, clock, lambda forge: forge.set_check("a" * 40, "reconciler/plan", Check.FAILURE, "x" * 500, "text", ""))
    [status] = fake.statuses
    assert (status["state"], len(status["description"]), "target_url" in status) == ("failure", 140, False)


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_check_run_where_the_token_may_make_one(fake: FakeGitHub, clock: Pacer) -> None:
    fake.permissions.add("checks")

    async def set_all(forge: Forge) -> None:
        for verdict in Check:
            await forge.set_check("a" * 40, "reconciler/plan", verdict, "t" * 500, "## x", "u")

    ask(fake, clock, set_all)
    assert [(one["conclusion"], one["status"]) for one in fake.checks] == [
        ("success", "completed"), ("action_required", "completed"), ("failure", "completed"),
    ]  # fmt: skip
    assert (fake.checks[0]["output"]["summary"], len(fake.checks[0]["output"]["title"])) == ("## x", 250)
    assert fake.statuses == []


def test_a_check_that_can_not_be_set_at_all_is_told(fake: FakeGitHub, clock: Pacer) -> None:
    fake.permissions.discard("statuses")
    with pytest.raises(DriverError, match="statuses=write"):
        ask(fake, clock, lambda forge: forge.set_check("a" * 40, "reconciler/plan", Check.SUCCESS, "t", "x", ""))
    fake.failures = [Broken("POST", "/check-runs", 422, message="Validation Failed")]
    with pytest.raises(DriverError, match="Validation Failed"):
        ask(fake, clock, lambda forge: forge.set_check("a" * 40, "reconciler/plan", Check.SUCCESS, "t", "x", ""))
    assert fake.statuses == [], "a fault of ours is no missing permission"


def test_a_comment_is_folded_away_on_an_enterprise_server_too(fake: FakeGitHub, clock: Pacer) -> None:
    """GitHub Enterprise has its REST API at /api/v3 and its GraphQL API at /api/graphql."""
    fake.say(7, "old", BOT)
    [old] = ask(fake, clock, lambda forge: forge.remarks(7))
    ask(fake, clock, lambda forge: forge.hide_remark(old))
    assert fake.hidden == {old.handle: "OUTDATED"}
    with pytest.raises(DriverError, match="Could not resolve"):
        ask(fake, clock, lambda forge: forge.hide_remark(Remark(1, "", "", "IC_1")))
    fake.permissions.clear()
    with pytest.raises(DriverError) as told:
        ask(fake, clock, lambda forge: forge.hide_remark(old))
    assert told.value.kind is Failure.AUTH


def test_what_fails_for_a_moment_is_asked_again(fake: FakeGitHub, clock: Pacer) -> None:
    fake.failures = [Broken("GET", "/pulls/7$", status, times=1) for status in (500, 502, 503)]
    assert ask(fake, clock, lambda forge: forge.pull(7)).head == "c" * 40
    assert [1 <= at <= 3 for at in clock.slept[:1]] == [True]
    assert clock.slept == sorted(clock.slept), "pauses grow"


def test_pauses_differ_from_run_to_run(fake: FakeGitHub) -> None:
    def pause() -> float:
        clock = Pacer()
        fake.failures = [Broken("GET", "/pulls/7$")]
        ask(fake, clock, lambda forge: forge.pull(7))
        return clock.slept[0]

    assert len({pause() for _ in range(5)}) > 1


def test_what_fails_for_good_is_told(fake: FakeGitHub, clock: Pacer) -> None:
    fake.failures = [Broken("GET", "/pulls/7$", 502, message="Unicorn!", times=99)]
    with pytest.raises(DriverError, match="HTTP 502: Unicorn") as told:
        ask(fake, clock, lambda forge: forge.pull(7))
    assert told.value.kind is Failure.UNREACHABLE
    assert len(fake.requests) == 5


@pytest.mark.parametrize(
    ("status", "headers", "message", "least"),
    [
        (429, {"Retry-After": "30"}, "", 30),
        (403, {"Retry-After": "45"}, "You have exceeded a secondary rate limit", 45),
        (403, {}, "You have exceeded a secondary rate limit. Please wait", 60),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795262520"}, "API rate limit exceeded", 120),
        (429, {"Retry-After": format_datetime(datetime(2026, 11, 21, 12, 1, tzinfo=UTC), usegmt=True)}, "", 59),
        (429, {"Retry-After": "soon"}, "", 60),
    ],
)
def test_limits_are_waited_for_as_github_says(
    fake: FakeGitHub, clock: Pacer, status: int, headers: dict[str, str], message: str, least: float
) -> None:
    """A POST too: a request that met a limit was not carried out."""
    fake.failures = [Broken("POST", "/comments", status, headers, message)]
    ask(fake, clock, lambda forge: forge.add_remark(7, "text"))
    assert fake.texts(7) == ["text"]
    [slept] = clock.slept
    assert least <= slept <= least + 3


def test_nobody_waits_for_ever(fake: FakeGitHub, clock: Pacer) -> None:
    fake.failures = [Broken("GET", "/pulls/7$", 429, {"Retry-After": "3600"}, times=9)]
    with pytest.raises(DriverError) as told:
        ask(fake, clock, lambda forge: forge.pull(7))
    assert told.value.kind is Failure.BUSY
    assert sum(clock.slept) <= PATIENCE_S


def test_a_comment_that_may_be_there_is_not_posted_blindly_again(fake: FakeGitHub, clock: Pacer) -> None:
    fake.failures = [Broken("POST", "/comments", 502, done=True)]
    fake.tokens[""] = BOT
    with pytest.raises(DriverError) as told:
        ask(fake, clock, lambda forge: forge.add_remark(7, "text"))
    assert told.value.kind is Failure.AMBIGUOUS
    assert len(fake.asked("POST")) == 1


@pytest.mark.parametrize(
    ("status", "headers", "errors", "kind", "words"),
    [
        (401, {}, (), Failure.AUTH, "the token is wrong"),
        (403, {"X-Accepted-GitHub-Permissions": "pull_requests=write"}, (), Failure.AUTH, "pull_requests=write"),
        (404, {}, (), Failure.UNSUPPORTED, "the token may not see it"),
        (
            422,
            {},
            ({"message": "Body is too long"}, {"code": "missing"}, "x"),
            Failure.REJECTED,
            "Body is too long; missing",
        ),
        (307, {"Location": "/elsewhere"}, (), Failure.REJECTED, "it has moved to /elsewhere"),
    ],
)
def test_what_asking_again_does_not_mend_is_told_at_once(
    fake: FakeGitHub,
    clock: Pacer,
    status: int,
    headers: dict[str, str],
    errors: tuple[Any, ...],
    kind: Failure,
    words: str,
) -> None:
    fake.failures = [Broken("POST", "/comments", status, headers, "no", errors, times=9)]
    with pytest.raises(DriverError, match=words) as told:
        ask(fake, clock, lambda forge: forge.add_remark(7, "text"))
    assert told.value.kind is kind
    assert len(fake.requests) == 1
    assert TOKEN not in str(told.value)


def test_a_forge_that_is_not_there(clock: Pacer) -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(DriverError) as told:
        ask(FakeGitHub(url=url), clock, lambda forge: forge.add_remark(7, "text"))
    assert told.value.kind is Failure.UNREACHABLE, "nothing was sent"
    assert len(clock.slept) == 4


def test_the_next_page_is_on_the_same_host(fake: FakeGitHub, clock: Pacer) -> None:
    """It gets the token."""
    fake.failures = [
        Broken("GET", "/files", 200, {"Link": '<http://evil.example/api/v3/x>; rel="next"'}),
    ]
    with pytest.raises(DriverError) as told:
        ask(fake, clock, lambda forge: forge.files(7))
    assert told.value.kind is Failure.MALFORMED


@pytest.mark.parametrize(
    ("repository", "url", "token"),
    [
        ("acme", "https://x", "t"),
        ("acme/..", "https://x", "t"),
        ("acme/fleet/../other", "https://x", "t"),
        ("acme/fleet", "http://github.example", "t"),
        ("acme/fleet", "https://x", " "),
        ("acme/fleet", "https://x", "a\r\nX: b"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(repository: str, url: str, token: str) -> None:
    with pytest.raises(UsageError) as told:
        connect(repository, token, Pacer(), url=url)
    assert token.strip() == "" or "\n" not in token or token not in str(told.value)
