"""Tickets in real trackers on loopback: one per part, updated in place, closed, and never a second one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.tickets.github import text_of, title_of
from reconciler.drivers.tickets.jira import document, wiki
from reconciler.drivers.tickets.trackers import Client, TrackerMessenger, client_of
from reconciler.lab.inprocess import VirtualClock
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.notices import Message, NotDelivered, Severity
from reconciler.model.tickets import Tracker, TrackerKind
from tests.forge.server import REPOSITORY, TOKEN, FakeGitHub, serving
from tests.notify.receivers import webhook
from tests.notify.trackers import jira

pytestmark = pytest.mark.wire

THREAD = "0123456789abcdef0123456789abcdef"
HOSTILE = "``` @everyone {noformat} h1. *bold* <img> #1 [x](y)"


def message(number: int = 1, *, over: bool = False, body: str = HOSTILE) -> Message:
    title = "demo: gpu-001: replace dimm:3 (serial S1)"
    return Message(f"key-{number}", "ticket/t", THREAD, Severity.CRITICAL, over, title, body)


class Desk:
    def __init__(self, tmp_path: Path, tracker: Tracker, value: str, allow: str = "127.0.0.1") -> None:
        (tmp_path / "token").write_text(value)
        (tmp_path / "token").chmod(0o600)
        given = "" if tracker.kind is TrackerKind.WEBHOOK else f", allow: ['{allow}']"
        file = tmp_path / "secrets.yaml"
        file.write_text(f"secrets:\n  token: {{file: token{given}}}\n")
        file.chmod(0o600)
        self.tracker, self.clock, self.store = tracker, VirtualClock(), MemoryLedger("m")
        self._file = file

    def client(self, tracker: Tracker) -> Client:
        return client_of(tracker, SecretStore.load(self._file), self.clock)

    def send(self, one: Message) -> None:
        desk = TrackerMessenger(self.client, self.store, self.clock, deadline_s=20)
        asyncio.run(desk.send(self.tracker, one))


@pytest.fixture
def github(tmp_path: Path) -> Iterator[tuple[FakeGitHub, Desk]]:
    with serving() as fake:
        tracker = Tracker("t", TrackerKind.GITHUB, "token", fake.url, REPOSITORY, ("hardware",))
        yield fake, Desk(tmp_path, tracker, TOKEN)


def test_an_issue_is_opened_updated_in_place_and_closed(github: tuple[FakeGitHub, Desk]) -> None:
    fake, desk = github
    desk.send(message())
    desk.send(message(2, body="more evidence"))
    (issue,) = fake.issues.values()
    assert "more evidence" in issue["body"]
    assert issue["labels"] == ["gpu-fleet-reconciler", "hardware"]
    assert issue["state"] == "open"
    desk.send(message(3, over=True))
    assert (issue["state"], issue["state_reason"]) == ("closed", "completed")
    desk.send(message(4))
    assert (issue["state"], len(fake.issues)) == ("open", 1), "the same part fails again: the same ticket"
    (place,) = desk.store.tickets().values()
    assert place.url.endswith(f"/issues/{place.number}")


def test_a_ticket_whose_record_was_lost_is_found_by_its_marker(github: tuple[FakeGitHub, Desk]) -> None:
    fake, desk = github
    desk.send(message())
    desk.store.ticket_gone("t", THREAD, desk.clock.now())
    desk.send(message(2))
    assert len(fake.issues) == 1


def test_an_answer_that_gets_lost_makes_no_second_ticket(tmp_path: Path) -> None:
    """The creation went through; its answer did not come, and the search does not show it for a while."""
    with jira() as fake:
        desk = Desk(tmp_path, Tracker("t", TrackerKind.JIRA, "token", fake.url, "OPS"), "pat")
        fake.lost, fake.hidden = 1, {"OPS-1"}
        with pytest.raises(NotDelivered):
            desk.send(message())
        with pytest.raises(NotDelivered, match="may have been created already"):
            desk.send(message())
        fake.hidden.clear()
        desk.send(message())
        assert list(fake.issues) == ["OPS-1"]


def test_a_ticket_that_was_never_opened_needs_no_end(github: tuple[FakeGitHub, Desk]) -> None:
    fake, desk = github
    desk.send(message(over=True))
    assert fake.issues == {}


def test_a_ticket_that_somebody_deleted_is_told_again(github: tuple[FakeGitHub, Desk], tmp_path: Path) -> None:
    with jira() as fake:
        desk = Desk(tmp_path, Tracker("t", TrackerKind.JIRA, "token", fake.url, "OPS"), "pat")
        desk.send(message())
        fake.issues.clear()
        with pytest.raises(NotDelivered, match="OPS-1 is not there any more"):
            desk.send(message(2))
        desk.send(message(2))
        assert list(fake.issues) == ["OPS-1"]


def test_a_token_goes_to_its_host_alone(tmp_path: Path) -> None:
    tracker = Tracker("t", TrackerKind.GITHUB, "token", "http://127.0.0.1:9", REPOSITORY)
    desk = Desk(tmp_path, tracker, TOKEN, allow="api.github.com")
    with pytest.raises(NotDelivered, match="may not be sent to") as told:
        desk.send(message())
    assert TOKEN not in str(told.value)


@pytest.mark.parametrize("version", [2, 3])
def test_jira(tmp_path: Path, version: int) -> None:
    with jira(version) as fake:
        tracker = Tracker("t", TrackerKind.JIRA, "token", fake.url, "OPS", ("hw",), "me@x", "Bug", version)
        desk = Desk(tmp_path, tracker, "secret")
        desk.send(message())
        desk.send(message(2, body="more"))
        assert fake.status("OPS-1") == "To Do"
        assert "more" in str(fake.issues["OPS-1"]["fields"]["description"])
        desk.send(message(3, over=True))
        assert fake.status("OPS-1") == "Done"
        desk.send(message(4))
        assert (fake.status("OPS-1"), len(fake.issues)) == ("To Do", 1)
        assert fake.issues["OPS-1"]["fields"]["issuetype"] == {"name": "Bug"}
        assert all(one.startswith("Basic ") for one in fake.authorizations)


def test_a_webhook_is_posted_each_state(tmp_path: Path) -> None:
    with webhook() as server:
        desk = Desk(tmp_path, Tracker("t", TrackerKind.WEBHOOK, "token"), f"http://{server.url}/x?token=secret")
        desk.send(message())
        desk.send(message(2, over=True))
        assert [one["state"] for one in server.documents()] == ["open", "closed"]
        assert {one["ticket"] for one in server.documents()} == {THREAD}
        assert server.keys() == ["key-1", "key-2"]
        server.status = 500
        with pytest.raises(NotDelivered) as told:
            desk.send(message(3))
        assert "secret" not in str(told.value)


def test_words_of_machines_format_nothing() -> None:
    text = text_of(message())
    assert text.count("````") == 2, "the fence is longer than any run of backticks within"
    assert "@\u200beveryone" not in text, "a mention in a fence calls nobody"
    assert title_of(replace(message(), title="@all #1")) == "@\u200ball #\u200b1"
    assert wiki("a {noformat} b").count("{noformat}") == 2
    assert document("h1. x")["content"][0]["content"][0]["text"] == "h1. x"


def test_a_tracker_that_hangs_is_given_up(tmp_path: Path) -> None:
    with webhook() as server:
        desk = Desk(tmp_path, Tracker("t", TrackerKind.WEBHOOK, "token"), f"http://{server.url}/")
        server.gate.clear()
        slow = TrackerMessenger(desk.client, desk.store, desk.clock, deadline_s=0.3)
        with pytest.raises(NotDelivered, match=r"no answer within 0\.3 s"):
            asyncio.run(slow.send(desk.tracker, message()))
        server.gate.set()
