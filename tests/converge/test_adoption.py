"""Nodes that another ledger has marked: taken over on command alone, and brought back through their gate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.converge.adoption import Adopted, adopt, foreign_mark
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.run import Ended
from reconciler.lab.hardware.control_plane import NodeObject
from reconciler.model.observed import Member
from reconciler.model.plan import BlockCode
from reconciler.model.records import OWNER_ANNOTATION, Mark, read_mark, write_mark
from tests.converge.world import World

THEIRS = Mark("theirs", "plan-9", "image.version", "2026-11-01T00:00:00+00:00", cordoned=True)


@pytest.fixture
def here(world: Callable[..., World]) -> World:
    """n0 carries another ledger's mark, n1 none."""
    found: World = world(nodes=2)
    found.adopt()

    async def mark() -> None:
        cluster = port(found)
        await cluster.mark(await member(cluster), THEIRS)

    found.run(mark())
    return found


def port(here: World) -> TimedCluster:
    cluster = here.fabric.cluster()
    assert cluster is not None
    return TimedCluster(cluster, here.clock, here.fleet.settings, here.lease())


async def member(cluster: TimedCluster, name: str = "n0") -> Member:
    found = await cluster.member(name)
    assert found is not None
    return found


def node(here: World, name: str = "n0") -> NodeObject:
    assert here.lab.cluster is not None
    return here.lab.cluster.node(name)


def taken(here: World, name: str = "n0") -> Adopted:
    return here.run(adopt(port(here), here.ledger, name, "ops", here.clock))


def test_a_plan_names_the_command_and_apply_touches_nothing_before(here: World) -> None:
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.FOREIGN_MARK
    assert blocked.detail.endswith("`reconciler ledger adopt n0` takes the node over")
    assert here.apply().results["n0"].state is Ended.NOT_STARTED


def test_an_adopted_node_is_ours_and_comes_back_through_its_gate(here: World) -> None:
    before = node(here).taints
    assert taken(here) == Adopted("n0", THEIRS)
    mark = read_mark(node(here).annotations[OWNER_ANNOTATION])
    assert mark is not None
    assert (mark.ledger, mark.plan, mark.cordoned) == (here.ledger.id, "plan-9", True)
    assert mark.reason == "adopted from ledger theirs: image.version"
    assert (node(here).taints, node(here).unschedulable) == (before, True), "it stays out of service"
    [entry] = [entry for entry in here.ledger.history("n0") if entry.event == "adopt"]
    assert entry.detail == "by ops, from ledger theirs (2026-11-01T00:00:00+00:00, plan plan-9: image.version)"
    assert here.apply().results["n0"].state is Ended.DONE
    assert here.serves("n0"), "the cordon was theirs, so it is ours to lift now"


def test_a_cordon_that_was_not_theirs_is_kept(world: Callable[..., World]) -> None:
    here: World = world(nodes=1, drift={"n0": ["foreign_cordon"]})
    here.adopt()

    async def mark() -> None:
        cluster = port(here)
        await cluster.mark(await member(cluster), Mark("theirs", "", "", "", cordoned=False))

    here.run(mark())
    assert taken(here).problem == ""
    mark_now = read_mark(node(here).annotations[OWNER_ANNOTATION])
    assert mark_now is not None
    assert not mark_now.cordoned
    here.apply()
    assert node(here).unschedulable


def test_a_cordon_that_somebody_lifted_is_not_set_anew(here: World) -> None:
    node(here).unschedulable = False
    assert taken(here).problem == ""
    mark = read_mark(node(here).annotations[OWNER_ANNOTATION])
    assert mark is not None
    assert (mark.cordoned, node(here).unschedulable) == (False, False)


@pytest.mark.parametrize(
    ("name", "annotation", "problem"),
    [
        ("n1", None, "it carries no mark"),
        ("n0", "ours", "it carries our own mark already"),
        ("nowhere", None, "the cluster has no such node"),
    ],
)
def test_what_is_not_another_ledger_s_is_not_adopted(
    here: World, name: str, annotation: str | None, problem: str
) -> None:
    if annotation is not None:
        own = Mark(here.ledger.id, "", "", "", cordoned=True)
        node(here).annotations = {OWNER_ANNOTATION: write_mark(own)}
    version = node(here).resource_version
    assert here.run(foreign_mark(port(here), name, here.ledger.id)) == Adopted(name, None, problem)
    assert taken(here, name) == Adopted(name, None, problem)
    assert node(here).resource_version == version
    assert [entry for entry in here.ledger.history(name) if entry.event == "adopt"] == []


def test_a_mark_that_nobody_can_read_is_adopted_too(here: World) -> None:
    node(here).annotations = {OWNER_ANNOTATION: "hands off!"}
    done = taken(here)
    assert done.before is not None
    assert (done.before.ledger, done.before.reason, done.problem) == ("?", "hands off!", "")
    mark = read_mark(node(here).annotations[OWNER_ANNOTATION])
    assert mark is not None
    assert mark.ledger == here.ledger.id
    assert not mark.cordoned, "whose cordon it is, nobody knows"


def test_a_cluster_that_does_not_answer_is_said(here: World) -> None:
    assert here.lab.cluster is not None
    here.lab.cluster.down = True
    done = taken(here)
    assert done.before is None
    assert "the API server does not answer" in done.problem
