"""Where a storm begins, edge by edge, as people would tell it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.diff.ignore import IgnoreRules
from reconciler.model import desired as d
from reconciler.model.limits import Brake
from reconciler.model.observed import Observation, Observed, Silent
from reconciler.model.records import NO_CLUSTER, Applied, NodeRecord
from reconciler.model.vocab import BootPhase, Power
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.storm import bad_nodes, storm, symptom
from tests import builders as b
from tests.converge.world import fleet_of

NOT_READY = b.observed(host=b.silent(), member=b.member(ready=False))


def fleet(count: int, racks: int = 0, **brake: Any) -> d.Fleet:
    nodes = [b.node(f"n{at:03}", domains={"rack": f"r{at % racks}"} if racks else {}) for at in range(count)]
    return fleet_of(nodes, brake=Brake(**brake))


def pass_over(fleet: d.Fleet, seen: Observed, names: list[str]) -> Observation:
    nodes = {name: seen if name in names else b.observed(name) for name in fleet.nodes}
    return Observation("1.0", "test", "", b.NOW, b.NOW, nodes)


def scope(fleet: d.Fleet, names: list[str]) -> str:
    """What is said to be in a storm when these go bad now."""
    observation = pass_over(fleet, NOT_READY, names)
    served = {"cluster.member": Applied("ready", "", "", b.NOW)}
    records = {name: NodeRecord(name, applied=served) for name in fleet.nodes}
    found = storm(fleet, observation, bad_nodes(fleet, observation), records, {}, b.NOW)
    return "" if found is None else f"{len(found.nodes)} of {found.total} of {found.scope}"


def some(count: int, step: int = 1) -> list[str]:
    return [f"n{at * step:03}" for at in range(count)]


@pytest.mark.parametrize(
    ("nodes", "racks", "bad_ones", "said"),
    [
        (10, 0, some(2), ""),  # two anywhere are a coincidence, though they are a fifth
        (10, 0, some(3), "3 of 10 of the fleet"),
        (30, 0, some(3), ""),  # exactly a tenth
        (30, 0, some(4), "4 of 30 of the fleet"),
        (2, 0, some(2), ""),
        (3, 1, some(1), ""),  # one of three
        (3, 1, some(2), "2 of 3 of rack r0"),
        (4, 4, some(1), ""),  # all of its rack
        (40, 10, some(2, 10), ""),  # half a rack
        (40, 10, some(3, 10), "3 of 4 of rack r0"),
        (40, 10, some(4, 10), "4 of 4 of rack r0"),
        (40, 10, [*some(3, 10), "n001", "n002"], "5 of 40 of the fleet"),  # what tells most
        (20, 2, some(6, 2), "6 of 10 of rack r0"),  # as many of the fleet, but of more
        (1000, 0, some(100), ""),
        (1000, 0, some(101), "101 of 1000 of the fleet"),
    ],
)
def test_where_it_begins(nodes: int, racks: int, bad_ones: list[str], said: str) -> None:
    assert scope(fleet(nodes, racks), bad_ones) == said


def test_a_count_is_meant_as_it_is_said() -> None:
    assert scope(fleet(100, fleet="4"), some(4)) == ""
    assert scope(fleet(100, fleet="4"), some(5)) == "5 of 100 of the fleet"
    assert scope(fleet(10, fleet="1"), some(2)) == "2 of 10 of the fleet"
    assert scope(fleet(40, 10, domain="1"), some(2, 10)) == "2 of 4 of rack r0"


def test_a_storm_names_a_few_and_counts_the_rest() -> None:
    told = fleet(100)
    observation = pass_over(told, NOT_READY, some(11))
    gone = bad_nodes(told, observation)
    records = {name: NodeRecord(name, applied={"cluster.member": Applied("ready", "", "", b.NOW)}) for name in gone}
    found = storm(told, observation, gone, records, {}, b.NOW)
    assert found is not None
    assert found.sentence == (
        "11 of 100 nodes of the fleet went bad within 10m, more than 10%: n000, n001, n002, n003, n004, n005, n006, "
        "n007 and 3 more (11 not ready), the first at 2026-11-21 12:00 UTC"
    )


DARK = {"hot": b.silent(), "host": b.silent("timeout")}
LOST: Silent = b.silent()


@pytest.mark.parametrize(
    ("sources", "how"),
    [
        ({}, ""),
        ({"hot": b.silent()}, ""),  # a BMC that is dead says nothing of its node
        ({"host": b.silent()}, ""),
        (DARK, "unreachable"),
        ({"hot": b.silent("auth"), "host": b.silent("auth")}, ""),  # who refuses us is there
        ({"hot": b.hot(power=Power.OFF, boot_phase=BootPhase.OFF), "host": b.silent("explained")}, "powered off"),
        ({"host": b.silent("explained"), "hot": b.hot(boot_phase=BootPhase.POST)}, ""),
        ({"member": b.member(ready=False)}, "not ready"),
        ({"member": None}, "not ready"),
        ({"member": b.member(ready=None)}, ""),
        ({"host": b.facts(gpus=(b.gpu(0),))}, "gpu_missing"),
        ({"member": LOST}, None),  # whether it is ready, nobody can tell
        ({"member": LOST, **DARK}, "unreachable"),
        ({"member": LOST, "hot": b.silent()}, None),
    ],
)
def test_who_is_bad(sources: dict[str, Any], how: str | None) -> None:
    assert symptom(b.node(), b.observed(**sources), IgnoreRules((), b.NOW)) == how


@pytest.mark.parametrize(
    ("sources", "how"),
    [
        ({"member": None}, None),
        ({"member": b.member(ready=False)}, None),
        ({"member": None, "host": b.facts(gpus=(b.gpu(0),))}, "gpu_missing"),
        ({"member": None, **DARK}, "unreachable"),
        ({}, ""),
    ],
)
def test_what_is_expected_of_a_node_without_a_cluster_hides_no_fault(sources: dict[str, Any], how: str | None) -> None:
    told = fleet(3)
    record = NodeRecord("n000", silent_since={NO_CLUSTER: b.NOW})
    found = bad_nodes(told, pass_over(told, b.observed(**sources), ["n000"]), {"n000": record})
    assert found == ({} if how == "" else {"n000": how})


@pytest.mark.parametrize(
    ("nodes", "dark", "sources", "blind"),
    [
        (10, 10, {**DARK, "member": LOST}, True),
        (10, 9, {**DARK, "member": LOST}, True),  # one may answer from close by
        (10, 8, {**DARK, "member": LOST}, False),
        (2, 2, {**DARK, "member": LOST}, False),  # two may be dark on their own account
        (10, 10, DARK, True),  # the cluster has them as ready
        (10, 10, {**DARK, "member": b.member(ready=False)}, False),  # a second witness
        (10, 10, {"host": b.silent()}, False),
        (10, 10, {"hot": b.silent("not_asked"), "host": b.silent()}, True),  # no BMC was asked
        (10, 10, {"hot": b.silent("not_asked"), "host": b.silent("not_asked")}, False),  # nobody was
    ],
)
def test_when_the_observer_is_at_fault(nodes: int, dark: int, sources: dict[str, Any], blind: bool) -> None:
    told = fleet(nodes)
    assert bool(observer_outage(told, pass_over(told, b.observed(**sources), some(dark)))) == blind
