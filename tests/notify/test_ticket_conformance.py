"""`reconciler conformance tickets` on trackers on loopback: what passes, and what a tracker that errs fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.commands.conformance import exit_code
from reconciler.drivers.tickets.conformance import check_tracker
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.conformance import ConformanceReport
from reconciler.model.tickets import Tracker, TrackerKind
from tests.cli.shell import reconciler
from tests.conftest import ROOT
from tests.forge.server import REPOSITORY, TOKEN, serving
from tests.notify.receivers import webhook
from tests.notify.test_tickets import Desk
from tests.notify.trackers import FakeJira, jira

pytestmark = pytest.mark.wire


class NoWait(VirtualClock):
    """A clock whose sleeps are over at once."""

    async def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


def suite(desk: Desk, *, writes: bool = True) -> ConformanceReport:
    desk.clock = NoWait()

    async def run() -> ConformanceReport:
        client = desk.client(desk.tracker)
        try:
            return await check_tracker(client, desk.tracker, desk.clock, writes=writes)
        finally:
            await client.close()

    return asyncio.run(run())


def results(report: ConformanceReport) -> dict[str, str]:
    return {one.check.name: one.result.value for one in report.outcomes}


def details(report: ConformanceReport) -> dict[str, str]:
    return {one.check.name: one.detail for one in report.outcomes}


@pytest.fixture(params=[2, 3])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FakeJira, Desk]]:
    with jira(request.param) as fake:
        tracker = Tracker("ops", TrackerKind.JIRA, "token", fake.url, "OPS", version=request.param)
        yield fake, Desk(tmp_path, tracker, "pat")


def test_jira_passes_and_keeps_one_closed_ticket(desk: tuple[FakeJira, Desk]) -> None:
    fake, ours = desk
    read = suite(ours, writes=False)
    assert (fake.issues, exit_code(read)) == ({}, 0)
    assert set(results(read).values()) == {"pass", "not tried"}
    report = suite(ours)
    assert (set(results(report).values()), exit_code(report)) == ({"pass"}, 0), details(report)
    assert [fake.status(key) for key in fake.issues] == ["Done"]
    assert report.about["ticket"] == "ticket OPS-1"


def test_github_passes_and_keeps_one_closed_ticket(tmp_path: Path) -> None:
    with serving() as fake:
        ours = Desk(tmp_path, Tracker("ops", TrackerKind.GITHUB, "token", fake.url, REPOSITORY), TOKEN)
        report = suite(ours)
        assert set(results(report).values()) == {"pass"}, details(report)
        assert [issue["state"] for issue in fake.issues.values()] == ["closed"]
        ours.tracker = Tracker("ops", TrackerKind.GITHUB, "token", fake.url, "acme/nowhere")
        nowhere = suite(ours)
        assert (set(results(nowhere).values()), exit_code(nowhere)) == ({"not tried"}, 4), details(nowhere)


def test_a_web_server_is_posted_one_ticket_that_ends_closed(tmp_path: Path) -> None:
    with webhook() as hook:
        ours = Desk(tmp_path, Tracker("cmdb", TrackerKind.WEBHOOK, "token"), f"http://{hook.url}/hook")
        report = suite(ours)
        found = results(report)
        assert (found.pop("write-find"), found.pop("write-gone")) == ("not offered", "not offered")
        assert set(found.values()) == {"pass"}, details(report)
        posted = hook.documents()
        assert len({one["ticket"] for one in posted}) == 1
        assert (posted[0]["state"], posted[-1]["state"]) == ("open", "closed")
        hook.status = 500
        refused = suite(ours)
        assert (results(refused)["write-open"], exit_code(refused)) == ("fail", 7)


def test_a_tracker_that_shows_nobody_what_it_has_fails(desk: tuple[FakeJira, Desk]) -> None:
    fake, ours = desk
    fake.hidden = {"OPS-1"}
    report = suite(ours)
    assert details(report)["write-find"] == "ticket OPS-1 is not found by its marker within 120 s"
    assert exit_code(report) == 7


def test_a_ticket_that_can_not_be_closed_is_named(desk: tuple[FakeJira, Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    fake, ours = desk
    answer = fake.answer

    def without_an_end(method: str, path: str, *rest: Any) -> tuple[int, Any]:
        if method == "GET" and path.endswith("/transitions"):
            return 200, {"transitions": []}
        return answer(method, path, *rest)

    monkeypatch.setattr(fake, "answer", without_an_end)
    report = suite(ours)
    assert "the workflow has no transition that closes it" in details(report)["write-close"]
    assert report.about["left"] == "which is left open: close it"


def test_a_tracker_that_the_fleet_does_not_name_is_refused() -> None:
    done = reconciler("conformance", "tickets", "--spec", ROOT / "fleet-spec", "nobody")
    assert (done.code, "names no tracker 'nobody' under `tickets`" in done.err) == (64, True), done.err
