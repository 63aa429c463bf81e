"""A leader's process sums up a day after each pass, but none while a term begins."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from reconciler.app.ports import AllowedSigners, FleetRequest
from reconciler.app.service import OFF, Service, ServiceOptions, ServiceRequest, SpecSource, WebRequest
from reconciler.app.workspace import Workspace
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.schema import day_sums
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Fleet
from tests.cli.shell import SPEC
from tests.ledger.test_audit import tamper
from tests.ledger.test_period import came_and_went


def test_after_each_pass_but_the_first_of_a_run_a_day_is_summed_up(tmp_path: Path) -> None:
    web = WebRequest(OFF, None, None, None, {}, {})
    request = ServiceRequest(AllowedSigners(None, None), ServiceOptions(60, 1, None, False), web, None)
    workspace = Workspace(FleetRequest(SPEC))
    clock = VirtualClock()
    clock.elapsed = timedelta(hours=12).total_seconds()
    workspace.clock = cast("Any", clock)
    service = Service(workspace, SpecSource(None, "", "", None, "", None), request)
    feed = service._feed()
    asyncio.run(feed.pull())
    told: list[Any] = []
    where = tmp_path / "ledger.sqlite"
    with closing(SqlLedger(where, clock=workspace.clock)) as ledger:
        came_and_went(ledger, workspace.clock.now() - timedelta(days=1), "n")
        deps = service._loop(feed, ledger, told.append, ())._deps
        fleet, nothing = cast("Fleet", feed.fleet), cast("Any", None)

        def passed() -> int:
            """Let a pass end, and return how many pages of sums there are."""
            deps.saw(fleet, nothing, nothing)
            with ledger._database.read() as connection:
                return connection.execute(sa.select(sa.func.count()).select_from(day_sums)).scalar_one()

        deps.begin(fleet)
        assert [passed(), passed()] == [0, 1]
        deps.begin(fleet)
        assert [passed(), passed()] == [1, 2]
        assert told == []
        tamper(str(where), "UPDATE drift SET path = x'ff'", "DELETE FROM day_sums")
        for _ in range(5):
            passed()
    assert [one.event for one in told] == ["day_sums"]
    assert "TypeError" in told[0].message
