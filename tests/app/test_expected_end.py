"""When `reconciler status` expects a node to be done on which an action runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reconciler.app.status import expected_end
from reconciler.model.fleet_overview import Work
from reconciler.model.plan import NodePlan
from tests import builders as b
from tests.render.test_plan import DRAIN, HOUR, node

END = b.NOW + HOUR
PLANNED = node("a1", start=b.NOW, end=END)
WAITS = node("a1", start=b.NOW, end=END, actions=(replace(DRAIN, waits_s=480.0),))


def ago(**time: float) -> datetime:
    return b.NOW - timedelta(**time)


@pytest.mark.parametrize(
    ("plan", "work", "sooner"),
    [
        pytest.param(PLANNED, Work("a1", "drain", "", ago(minutes=4)), 4, id="it began before"),
        pytest.param(
            PLANNED, Work("a1", "drain", "", ago(hours=3)), 10, id="it takes longer than ever: it may end now"
        ),
        pytest.param(PLANNED, Work("a1", "drain", "", ago(minutes=-2)), 0, id="the clock was set back"),
        pytest.param(PLANNED, Work("a1", "drain", ""), 0, id="nobody knows when it began"),
        pytest.param(PLANNED, Work("a1", "gpu_reset", "", ago(minutes=4)), 0, id="the plan begins with another one"),
        pytest.param(WAITS, Work("a1", "drain", "", ago(minutes=9)), 2, id="a wait for jobs is not counted from now"),
        pytest.param(
            node("a1", start=b.NOW, end=END, actions=()), Work("a1", "admit", "", ago(minutes=1)), 0, id="last"
        ),
    ],
)
def test_what_is_over_of_an_action_is_no_more_to_come(plan: NodePlan, work: Work, sooner: int) -> None:
    assert expected_end(plan, work, b.NOW) == END - timedelta(minutes=sooner)


def test_nobody_says_when_where_the_plan_does_not_or_a_soak_says_it_itself() -> None:
    assert expected_end(node("a1"), Work("a1", "drain", "", ago(minutes=4)), b.NOW) is None
    assert expected_end(PLANNED, Work("a1", "run_gate", "soak: 1d07h of 3d", ago(minutes=4)), b.NOW) is None
