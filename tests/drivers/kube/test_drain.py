"""Drains by the real driver, against the lab's API server and, if KUBECONFIG_REAL names one, a real cluster."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.actions import FUNCTIONS, drain
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.model.adjustments import RECORD, SURGE, AdjustmentRecord, read_record
from reconciler.model.desired import Checkpoint, DrainPolicy
from reconciler.model.drain import Surge
from reconciler.model.errors import Failure
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import CheckpointWay, DrainProvider
from tests import builders as b
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.test_cluster import MARK, failure, member, run
from tests.drivers.kube.worlds import LabWorld, World, names_of_pods

pytestmark = [pytest.mark.wire, pytest.mark.tool]

# Where no kubelet runs, as on a bare API server, only a pod without a grace period ends. The pods are bare, because a
# controller-manager deletes those whose owner it can't find.
POLICY = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=4.0, grace_s=0.0, evict_unmanaged=True)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "ROUND_S", 0.3)
    monkeypatch.setattr(drain, "FORCED_S", 20.0)


async def drained(world: World, said: list[str], *, ledger: Any = None, **changes: Any) -> Outcome:
    """Drain the world's node, which carries our mark."""
    wanted = b.node(world.node, profile=replace(b.PROFILE, drain=replace(POLICY, **changes)))
    parts: dict[str, Any] = dict.fromkeys(ActionContext.__dataclass_fields__)
    parts |= {"desired": wanted, "observed": b.observed(world.node), "cluster_port": world.driver}
    parts |= {
        "ledger": ledger or SimpleNamespace(id=MARK.ledger),
        "resumed": {},
        "drift": (),
        "clock": RealClock(),
        "step": said.append,
    }
    parts |= {"record": NodeRecord(world.node)}
    return await carry_out(FUNCTIONS["drain"], ActionContext(**parts))


def marked(world: World) -> None:
    run(world.driver.mark(member(world), MARK))


def two_budgets(world: World) -> None:
    world.add_pod("twice", labels={"app": "twice"})
    for name in ("old", "new"):
        world.add_budget(name, {"app": "twice"}, 0)


def test_a_pod_with_two_budgets_keeps_no_other_pod(world: World) -> None:
    two_budgets(world)
    world.add_pod("other", labels={})
    marked(world)
    said: list[str] = []
    outcome = run(drained(world, said))
    assert isinstance(outcome, Transient), outcome
    why = "default/twice: Error from server: This pod has more than one PodDisruptionBudget"
    assert why in outcome.detail
    assert why in said[0]
    assert {"twice", "other"} & names_of_pods(world) == {"twice"}


def test_force_deletes_it_at_the_deadline(world: World) -> None:
    two_budgets(world)
    marked(world)
    outcome = run(drained(world, [], force=True))
    assert isinstance(outcome, Done), outcome
    assert "twice" not in names_of_pods(world)


def test_a_budget_that_allows_none_is_named_while_the_drain_waits(world: World) -> None:
    world.add_pod("guarded", labels={"app": "guarded"})
    world.add_budget("guard", {"app": "guarded"}, 1)
    marked(world)
    said: list[str] = []
    assert isinstance(run(drained(world, said)), Transient)
    assert "default/guarded: The disruption budget guard needs 1 healthy pods and has 1 currently" in said[0]


def test_bare_pods_are_spared_unless_the_policy_allows_it(world: World) -> None:
    world.add_pod("bare", labels={})
    marked(world)
    outcome = run(drained(world, [], evict_unmanaged=False))
    assert isinstance(outcome, Declined), outcome
    assert "default/bare" in outcome.detail
    assert "bare" in names_of_pods(world)


@pytest.mark.parametrize("fault", ["reset", "unavailable", "garbage"])
def test_an_outage_is_outlived(bench: Bench, fault: Any) -> None:
    world, said = LabWorld(bench), list[str]()
    world.add_pod("victim", labels={})
    marked(world)

    async def interrupted() -> Outcome:
        bench.front.fault = fault
        draining = asyncio.create_task(drained(world, said, timeout_s=30.0))
        while not said:  # noqa: ASYNC110 -- it is told of by a plain call
            await asyncio.sleep(0.1)
        bench.front.fault = ""
        return await draining

    assert run(interrupted()) == Done("1 pod evicted")
    assert "the node can't be read: " in said[0]


# --- asking the work -------------------------------------------------------------------------------------------------


class OneAttempt:
    """The part of the ledger that a drain uses which waits."""

    id = MARK.ledger

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def amend(self, _attempt: int, facts: dict[str, Any], _now: Any) -> None:
        self.kept |= facts

    def before(self, _attempt: int) -> dict[str, Any]:
        return {}

    def holds(self) -> list[Any]:
        return []


@pytest.mark.parametrize("keep", [False, True], ids=["a kubectl each", "one that keeps running"])
@pytest.mark.parametrize("way", [CheckpointWay.ANNOTATION, CheckpointWay.HTTP])
def test_a_pod_saves_its_state_before_it_is_evicted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, way: CheckpointWay, keep: bool
) -> None:
    monkeypatch.setattr(drain, "WAIT_ROUND_S", 0.3)
    world, said = LabWorld(bench), list[str]()
    world.add_pod("trainer", labels={})
    bench.on_loop(lambda: bench.truth.give_program("default", "trainer", saves_s=0.0))
    pod = bench.truth.pod("default", "trainer")
    marked(world)
    policy = Checkpoint(way, 30.0, port=8080, path="/save-state")
    world.driver = bench.driver(keep=keep)

    async def work() -> Outcome:
        try:
            return await drained(world, said, ledger=OneAttempt(), checkpoint=policy)
        finally:
            await world.driver.close()

    outcome = run(work())
    assert outcome == Done("1 pod evicted; 1 of 1 saved their state")
    assert pod.requests == 1


def test_an_annotation_is_for_one_pod_by_its_uid(world: World) -> None:
    pod = world.add_pod("victim", labels={})
    run(world.driver.annotate(pod, {"reconciler.dev/drain-at": "now"}))
    shown = json.loads(world.kubectl("get", "pod", "victim", "-n", "default", "-o", "json"))
    assert shown["metadata"]["annotations"]["reconciler.dev/drain-at"] == "now"
    run(world.driver.annotate(pod, {"reconciler.dev/drain-at": None}))
    world.remove_pod("victim")
    world.add_pod("victim", labels={})
    run(world.driver.annotate(pod, {"reconciler.dev/drain-at": "now"}))  # it is gone: success
    shown = json.loads(world.kubectl("get", "pod", "victim", "-n", "default", "-o", "json"))
    assert "reconciler.dev/drain-at" not in shown["metadata"].get("annotations", {})


def test_a_request_to_a_pod_that_listens_nowhere_is_refused(bench: Bench) -> None:
    world = LabWorld(bench)
    pod = world.add_pod("deaf", labels={})
    error = failure(world.driver.post(pod, 8080, "/save", "{}"))
    assert error.kind is not Failure.AMBIGUOUS
    assert not run(world.driver.answers(pod, 8080, "/save"))
    world.remove_pod("deaf")
    run(world.driver.post(pod, 8080, "/save", "{}"))  # it is gone: success


# --- surges ----------------------------------------------------------------------------------------------------------

COLD_S = 30.0  # until a replica is ready


def test_a_deployment_is_raised_before_the_drain_and_lowered_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "WAIT_ROUND_S", 0.2)
    world, said, truth = LabWorld(bench), list[str](), bench.truth
    pod: dict[str, Any] = {"annotations": {SURGE: "true"}}
    made = bench.on_loop(lambda: truth.add_replicated("Deployment", "ml", "llama", 2, starts_s=COLD_S, **pod))
    bench.seconds += 2 * COLD_S
    world.node = next(str(one.node) for one in bench.on_loop(lambda: truth.pods_of(made)))
    marked(world)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(bench.ok("get", "deployment", "-n", "ml", "llama", "-o", "json"))
        return found

    before = shown()
    assert (before["spec"]["replicas"], before["status"]["readyReplicas"]) == (2, 2)

    async def surged() -> Outcome:
        draining = asyncio.create_task(
            drained(world, said, ledger=OneAttempt(), surge=Surge(every=False, timeout_s=60.0), timeout_s=60.0)
        )
        while not any("2 of 3 ready" in text for text in said) and not draining.done():  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.1)
        raised = await asyncio.to_thread(shown)
        assert raised["spec"]["replicas"] == 3, said
        assert read_record(raised["metadata"]["annotations"][RECORD]) == AdjustmentRecord(
            MARK.ledger, 2, 3, {world.node: 1}
        )
        assert (raised["status"]["replicas"], raised["status"]["unavailableReplicas"]) == (3, 1)
        assert truth.evictions == 0, "nothing goes before what replaces it serves"
        bench.seconds += 2 * COLD_S
        return await draining

    assert isinstance(run(surged()), Done)
    after = shown()
    assert (after["spec"], after["metadata"]["annotations"]) == (before["spec"], before["metadata"]["annotations"])
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert not [
        one for one in bench.on_loop(lambda: truth.pods_of(made)) if one.node == world.node and one.ends is None
    ]
    assert (made.largest, made.least_ready, truth.evictions) == (3, 2, 1)
