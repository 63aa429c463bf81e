"""KubectlCluster against a cluster, on which somebody else is at work too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Member, Taint
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, read_mark
from tests.drivers.kube.worlds import NAMESPACE, World, names_of_pods, node_of

pytestmark = [pytest.mark.wire, pytest.mark.tool]
T = TypeVar("T")

MARK = Mark("ledger-1", "plan-1", "update firmware", "2026-11-21T12:00:00Z", cordoned=True)
OURS = {"key": MARK_TAINT, "effect": "NoSchedule"}


def run(work: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await work

    return asyncio.run(awaited())


def member(world: World) -> Member:
    found = run(world.driver.member(world.node))
    assert found is not None
    return found


def failure(work: Awaitable[object]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        run(work)
    return caught.value


# --- reads -----------------------------------------------------------------------------------------------------------


def test_state_holds_every_node_with_its_pods(world: World) -> None:
    pod = world.add_pod("reader", labels={"app": "reader"})
    reading = run(world.driver.state())
    assert isinstance(reading, Answered), reading
    shown = world.kubectl("get", "nodes", "-o", "name").split()
    assert sorted(reading.value.members) == sorted(name.removeprefix("node/") for name in shown)
    assert pod.uid in {one.uid for one in reading.value.members[world.node].pods}
    for _ in range(10):  # the controllers of a real server write to a new node meanwhile
        again, alone = run(world.driver.state()), member(world)
        assert isinstance(again, Answered), again
        listed = again.value.members[world.node]
        if listed.resource_version == alone.resource_version:
            break
    assert listed == alone
    assert reading.value.server_version in world.kubectl("version")
    assert reading.value.client_version.startswith("v1.")


def test_state_is_read_anew_each_time(world: World) -> None:
    run(world.driver.state())
    world.kubectl("label", "node", world.node, "seen=later")
    reading = run(world.driver.state())
    assert isinstance(reading, Answered)
    assert reading.value.members[world.node].labels["seen"] == "later"


def test_member_that_is_absent_is_known_to_be(world: World) -> None:
    assert run(world.driver.member("no-such-node")) is None


def test_member_shows_what_others_have_set(world: World) -> None:
    world.kubectl("taint", "node", world.node, "team=a:PreferNoSchedule", "gone:NoExecute")
    world.kubectl("annotate", "node", world.node, "note=hello")
    world.kubectl("cordon", world.node)
    found = member(world)
    assert {Taint("team", "a", "PreferNoSchedule"), Taint("gone", "", "NoExecute")} <= set(found.taints)
    assert found.annotations["note"] == "hello"
    assert found.unschedulable


@pytest.mark.parametrize(
    ("owner", "phase", "evictable"),
    [("ReplicaSet", "Running", True), ("", "Running", True), ("Job", "Pending", True), ("DaemonSet", "Running", False)],
)
def test_what_a_drain_has_to_evict(world: World, owner: str, phase: str, evictable: bool) -> None:
    made = world.add_pod("worker", owner=owner, phase=phase, labels={})
    (found,) = (pod for pod in member(world).pods if pod.uid == made.uid)
    assert (found.owner_kind, found.phase, found.evictable) == (owner, phase, evictable)


def test_a_finished_pod_is_not_on_the_node_any_more(world: World) -> None:
    world.add_pod("done", owner="Job", phase="Succeeded", labels={})
    assert "done" not in {pod.name for pod in member(world).pods}


# --- our mark --------------------------------------------------------------------------------------------------------


def test_mark_is_cordon_taint_and_owner(world: World) -> None:
    before = node_of(world)
    run(world.driver.mark(member(world), MARK))
    after = node_of(world)
    assert after["spec"]["unschedulable"] is True
    assert OURS in after["spec"]["taints"]
    assert read_mark(after["metadata"]["annotations"][OWNER_ANNOTATION]) == MARK
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


def test_mark_leaves_foreign_taints_and_annotations_alone(world: World) -> None:
    world.kubectl("taint", "node", world.node, "team=a:NoSchedule", "team=a:NoExecute")
    world.kubectl("annotate", "node", world.node, "owner/of=somebody~else")
    before = node_of(world)
    run(world.driver.mark(member(world), MARK))
    after = node_of(world)
    assert [taint for taint in before["spec"]["taints"] if taint not in after["spec"]["taints"]] == []
    assert before["metadata"]["annotations"].items() <= after["metadata"]["annotations"].items()


def test_mark_loses_against_a_concurrent_writer(world: World) -> None:
    stale = member(world)
    world.kubectl("annotate", "node", world.node, "somebody=was-here")
    before = node_of(world)
    error = failure(world.driver.mark(stale, MARK))
    assert error.kind is Failure.CONFLICT
    assert node_of(world) == before


def test_unmark_loses_when_the_taints_it_knew_are_gone(world: World) -> None:
    """A position in the patch is gone: the server's 422 hides that the node has moved on."""
    world.kubectl("taint", "node", world.node, "a:NoSchedule", "b:NoSchedule")
    run(world.driver.mark(member(world), MARK))
    stale = member(world)
    world.kubectl("taint", "node", world.node, "a-", "b-", f"{MARK_TAINT}-")
    assert failure(world.driver.unmark(stale, uncordon=True)).kind is Failure.CONFLICT


def test_mark_of_a_node_that_is_gone_is_a_conflict(world: World) -> None:
    ghost = replace(member(world), name="no-such-node")
    assert failure(world.driver.mark(ghost, MARK)).kind is Failure.CONFLICT


def test_foreign_cordon_is_kept(world: World) -> None:
    world.kubectl("cordon", world.node)
    before = node_of(world)
    run(world.driver.mark(member(world), replace(MARK, cordoned=False)))
    assert json.loads(node_of(world)["metadata"]["annotations"][OWNER_ANNOTATION])["cordoned"] is False
    run(world.driver.unmark(member(world), uncordon=False))
    assert node_of(world) == before


def test_unmark_of_an_unmarked_node_changes_nothing(world: World) -> None:
    version = member(world).resource_version
    run(world.driver.unmark(member(world), uncordon=False))
    assert member(world).resource_version == version


def test_marking_twice_renews_the_owner_and_adds_no_second_taint(world: World) -> None:
    run(world.driver.mark(member(world), MARK))
    run(world.driver.mark(member(world), replace(MARK, plan="plan-2")))
    after = node_of(world)
    assert json.loads(after["metadata"]["annotations"][OWNER_ANNOTATION])["plan"] == "plan-2"
    assert after["spec"]["taints"].count(OURS) == 1


_KEYS = st.sampled_from(["a", "b.example.com/c", "reconciler.dev/other"])
_TAINTS = st.lists(
    st.builds(Taint, _KEYS, st.sampled_from(["", "v"]), st.sampled_from(["NoSchedule", "PreferNoSchedule"])),
    max_size=3,
    unique_by=lambda taint: (taint.key, taint.effect),
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    first=_TAINTS,
    second=_TAINTS,
    notes=st.dictionaries(_KEYS, st.text("ab ", max_size=3), max_size=2),
    cordon=st.booleans(),
)
def test_own_mark_is_not_leaked(
    world: World, first: list[Taint], second: list[Taint], notes: dict[str, str], cordon: bool
) -> None:
    """Others set taints, annotations and a cordon before, and taints while the mark is on; theirs is what remains."""

    def theirs(taints: list[Taint], *, end: str = "") -> None:
        words = [f"{t.key}{f'={t.value}' if t.value and not end else ''}:{t.effect}{end}" for t in taints]
        if words:
            world.kubectl("taint", "node", world.node, *words, *([] if end else ["--overwrite"]))

    pristine = node_of(world)
    theirs(first)
    if notes:
        world.kubectl("annotate", "node", world.node, *(f"{key}={value}" for key, value in notes.items()))
    if cordon:
        world.kubectl("cordon", world.node)
    run(world.driver.mark(member(world), replace(MARK, cordoned=not cordon)))
    theirs(second)
    while_marked = node_of(world)
    run(world.driver.unmark(member(world), uncordon=not cordon))
    after = node_of(world)

    def settled(node: dict[str, object]) -> dict[str, object]:
        """Without the taint that the node controller puts on every cordoned node and takes off again."""
        spec = dict(node["spec"])  # type: ignore[call-overload]  # JSON
        automatic = "node.kubernetes.io/unschedulable"
        spec["taints"] = [taint for taint in spec.get("taints", []) if taint["key"] not in (automatic, MARK_TAINT)]
        annotations = {k: v for k, v in node["metadata"].get("annotations", {}).items() if k != OWNER_ANNOTATION}  # type: ignore[attr-defined]
        return {"metadata": node["metadata"] | {"annotations": annotations}, "spec": spec}  # type: ignore[operator]

    expected = settled(while_marked)
    if not cordon:
        expected["spec"].pop("unschedulable")  # type: ignore[attr-defined]
    assert settled(after) == expected
    assert all(taint["key"] != MARK_TAINT for taint in after["spec"].get("taints", []))
    assert OWNER_ANNOTATION not in after["metadata"].get("annotations", {})
    assert after["spec"].get("unschedulable", False) is cordon

    theirs(list({(t.key, t.effect): t for t in first + second}.values()), end="-")
    if notes:
        world.kubectl("annotate", "node", world.node, *(f"{key}-" for key in notes))
    world.kubectl("uncordon", world.node)
    assert node_of(world) == pristine


def test_labels_and_taints_are_set_and_others_stay(world: World) -> None:
    world.kubectl("label", "node", world.node, "old=1", "role=x")
    world.kubectl("taint", "node", world.node, "gpu=absent:NoSchedule", "team=a:NoSchedule")
    before = member(world)
    taints = [Taint("gpu", "present", "NoSchedule"), Taint("new", "", "NoExecute")]
    run(world.driver.set_labels(before, {"role": "training", "example.com/pool": "a"}, taints))
    after = member(world)
    assert after.labels == {**before.labels, "role": "training", "example.com/pool": "a"}
    assert {Taint("team", "a", "NoSchedule"), *taints} <= set(after.taints)
    assert Taint("gpu", "absent", "NoSchedule") not in after.taints


def test_labels_that_are_right_are_not_written(world: World) -> None:
    before = member(world)
    run(world.driver.set_labels(before, dict(before.labels), before.taints))
    assert member(world).resource_version == before.resource_version


def test_a_label_that_the_server_forbids_is_rejected(world: World) -> None:
    error = failure(world.driver.set_labels(member(world), {"role": "not a label"}, []))
    assert error.kind is Failure.REJECTED
    assert "not a label" in error.detail


# --- pods ------------------------------------------------------------------------------------------------------------


def test_an_evicted_pod_is_gone(world: World) -> None:
    pod = world.add_pod("victim", labels={"app": "victim"})
    run(world.driver.evict(pod, grace_s=0))
    assert "victim" not in names_of_pods(world)


def test_a_graceful_eviction_lets_the_pod_end(world: World) -> None:
    pod = world.add_pod("victim", labels={"app": "victim"})
    run(world.driver.evict(pod, grace_s=77))
    shown = json.loads(world.kubectl("get", "pod", "-n", NAMESPACE, "victim", "-o", "json"))
    assert "deletionTimestamp" in shown["metadata"]
    ends = datetime.fromisoformat(shown["metadata"]["deletionTimestamp"])
    ending = replace(pod, terminating_since=ends - timedelta(seconds=77), ends_at=ends)
    assert ending in member(world).pods, "a pod that is ending is still on its node"


def test_a_finalizer_keeps_a_deleted_pod_and_is_named(world: World) -> None:
    pod = world.add_pod("victim", labels={})
    world.finalize("victim", "example.com/checkpoint")
    run(world.driver.delete(pod, grace_s=77))
    (found,) = (found for found in member(world).pods if found.uid == pod.uid)
    assert found.finalizers == ("example.com/checkpoint",)
    assert found.terminating_since is not None
    assert not found.kept_by_finalizer(found.terminating_since)
    assert found.kept_by_finalizer(found.terminating_since + timedelta(seconds=77))


def test_a_pod_with_two_budgets_is_refused_in_the_servers_words(world: World) -> None:
    """The real server answers 500, without a reason."""
    pod = world.add_pod("victim", labels={"app": "web"})
    for name in ("web-old", "web-new"):
        world.add_budget(name, {"app": "web"}, 0)
    error = failure(world.driver.evict(pod, grace_s=0))
    assert error.kind is Failure.REJECTED
    assert error.detail == (
        "Error from server: This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
        "support."
    )
    assert "victim" in names_of_pods(world)


def test_a_cached_read_shows_the_same_in_the_end(world: World) -> None:
    world.add_pod("reader", labels={})
    deadline = time.monotonic() + 10
    while run(world.driver.member(world.node, cached=True)) != member(world):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("verb", ["evict", "delete"])
def test_a_pod_that_is_gone_is_success(world: World, verb: str) -> None:
    pod = world.add_pod("victim", labels={"app": "victim"})
    world.remove_pod("victim")
    run(getattr(world.driver, verb)(pod, grace_s=None))


@pytest.mark.parametrize("verb", ["evict", "delete"])
def test_another_pod_of_that_name_is_spared(world: World, verb: str) -> None:
    pod = world.add_pod("victim", labels={"app": "victim"})
    world.remove_pod("victim")
    other = world.add_pod("victim", labels={"app": "victim"})
    run(getattr(world.driver, verb)(pod, grace_s=0))
    assert other.uid in {one.uid for one in member(world).pods}


def test_a_budget_makes_it_busy_and_is_named(world: World) -> None:
    pod = world.add_pod("victim", labels={"app": "web"})
    world.add_budget("web-budget", {"app": "web"}, 1)
    error = failure(world.driver.evict(pod, grace_s=0))
    assert error.kind is Failure.BUSY
    assert "web-budget" in error.detail
    assert "victim" in names_of_pods(world)


def test_a_node_object_is_removed_by_its_uid(world: World) -> None:
    first = member(world)
    run(world.driver.remove(replace(first, uid="00000000-0000-0000-0000-000000000000")))
    kept = run(world.driver.member(first.name))
    assert kept is not None
    assert kept.uid == first.uid
    run(world.driver.remove(first))
    found = run(world.driver.member(first.name))
    assert found is None or found.uid != first.uid, "a kubelet may have registered it again"
    run(world.driver.remove(first))  # it is gone, which is success


def test_delete_heeds_no_budget(world: World) -> None:
    pod = world.add_pod("victim", labels={"app": "web"})
    world.add_budget("web-budget", {"app": "web"}, 1)
    run(world.driver.delete(pod, grace_s=0))
    assert "victim" not in names_of_pods(world)
