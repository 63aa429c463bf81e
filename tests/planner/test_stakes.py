"""Pods that lose something for good when they are evicted: the plan shows them, and the spec says if they may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.model.desired import Checkpoint, DrainPolicy
from reconciler.model.drain import QueueHold, Surge
from reconciler.model.observed import Pod, PodCheckpoint, Workload
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.model.vocab import CheckpointWay, DrainProvider, StopPolicy
from reconciler.planner.node.workload import work
from tests import builders as b

BARE = b.pod("bare", owner_kind="")
SCRATCH = b.pod("scratch", local_storage=True)
NEW_IMAGE = b.facts(driver="550.0")
UNMANAGED = "cannot delete Pods that declare no controller (drain.evictUnmanaged allows it): default/bare"
LOCAL = "cannot delete Pods with local storage (drain.deleteEmptyDirData allows it): default/scratch"


def planned(*pods: Pod, seen: Any = None, **policy: Any) -> NodePlan:
    drain = DrainPolicy(**({"provider": DrainProvider.KUBERNETES} | policy))
    wanted = b.node(profile=replace(b.PROFILE, digest=str(drain), drain=drain))
    observed = b.observed(host=NEW_IMAGE if seen is None else seen, member=b.member(pods=pods))
    return b.planner().plan(wanted, observed, b.record(wanted))


@pytest.mark.parametrize(
    ("pods", "policy", "why"),
    [
        ((BARE,), {}, UNMANAGED),
        ((SCRATCH,), {}, LOCAL),
        ((BARE, SCRATCH), {}, f"{UNMANAGED}; {LOCAL}"),
        ((BARE, SCRATCH), {"evict_unmanaged": True}, LOCAL),
        ((BARE, SCRATCH), {"delete_empty_dir_data": True}, UNMANAGED),
        ((BARE,), {"force": True}, UNMANAGED),
    ],
)
def test_what_would_be_lost_keeps_a_node_from_being_drained(
    pods: tuple[Pod, ...], policy: dict[str, Any], why: str
) -> None:
    plan = planned(*pods, **policy)
    assert {"mark", "drain"}.isdisjoint(b.actions(plan)), "and it is not taken out of service in vain"
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.NO_DRAIN
    assert why in plan.blocked.detail
    assert "brings about: gate (driver changed since), image" in plan.blocked.detail


def test_the_policy_may_allow_it_and_the_plan_names_the_pods() -> None:
    plan = planned(b.pod(), BARE, SCRATCH, evict_unmanaged=True, delete_empty_dir_data=True)
    assert "drain" in b.actions(plan)
    assert plan.unmanaged_pods == ("default/bare",)
    assert plan.local_pods == ("default/scratch",)


@pytest.mark.parametrize(
    "pod",
    [
        b.pod(owner_kind="DaemonSet", evictable=False, local_storage=True),
        b.pod(owner_kind="Node", evictable=False, local_storage=True),
        replace(BARE, terminating_since=b.NOW, ends_at=b.NOW),
        replace(SCRATCH, terminating_since=b.NOW, ends_at=b.NOW),
    ],
)
def test_what_is_not_evicted_or_has_been_loses_nothing(pod: Pod) -> None:
    plan = planned(pod)
    assert "drain" in b.actions(plan) or not pod.evictable
    assert "reimage" in b.actions(plan)
    assert (plan.unmanaged_pods, plan.local_pods) == ((), ())


def test_other_providers_evict_nothing() -> None:
    plan = planned(BARE, provider=DrainProvider.COMMAND, command=("true",))
    assert "drain" in b.actions(plan)
    assert plan.unmanaged_pods == ()


def test_a_node_as_specified_is_not_blocked_by_its_pods() -> None:
    plan = planned(BARE, SCRATCH, seen=b.facts())
    assert (b.actions(plan), plan.blocked) == ([], None)


def test_an_ill_node_is_kept_from_new_work_all_the_same() -> None:
    ill = b.facts(gpus=tuple(b.gpu(at, ecc_uncorrectable=at % 2) for at in range(8)))
    plan = planned(BARE, seen=ill)
    assert b.actions(plan) == ["mark"]
    assert UNMANAGED in plan.situation


# --- what a drain waits for ------------------------------------------------------------------------------------------

JOB = b.pod("train", owner_kind="Job", finite=True)
SAVES = b.pod("vllm", checkpoint=PodCheckpoint())
BY_ANNOTATION = Checkpoint(CheckpointWay.ANNOTATION, 600.0)


def test_the_plan_says_how_long_a_drain_may_wait_and_for_what() -> None:
    plain, plan = planned(JOB, SAVES), planned(JOB, SAVES, wait_for_jobs_s=6 * 3600.0, checkpoint=BY_ANNOTATION)
    assert plan.drain_waits == ("up to 6h00m for 1 pod of finite work", "up to 10m for the checkpoint of 1 pod")
    longer = work(plan.actions).need_s - work(plain.actions).need_s
    assert longer == 6 * 3600 + 600, "a window has to hold it"
    assert b.actions(plan) == b.actions(plain)


def test_the_plan_says_what_is_changed_before_a_drain() -> None:
    serves = b.pod("llama", surge=True)
    trains = b.pod("train", workload=Workload("Job", "ml", "train", queue="team-a"))
    hold = QueueHold(("training",), StopPolicy.HOLD_AND_DRAIN, 300.0)
    plan = planned(serves, trains, surge=Surge(every=False, timeout_s=900.0), hold=hold)
    assert plan.drain_waits == (
        "up to 5m for training of Kueue (HoldAndDrain)", "up to 15m for replicas elsewhere of 1 pod"
    )  # fmt: skip
    assert planned(b.pod(), surge=Surge(every=False, timeout_s=900.0), hold=hold).drain_waits == ()
    every = planned(b.pod(owner_kind="ReplicaSet"), surge=Surge(every=True, timeout_s=900.0))
    assert every.drain_waits == ("up to 15m for replicas elsewhere of 1 pod",)


@pytest.mark.parametrize("pods", [(), (b.pod(),)])
def test_a_drain_waits_for_nothing_where_nothing_takes_part(pods: tuple[Pod, ...]) -> None:
    plan = planned(*pods, wait_for_jobs_s=3600.0, checkpoint=BY_ANNOTATION)
    assert plan.drain_waits == ()


def test_a_command_asks_for_all_of_the_work() -> None:
    plan = planned(b.pod(), checkpoint=Checkpoint(CheckpointWay.COMMAND, 60.0, ("ask",), ("ready",)))
    assert plan.drain_waits == ("up to 1m for the checkpoint of the host's work",)
