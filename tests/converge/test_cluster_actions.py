"""Marks, drains, labels, joining and admission, judged by the cluster's own truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.lab.hardware.control_plane import ClusterTruth, DisruptionBudget
from reconciler.model.desired import DrainPolicy
from reconciler.model.observed import Taint
from reconciler.model.outcome import Declined, Done, Transient
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, read_mark, write_mark
from reconciler.model.vocab import DrainProvider
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]


def truth(here: World) -> ClusterTruth:
    assert here.lab.cluster is not None
    return here.lab.cluster


def the_mark(here: World, node: str = "n0") -> Mark | None:
    return read_mark(truth(here).node(node).annotations.get(OWNER_ANNOTATION))


def busy(here: World, node: str = "n0") -> list[str]:
    return [pod.name for pod in truth(here).pods(node) if pod.evictable]


# --- mark and admit --------------------------------------------------------------------------------------------------


def test_mark_and_admit_leave_no_trace(world: Worlds) -> None:
    here = world(nodes=1)
    before = replace(truth(here).node("n0"))
    assert here.act("mark") == Done("out of service")
    node = truth(here).node("n0")
    mark = the_mark(here)
    assert mark is not None
    assert (mark.ledger, mark.reason, mark.cordoned) == (here.ledger.id, "a test", True)
    assert node.unschedulable
    assert here.tainted("n0")
    assert here.act("mark") == Done("out of service", changed=False)
    assert here.act("admit") == Done("in service")
    after = truth(here).node("n0")
    assert (after.labels, after.annotations, after.unschedulable) == (before.labels, before.annotations, False)
    assert sorted(after.taints) == sorted(before.taints)
    assert here.act("admit") == Done("in service", changed=False)


def test_a_cordon_of_somebody_else_outlives_our_mark(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["foreign_cordon"]})
    assert isinstance(here.act("mark"), Done)
    mark = the_mark(here)
    assert mark is not None
    assert not mark.cordoned
    here.act("admit")
    assert truth(here).node("n0").unschedulable
    assert not here.marked("n0")


def test_a_mark_of_another_ledger_is_respected(world: Worlds) -> None:
    here = world(nodes=1)
    theirs = Mark("other", "p", "their repair", "2026-01-01T00:00:00+00:00", True)
    truth(here).update_node(
        "n0", annotations={OWNER_ANNOTATION: write_mark(theirs)}, taints=[Taint(MARK_TAINT, "", "NoSchedule")]
    )
    for action in ("mark", "admit", "drain"):
        outcome = here.act(action)
        assert isinstance(outcome, Declined)
        assert "ledger other" in outcome.detail
    assert the_mark(here) == theirs
    assert busy(here)


def test_a_mark_that_nobody_can_read_is_somebody_elses(world: Worlds) -> None:
    here = world(nodes=1)
    truth(here).update_node("n0", annotations={OWNER_ANNOTATION: "{"})
    assert isinstance(here.act("mark"), Declined)


def test_a_half_written_mark_is_completed(world: Worlds) -> None:
    """Somebody removed the taint and the cordon, and left our annotation."""
    here = world(nodes=1)
    here.act("mark")
    truth(here).update_node("n0", taints=[], unschedulable=False)
    assert isinstance(here.act("mark"), Done)
    assert here.tainted("n0")
    assert truth(here).node("n0").unschedulable
    here.act("admit")
    assert here.serves("n0")


class Meddler:
    """Somebody who writes the node object between our reading and our writing, so many times."""

    def __init__(self, here: World, times: int) -> None:
        self._here = here
        self._port = here.fabric.cluster()
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def member(self, node: str) -> Any:
        found = await self._port.member(node)  # type: ignore[union-attr]  # this world has a cluster
        if self._left:
            self._left -= 1
            labels: Mapping[str, str] = truth(self._here).node(node).labels
            truth(self._here).update_node(node, labels={**labels, "meddled": str(self._left)})
        return found


def test_conflicts_are_read_and_tried_again_a_few_times(world: Worlds) -> None:
    here = world(nodes=1)
    assert isinstance(here.act("mark", cluster_port=Meddler(here, 3)), Done)
    assert truth(here).node("n0").labels["meddled"] == "0", "their write stands"
    outcome = here.act("admit", cluster_port=Meddler(here, 99))
    assert isinstance(outcome, Transient)
    assert here.marked("n0")


def test_admission_of_a_node_that_is_not_ready_is_no_admission(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    here.machine("n0").inject("kubelet_not_ready")
    assert isinstance(here.act("admit"), Transient)


# --- drain -----------------------------------------------------------------------------------------------------------


def test_a_drain_evicts_what_can_move_and_nothing_else(world: Worlds) -> None:
    here = world(nodes=2)
    here.act("mark")
    stay = {pod.name for pod in truth(here).pods("n0") if not pod.evictable}
    assert here.act("drain") == Done("2 pods evicted")
    assert busy(here) == []
    assert {pod.name for pod in truth(here).pods("n0")} == stay
    assert here.act("drain") == Done("nothing to evict", changed=False)


def test_a_drain_without_our_mark_is_refused(world: Worlds) -> None:
    here = world(nodes=1)
    outcome = here.act("drain")
    assert isinstance(outcome, Declined)
    assert truth(here).evictions == 0


def test_a_drain_whose_mark_is_taken_away_stops(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")

    async def lifted() -> Any:
        action = asyncio.create_task(here.acting("drain"))
        await asyncio.sleep(60)
        truth(here).update_node("n0", annotations={}, taints=[], unschedulable=False)
        return await action

    assert isinstance(here.run(lifted()), Declined)


def test_a_drain_that_a_budget_refuses_ends_in_time_and_names_it(world: Worlds) -> None:
    """H1."""
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")
    began = here.clock.elapsed
    outcome = here.act("drain")
    assert isinstance(outcome, Transient)
    assert "2 pods left after 5m" in outcome.detail
    assert "disruption budget never-n0" in outcome.detail
    assert 300 <= here.clock.elapsed - began < 360
    assert len(busy(here)) == 2


def test_a_drain_that_waits_names_its_pods_and_repeats_itself_seldom(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"pdb_never_yields": {}}})
    here.act("mark")
    first, second = sorted(f"default/{name}" for name in busy(here))
    said: list[str] = []
    here.act("drain", step=said.append)
    assert set(said) == {f"2 pods to go: {first}, {second}"}
    assert len(said) == 5, "at once, and then each of the five minutes"


def test_a_drain_says_when_fewer_pods_are_left(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    budget = DisruptionBudget("default", "keep", {"app": "trainer"}, 1)
    truth(here).budgets.append(budget)
    said: list[str] = []

    async def yields() -> Any:
        action = asyncio.create_task(here.acting("drain", step=said.append))
        await asyncio.sleep(20)
        truth(here).budgets.clear()
        return await action

    assert isinstance(here.run(yields()), Done)
    assert [text.partition(" to go")[0] for text in said] == ["2 pods", "1 pod"]


def test_a_budget_that_yields_later_is_waited_for(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    truth(here).budgets.append(DisruptionBudget("default", "keep", {"app": "trainer"}, 1))

    async def yields() -> Any:
        action = asyncio.create_task(here.acting("drain"))
        await asyncio.sleep(120)
        truth(here).budgets.clear()
        return await action

    assert isinstance(here.run(yields()), Done)
    assert busy(here) == []


def test_force_deletes_what_is_left(world: Worlds) -> None:
    drain = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=60.0, force=True)
    here = world(
        nodes=1, profile=replace(PROFILE, digest="force", drain=drain), faults={"n0": {"pdb_never_yields": {}}}
    )
    here.act("mark")
    assert here.act("drain") == Done("2 pods deleted")
    assert busy(here) == []


def test_the_pods_of_a_dead_host_are_deleted_past_their_grace(world: Worlds) -> None:
    here = world(nodes=1)
    here.act("mark")
    here.machine("n0").inject("host_hung")
    here.clock.elapsed += 60
    assert here.act("drain") == Done("2 pods deleted")
    assert busy(here) == []


@pytest.mark.parametrize(("command", "done"), [(("true",), True), (("false",), False)])
def test_a_drain_by_command_ends_as_the_command_does(world: Worlds, command: tuple[str, ...], done: bool) -> None:
    drain = DrainPolicy(DrainProvider.COMMAND, command=command)
    here = world(nodes=1, profile=replace(PROFILE, digest="command", drain=drain))
    assert isinstance(here.act("drain"), Done if done else Transient)


def test_nothing_to_drain_when_the_spec_says_so(world: Worlds) -> None:
    here = world(nodes=1, profile=replace(PROFILE, digest="none", drain=DrainPolicy(DrainProvider.NONE)))
    assert isinstance(here.act("drain"), Done)
    assert busy(here)


def test_a_node_that_is_no_member_has_nothing_to_drain(world: Worlds) -> None:
    """H7."""
    here = world(nodes=1, drift={"n0": ["not_a_member"]})
    assert isinstance(here.act("drain"), Done)


# --- labels and joining ----------------------------------------------------------------------------------------------


def test_labels_and_taints_of_the_spec_are_set_and_others_stay(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["missing_label"]})
    truth(here).update_node("n0", taints=[Taint("theirs", "", "NoSchedule")])
    assert isinstance(here.act("set_labels"), Done)
    node = truth(here).node("n0")
    assert node.labels["workload"] == "training"
    assert node.labels["kubernetes.io/hostname"] == "n0"
    assert {taint.key for taint in node.taints} == {"theirs", "nvidia.com/gpu"}
    assert here.act("set_labels") == Done("nothing to label", changed=False)


def test_a_node_that_joins_is_marked_before_anything_can_run_on_it(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["not_a_member"]})
    assert here.act("join") == Done("a Ready member")
    assert here.marked("n0")
    assert not here.serves("n0")
    assert busy(here) == []
    assert here.act("join") == Done("a Ready member already", changed=False)


def test_a_node_that_was_a_member_is_not_marked_by_joining(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": [{"service_stopped": {"name": "kubelet"}}]})
    assert isinstance(here.act("join"), Done)
    assert here.serves("n0")


def test_a_kubelet_that_never_becomes_ready_is_reported(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"kubelet_not_ready": {}}})
    outcome = here.act("join")
    assert isinstance(outcome, Transient)
    assert "does not become Ready" in outcome.detail


@pytest.mark.parametrize("action", ["mark", "drain", "set_labels", "join", "admit"])
def test_a_cluster_that_is_down_is_a_passing_failure(world: Worlds, action: str) -> None:
    here = world(nodes=1, drift={"n0": ["missing_label"]})
    drift = here.plan().nodes["n0"].drift
    truth(here).down = True
    assert isinstance(here.act(action, drift=drift), Transient)
