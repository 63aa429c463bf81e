"""A condition that a detector sets on the node object: mark, drain, treatment, gate, admission."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.observe import observe
from reconciler.converge.run import Ended
from reconciler.model.desired import NodeCondition, Rung
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
POLICY = replace(
    PROFILE.remediation,
    ladder=(Rung("soft_restart", 1), Rung("power_cycle", 1)),
    node_conditions=(NodeCondition("GpuUnhealthy"),),
)
WATCHED = replace(PROFILE, digest="watched", remediation=POLICY)


@pytest.fixture
def adopted(world: Worlds) -> Worlds:
    def build(**differences: Any) -> World:
        here = world(profile=WATCHED, **differences)
        here.adopt()
        return here

    return build


def status(here: World, node: str = "n0") -> str:
    assert here.lab.cluster is not None
    return here.lab.cluster.node(node).conditions["GpuUnhealthy"].status


def done(here: World, node: str = "n0") -> list[str]:
    """Without `join`: its kubelet may be ready before anybody waits for it."""
    attempts = here.ledger.node(node).attempts
    return [attempt.action for attempt in attempts if attempt.outcome == "done" and attempt.action != "join"]


def test_it_is_cured_and_proved(adopted: Worlds) -> None:
    """The detector takes it back a while after the boot: until then it is no reason for the next rung."""
    here = adopted(nodes=2, faults={"n0": {"node_condition": {}}})
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    assert done(here) == ["mark", "drain", "soft_restart", "run_gate", "admit"]
    assert status(here) == "False"
    assert here.serves("n0")
    assert done(here, "n1") == []


def test_what_comes_back_climbs_the_ladder_and_is_isolated(adopted: Worlds) -> None:
    here = adopted(nodes=2, faults={"n0": {"node_condition": {"persistent": True}}})
    before = here.clock.elapsed
    report = here.apply()
    assert report.results["n0"].state is Ended.FAILED
    assert "GpuUnhealthy is True" in report.results["n0"].detail
    assert done(here) == ["mark", "drain", "soft_restart", "power_cycle"]
    assert here.marked("n0")
    assert not here.gate.runs
    assert here.clock.elapsed - before > 2 * 10 * MINUTE, "after each rung its detector had time"


def test_what_the_policy_does_not_name_is_not_looked_at(adopted: Worlds) -> None:
    here = adopted(nodes=1, faults={"n0": {"node_condition": {"type": "KernelDeadlock"}}})
    assert here.apply().results["n0"].state is Ended.CONVERGED
    assert done(here) == []


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[Looped]:
    here = Looped(tmp_path, nodes=3, profile=WATCHED)
    yield here
    here.ledger.close()


def seconds_until_treated(here: Looped) -> float:
    """Show a condition between two passes, check that the node is treated, and return how long its mark took."""
    marked: list[float] = []

    async def breaks() -> None:
        await here.clock.sleep(5 * MINUTE + 30)
        here.machine("n1").inject("node_condition")
        assert here.lab.cluster is not None
        here.lab.cluster.sync("n1")
        began = here.clock.elapsed
        while not here.marked("n1"):
            await here.clock.sleep(0.1)
        marked.append(here.clock.elapsed - began)

    here.go(HOUR, breaks)
    assert done(here, "n1") == ["mark", "drain", "soft_restart", "run_gate", "admit"]
    assert here.serves("n1")
    return marked[0]


def test_the_loop_marks_within_seconds_of_the_event(looped: Looped) -> None:
    assert seconds_until_treated(looped) < 5


def test_a_node_at_work_hears_of_its_detector(looped: Looped) -> None:
    """It does not wait for its next look, nor for the next pass."""
    here = looped

    async def breaks() -> None:
        await here.clock.sleep(5 * MINUTE + 30)
        here.machine("n1").inject("node_condition")

    here.go(HOUR, breaks)
    assert here.lab.cluster is not None
    story = here.lab.cluster.node_events("n1")
    [cleared] = [
        e["at"] for e in story if e["kind"] == "Node" and _status(e) == "False" and e["object"]["unschedulable"]
    ]
    gate = next(attempt for attempt in here.ledger.node("n1").attempts if attempt.action == "run_gate")
    waited = (gate.at - here.clock.now()).total_seconds() + here.clock.elapsed - cleared
    assert waited < 8


def _status(event: Mapping[str, Any]) -> str | None:
    found = event["object"]["conditions"].get("GpuUnhealthy")
    return None if found is None else str(found["status"])


def test_an_unhurried_pass_spreads_its_reads_and_reads_the_cluster_last(world: Worlds) -> None:
    here = world(nodes=4)
    seen = here.run(observe(here.fleet, list(here.fleet.nodes), here.fabric, here.clock, over_s=40))
    times = [(node.hot.at - seen.started_at).total_seconds() for node in seen.nodes.values()]
    assert [round(at, -1) for at in times] == [0, 10, 20, 30]
    assert {round((node.member.at - seen.started_at).total_seconds(), -1) for node in seen.nodes.values()} == {40}
