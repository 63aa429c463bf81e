"""Drains by the real driver, against the lab's API server and, if KUBECONFIG_REAL names one, a real cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.actions import FUNCTIONS, drain
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.model.desired import DrainPolicy
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.vocab import DrainProvider
from tests import builders as b
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.test_cluster import MARK, member, run
from tests.drivers.kube.worlds import LabWorld, World, names_of_pods

pytestmark = [pytest.mark.wire, pytest.mark.tool]

# Where no kubelet runs, as on a bare API server, only a pod without a grace period ends. The pods are bare, because a
# controller-manager deletes those whose owner it can't find.
POLICY = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=4.0, grace_s=0.0, evict_unmanaged=True)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "ROUND_S", 0.3)
    monkeypatch.setattr(drain, "FORCED_S", 20.0)


async def drained(world: World, said: list[str], **changes: Any) -> Outcome:
    """Drain the world's node, which carries our mark."""
    wanted = b.node(world.node, profile=replace(b.PROFILE, drain=replace(POLICY, **changes)))
    parts: dict[str, Any] = dict.fromkeys(ActionContext.__dataclass_fields__)
    parts |= {"desired": wanted, "observed": b.observed(world.node), "cluster_port": world.driver}
    parts |= {"ledger": SimpleNamespace(id=MARK.ledger), "clock": RealClock(), "step": said.append}
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
