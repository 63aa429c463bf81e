"""An observation pass, as every command that looks at nodes makes it: what it teaches the ledger, and when nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.converge.observation_pass import ObservationPass, make_plan, with_sightings
from reconciler.converge.remember import LOOKS_APART
from reconciler.model.observed import Observation
from reconciler.model.records import STORM, NodeRecord
from reconciler.planner.fleet.plan_request import PlanRequest, records_needed
from tests.converge.test_isolation import WATCHED, fall_ill
from tests.converge.world import SIGNATURES, World

Worlds = Callable[..., World]


@pytest.fixture
def served(world: Worlds) -> Worlds:
    def build(**differences: Any) -> World:
        here = world(**{"profile": WATCHED, "nodes": 3, **differences})
        here.adopt()
        here.apply()
        here.clock.elapsed += 3600
        return here

    return build


def made(here: World, observation: Observation | None = None) -> ObservationPass:
    names = list(here.fleet.nodes)
    records = here.ledger.nodes(records_needed(here.fleet, names))
    return ObservationPass(here.fleet, observation or here.observe(), names, here.ledger, here.clock, records)


def known(here: World) -> dict[str, NodeRecord]:
    return dict(here.ledger.nodes(records_needed(here.fleet, list(here.fleet.nodes))))


def evidence(here: World) -> list[str]:
    """Return the value paths of the evidence of illness that the ledger has recorded."""
    return [key for record in known(here).values() for key in record.silent_since if key.startswith("health.")]


def seen_until(here: World) -> dict[str, datetime]:
    """Return when each node's status was last seen."""
    past = here.ledger.past(here.clock.now() - timedelta(days=1), here.clock.now())
    return {interval.node: interval.seen for interval in past.status_intervals}


def plan_of(here: World, look: ObservationPass) -> Any:
    request = PlanRequest("plan", SIGNATURES, look.names)
    return make_plan(here.fleet, look.observation, here.ledger, request, here.clock.now())


def test_an_observer_outage_teaches_the_ledger_nothing(served: Worlds) -> None:
    here = served()
    for machine in here.lab.machines.values():
        machine.inject("bmc_unreachable")
        machine.inject("ssh_refused")
    before = known(here), seen_until(here)
    look = made(here)
    assert "this machine can't reach 3 of 3 nodes" in look.outage
    look.learn(acts=True)
    plan = plan_of(here, look)
    assert look.remember_drift(plan.nodes, "run-2") == {}
    look.remember_statuses(plan.nodes)
    assert (known(here), seen_until(here)) == before


def test_one_dark_node_is_learnt_as_silent(served: Worlds) -> None:
    here = served()
    here.machine("n1").inject("bmc_unreachable")
    look = made(here)
    assert look.outage == ""
    look.learn(acts=False)
    assert {name for name, record in known(here).items() if "redfish" in record.silent_since} == {"n1"}


def test_too_many_nodes_that_went_bad_set_the_brake(served: Worlds) -> None:
    here = served(nodes=6)
    for name in list(here.fleet.nodes)[:5]:
        here.machine(name).inject("bmc_unreachable")
        here.machine(name).inject("ssh_refused")
    made(here).learn(acts=False)
    assert not here.ledger.holds()
    made(here).learn(acts=True)
    assert [hold.subject for hold in here.ledger.holds()] == [STORM]


def test_only_those_that_isolate_record_evidence_of_illness(served: Worlds) -> None:
    here = served()
    fall_ill(here, "n1")
    made(here).learn(acts=False)
    assert evidence(here) == []
    made(here).learn(acts=True)
    assert evidence(here) == ["health.condition_GpuUnhealthy"]


def test_a_plan_shows_since_when_its_differences_are_known(served: Worlds) -> None:
    here = served()
    here.machine("n1").state.bios["SriovGlobalEnable"] = "Disabled"
    here.machine("n1").state.etag += 1
    plan, looks = None, []
    for _ in range(2):
        here.clock.elapsed += LOOKS_APART.total_seconds() / 2
        look = made(here, here.observe(fresh_inventory=True))
        plan = plan_of(here, look)
        looks.append(here.clock.now())
        plan = with_sightings(plan, look.remember_drift(plan.nodes, "run-2"))
    assert plan is not None
    [item] = [item for item in plan.nodes["n1"].drift if item.path == "bios.SriovGlobalEnable"]
    assert [item.first_seen, item.last_seen] == looks
