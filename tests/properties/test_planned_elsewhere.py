"""incremental_equals_whole: plans that workers make of what they have read are those that a leader makes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.engine.answers import NO_DIGESTS, Known, sent_of
from reconciler.drivers.engine.plans import PlanTask, packed_plans, unpacked_plans
from reconciler.model import observed as o
from reconciler.model.desired import IgnoreRule
from reconciler.model.observer_port import Readings
from reconciler.model.plan import Plan
from reconciler.model.records import Hold
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_ahead
from reconciler.planner.node import shard_plans
from reconciler.planner.node.kept_plans import KeptPlans
from reconciler.planner.node.shard_plans import PlanShard, QuietPlan, quiet_plans
from tests import builders as b
from tests.properties.test_execute import few
from tests.properties.test_incremental import EDITS, NAMES, STEPS, Passes, moments

TWO_SITES = {name: (f"s{at % 2}", f"s{at % 2}#0") for at, name in enumerate(NAMES)}


class Worker:
    """Plans as a worker does, of what it has read, with all that travels between it and its leader packed."""

    def __init__(self, seen: Mapping[str, o.Observed]) -> None:
        self.last: dict[str, Known] = {}
        self.planned: dict[str, QuietPlan] = {}
        for name, one in seen.items():
            readings = Readings(one.hot, one.inventory, one.host)
            self.last[name] = Known(readings, sent_of(NO_DIGESTS, None, readings)[1])

    async def plan(self, shards: Sequence[PlanShard]) -> Mapping[str, QuietPlan]:
        for shard in shards:
            task = PlanTask.of(shard, {name: self.last[name].digests for name in shard.seen})
            arrived = PlanTask.unpacked(task.packed())
            data = packed_plans(quiet_plans(arrived.with_readings(self.last)))
            self.planned |= unpacked_plans(data, shard.seen)
        return self.planned


@pytest.fixture(autouse=True)
def _any_shard_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_plans, "LEAST", 1)


def plan_elsewhere(here: Passes, kept: KeptPlans, worker: Worker) -> None:
    observation = o.Observation("1.0", "test", "", here.now, here.now, dict(here.seen))
    snapshot = LedgerSnapshot(b.LEDGER, dict(here.records), holds=here.holds)
    request = PlanRequest("p", here.signatures)
    asyncio.run(plan_ahead(here.fleet, observation, snapshot, here.now, request, kept, TWO_SITES, worker))


def differing(made: Plan, whole: Plan) -> dict[Any, Any]:
    return {
        (name, one.name): (getattr(plan, one.name), getattr(whole.nodes[name], one.name))
        for name, plan in made.nodes.items()
        for one in fields(plan)
        if getattr(plan, one.name) != getattr(whole.nodes[name], one.name)
    }


def test_plans_that_workers_make_are_those_of_the_leader() -> None:
    met: Counter[str] = Counter()

    @few
    @given(st.data())
    def visit(data: st.DataObject) -> None:
        here, kept = Passes(), KeptPlans()
        for edit in data.draw(st.lists(st.sampled_from(EDITS), max_size=5)):
            edit(here, data.draw, data.draw(st.sampled_from(NAMES)))
        worker = Worker(here.seen)
        plan_elsewhere(here, kept, worker)
        made, whole = here.plan(kept), here.plan(None)
        assert made == whole, differing(made, whole) or "of the fleet"
        assert list(moments(made)) == []
        assert kept.served == len(worker.planned), "what a worker planned is not planned again"
        quiet = {name for name, plan in whole.nodes.items() if not plan.actions}
        assert worker.planned.keys() <= quiet
        met.update({"planned": len(worker.planned), "quiet": len(quiet)})
        here.now += data.draw(st.sampled_from(STEPS))  # later, and with other inputs, they hold or are made anew
        for edit in data.draw(st.lists(st.sampled_from(EDITS), max_size=2)):
            edit(here, data.draw, data.draw(st.sampled_from(NAMES)))
        made, whole = here.plan(kept), here.plan(None)
        assert made == whole, differing(made, whole) or "of the fleet"

    visit()
    assert met["planned"] > met["quiet"] / 3, met


def test_a_worker_takes_a_host_for_down_by_the_same_neighbours() -> None:
    """Another host that answers in its rack tells one that is down from an observer who is cut off."""
    here, kept = Passes(), KeptPlans()
    ago = here.now - timedelta(hours=2)
    here.record("n0", silent_since={"ssh": ago, "not_ready": ago})
    silent = o.Silent(here.now, UnknownReason.UNREACHABLE, "no route")
    member: o.Answered[o.Member | None] = o.Answered(here.now, b.member("n0", ready=False))
    here.seen["n0"] = replace(here.seen["n0"], host=silent, member=member)
    plan_elsewhere(here, kept, Worker(here.seen))
    made, whole = here.plan(kept), here.plan(None)
    assert "down" in whole.nodes["n0"].situation or whole.nodes["n0"].actions
    assert made == whole, differing(made, whole)


@pytest.mark.parametrize("said", ["ignored", "held"])
def test_what_leaves_a_drifted_node_alone_is_known_where_it_is_planned(said: str) -> None:
    here, kept = Passes(), KeptPlans()
    host = here.host("n0")
    assert host is not None
    here.seen["n0"] = replace(
        here.seen["n0"], host=o.Answered(here.now, replace(host, sysctls={"vm.swappiness": "60"}))
    )
    if said == "held":
        here.holds = (Hold(1, "n0", "looking at it", "ops", here.now),)
    else:
        here.respecify(ignore=(IgnoreRule("host.*", "known"),))
    worker = Worker(here.seen)
    plan_elsewhere(here, kept, worker)
    assert worker.planned.keys() == set(NAMES)
    assert here.plan(kept) == here.plan(None)
    here.respecify(ignore=())
    here.holds = ()
    assert here.plan(None).nodes["n0"].actions, "it is left alone for that alone"


def test_a_worker_that_has_read_something_else_since_plans_nothing_of_that() -> None:
    here, kept = Passes(), KeptPlans()
    worker = Worker(here.seen)
    before = here.seen["n0"]
    assert isinstance(before.host, o.Answered)
    later = replace(before.host, at=here.now + timedelta(minutes=1))
    worker.last["n0"] = Known(worker.last["n0"].readings._replace(host=later), worker.last["n0"].digests)
    plan_elsewhere(here, kept, worker)
    assert worker.planned.keys() == {"n1", "n2", "n3"}
    assert here.plan(kept) == here.plan(None)


def test_equal_plans_travel_once() -> None:
    here = Passes()
    worker = Worker(here.seen)
    plan_elsewhere(here, KeptPlans(), worker)
    quiet = {"n0": worker.planned["n0"]}
    assert len(packed_plans(worker.planned)) < 2 * len(packed_plans(quiet))


def test_what_acted_is_left_to_the_leader_and_what_is_kept_is_not_asked_for() -> None:
    here, kept = Passes(), KeptPlans()
    host = here.host("n0")
    assert host is not None
    here.seen["n0"] = replace(
        here.seen["n0"], host=o.Answered(here.now, replace(host, sysctls={"vm.swappiness": "60"}))
    )
    first = Worker(here.seen)
    plan_elsewhere(here, kept, first)
    assert first.planned.keys() == {"n1", "n2", "n3"}
    assert here.plan(kept).nodes["n0"].actions
    second = Worker(here.seen)
    plan_elsewhere(here, kept, second)
    assert second.planned == {}
