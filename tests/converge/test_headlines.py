"""Headlines agree with the facts below them: what a fleet is in the middle of, and what nobody could read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reconciler.app.apply import outcome_document
from reconciler.app.comment_publisher import is_clean
from reconciler.app.drift_report import drift_report
from reconciler.cli.commands.drift import exit_code
from reconciler.cli.exit_codes import ExitCode
from reconciler.converge.apply import ApplyInterrupted, ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.plan import BlockCode, Plan
from reconciler.render import drift, outcome, plan, plan_comment
from tests.converge.world import World

Worlds = Callable[..., World]


def interrupted_in(here: World, action: str, after_s: float) -> ApplyReport:
    """Interrupt an apply some time after `action` has begun."""

    async def both() -> ApplyReport:
        work = asyncio.create_task(here.applying())
        await here.started(action)
        await here.clock.sleep(after_s)
        work.cancel()
        with pytest.raises(ApplyInterrupted) as cancelled:
            await work
        return cancelled.value.report

    return here.run(both())


@pytest.fixture
def reimaging(world: Worlds) -> World:
    """One node that an interrupted run has left in its installer."""
    here = world(nodes=3, drift={"n0": ["old_image"]})
    here.adopt()
    report = interrupted_in(here, "reimage", 200.0)
    assert here.machine("n0").state.phase == "installer"
    assert report.results["n0"].state is Ended.PARKED
    return here


def test_work_that_an_interruption_parks_has_not_failed(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["old_image"]})
    here.adopt()
    report = interrupted_in(here, "reimage", 200.0)
    said = outcome.headline(outcome_document(report)).text
    assert (said, report.results["n0"].state) == ("interrupted, 1 parked", Ended.PARKED)
    assert "failed" not in outcome.human(outcome_document(report))
    assert here.apply().results["n0"].state is Ended.DONE


def test_a_reimage_under_way_is_not_left_alone(reimaging: World) -> None:
    made: Plan = reimaging.plan()
    blocked = made.nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.UNDER_WAY
    assert plan.verdict(made) == "nothing to do; 1 node under way"
    assert plan_comment.headline(made).text == "nothing to do, 1 node under way"


@pytest.mark.parametrize("cluster", [True, False])
def test_a_node_that_is_off_is_not_as_specified(world: Worlds, *, cluster: bool) -> None:
    """Nobody can read the image of a node that is off, whoever switched it off."""
    here = world(nodes=1, cluster=cluster)
    here.adopt()
    here.machine("n0").power("force_off")
    here.clock.elapsed += 120.0
    report = drift_report(here.plan(), here.observe())
    assert drift.verdict(report).endswith("0 of 1 as specified")
    assert report.unknown == {"n0"}
    assert exit_code(report, detailed=True) == ExitCode.CHANGES
    assert not is_clean(report), "its issue stays open"
    if not cluster:
        assert not report.changes
        assert drift.headline(report).text == "no node differs, 1 unknown"
        assert drift.headline(report).sign != "✅"
