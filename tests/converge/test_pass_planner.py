"""A leader keeps plans between its passes, and once an hour proves them by planning every node anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.converge.events import LoopTold
from reconciler.converge.pass_planner import PassPlanner, PlannedPass
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.observed import Observation
from reconciler.model.plan import Goal, NodePlan
from reconciler.planner.node.kept_plans import KeptPlans
from tests.converge.test_loop import Seen
from tests.converge.world import SIGNATURES, World

MINUTE, HOUR = 60.0, 3600.0


@dataclass
class Leader(World):
    """A fleet whose nodes are well, and what one leader plans of it."""

    metrics: Seen = field(default_factory=Seen)
    seen: Observation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.adopt()
        self.planner = PassPlanner(self.ledger, self.clock, self.metrics, self.events.append)

    def passes(self, later_s: float = MINUTE) -> PlannedPass:
        """Look at all nodes, and plan them."""
        self.clock.elapsed += later_s
        self.seen = self.observe(previous=self.seen)
        return self.plans_again(0.0)

    def plans_again(self, later_s: float) -> PlannedPass:
        """Plan from what was read before: after an hour, counters are looked at anew, which changes each record."""
        self.clock.elapsed += later_s
        assert self.seen is not None
        return self.planner.plan(self.fleet, self.seen, list(self.fleet.nodes), SIGNATURES)

    def told(self) -> list[str]:
        return [one.message for one in self.events if isinstance(one, LoopTold) and one.event == "kept_plans"]


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    here = Leader(tmp_path, nodes=4, node={"domains": {}})
    here.passes()
    here.passes()  # the ledger has learnt who they are
    yield here
    here.ledger.close()


def poison(kept: KeptPlans, node: str) -> NodePlan:
    known = kept._plans[node]
    known.plan = replace(known.plan, situation="all is well, it says", goal=Goal.ISOLATED)
    return known.plan


def test_nodes_that_answer_as_before_are_not_planned_again(leader: Leader) -> None:
    leader.passes()
    assert leader.metrics.plans[-1] == (0, 4, 0)
    leader.machine("n2").inject("xid_79", gpu=1)
    plan = leader.passes().plan
    assert leader.metrics.plans[-1] == (1, 3, 0)
    assert [name for name, node in plan.nodes.items() if node.changes] == ["n2"]
    for _ in range(2):  # what is to be acted upon is planned in each pass
        leader.passes()
        assert leader.metrics.plans[-1] == (1, 3, 0)


def test_the_plans_of_a_pass_tell_when_its_nodes_were_read(leader: Leader) -> None:
    made = leader.passes()
    assert leader.seen is not None
    assert {one.observed_at for one in made.plan.nodes.values()} == {one.hot.at for one in leader.seen.nodes.values()}


def test_once_an_hour_a_whole_pass_wins_over_what_is_kept(leader: Leader) -> None:
    wrong = poison(leader.planner.kept, "n1")
    assert leader.passes().plan.nodes["n1"].situation == wrong.situation  # nothing tells it before
    assert leader.told() == []
    plan = leader.plans_again(HOUR).plan
    assert plan.nodes["n1"].goal is Goal.IN_SERVICE
    [message] = leader.told()
    assert "n1 (goal, situation)" in message
    assert leader.metrics.plans[-1] == (0, 4, 1)
    leader.passes()
    assert leader.metrics.plans[-1] == (4, 0, 0)
    leader.plans_again(HOUR)
    assert leader.metrics.plans[-1] == (0, 4, 0)
    assert len(leader.told()) == 1


def test_poisoned_signals_of_a_node_are_found_too(leader: Leader) -> None:
    leader.machine("n3").inject("xid_79", gpu=1)
    leader.passes()
    signals = leader.planner.kept.signals
    for told in signals._told.values():
        told.signals = ()
    plan = leader.plans_again(HOUR).plan
    assert plan.nodes["n3"].changes
    assert "n3" in leader.told()[0]


def test_another_spec_is_planned_whole(leader: Leader) -> None:
    leader.fleet = replace(leader.fleet, nodes=dict(leader.fleet.nodes))
    leader.passes()
    assert leader.metrics.plans[-1] == (4, 0, 0)


def test_what_the_ledger_was_asked_is_asked_again_once_anybody_has_written_it(leader: Leader) -> None:
    with closing(SqlLedger(leader.where / "ledger.sqlite")) as other:
        for ledger in (leader.ledger, other):
            before = leader.ledger.known(), leader.ledger.durations()
            assert leader.ledger.known() == before[0]
            assert leader.ledger.durations() is before[1]
            name = f"new-{ledger is other}"
            ledger.remember_applied(name, {"bios.A": "1"}, "d", "c", leader.clock.now())
            assert leader.ledger.known() == [*before[0], name]
            leader.clock.elapsed += MINUTE
            lease = ledger.acquire(name, "test", HOUR, leader.clock.now())
            attempt = ledger.begin("run", "n0", "set_bios", "", "", {}, lease.token, leader.clock.now())
            leader.clock.elapsed += MINUTE
            ledger.finish(attempt, "done", "", leader.clock.now())
            assert leader.ledger.durations() == [("n0", "set_bios", "", MINUTE), *before[1]]
            leader.ledger.forget([name], leader.clock.now())
            assert leader.ledger.known() == before[0]
