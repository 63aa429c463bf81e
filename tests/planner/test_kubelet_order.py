"""Kubelets that come with the image: never newer than an API server, and after the control plane."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.access import ClusterAccess
from reconciler.model.desired import BudgetLimit
from reconciler.model.kubelets import OLDER, kubelet_minor
from reconciler.model.plan import BlockCode
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.kubelet_order import KubeletOrder
from reconciler.planner.fleet.live_permit import LivePermit
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.fleet.work_queue import schedule
from tests import builders as b
from tests.planner.test_timeline import plan

SERVER = "v1.31.4"


@pytest.mark.parametrize(
    ("image", "server", "control_plane", "why"),
    [
        ("1.31.4", SERVER, {}, ""),
        ("1.31", "v1.31.0-eks-1", {}, ""),
        ("1.28.9", SERVER, {}, ""),
        ("1.27.0", SERVER, {}, "more than 3 minors behind the API server, which runs v1.31.4"),
        ("1.32.0", SERVER, {}, "the API server runs v1.31.4: upgrade the control plane first"),
        ("1.31.4", SERVER, {"cp": "v1.31.0"}, ""),
        ("1.31.4", SERVER, {"cp": "v1.31.0", "cp2": "v1.30.9"}, "the control plane goes first, and cp2 runs v1.30.9"),
        ("1.31.4", SERVER, {"n": "v1.30.9"}, ""),
        ("1.31.4", SERVER, {"n": "v1.29.9"}, "the control plane goes up one minor at a time"),
        ("1.30.9", SERVER, {"n": "v1.31.4"}, "Kubernetes does not go back to an older minor"),
        ("1.32.0", "", {}, ""),  # no answer: then nothing is known of its nodes either
        ("main", SERVER, {}, ""),
    ],
)
def test_what_the_skew_policy_forbids_is_refused_with_the_reason(
    image: str, server: str, control_plane: dict[str, str], why: str
) -> None:
    found = KubeletOrder({"n": image}, server, control_plane).why("n")
    assert why in found
    assert bool(found) is bool(why)


@given(st.integers(20, 40), st.integers(20, 40), st.lists(st.integers(20, 40), max_size=3))
def test_no_agent_gets_a_kubelet_that_an_api_server_does_not_support(
    image: int, server: int, members: list[int]
) -> None:
    control_plane = {f"cp{at}": f"v1.{minor}.0" for at, minor in enumerate(members)}
    allowed = not KubeletOrder({"n": f"1.{image}.1"}, f"v1.{server}.0", control_plane).why("n")
    assert allowed is (server - OLDER <= image <= min([server, *members]))


def installs(node: str) -> Any:
    found = plan(node)
    return replace(found, actions=(replace(found.actions[0], name="reimage"), *found.actions))


@pytest.mark.parametrize(("kubernetes", "refused"), [(True, True), (False, False)])
def test_only_an_installation_in_a_kubernetes_waits_for_it(kubernetes: bool, refused: bool) -> None:
    assert b.PROFILE.image is not None
    image = replace(b.PROFILE.image, contents={"kubelet": "1.32.0"})
    nodes = {"n": b.node("n", profile=replace(b.PROFILE, image=image))}
    settings = replace(b.SETTINGS, cluster=ClusterAccess("main", None, kubernetes=kubernetes))
    fleet: Any = SimpleNamespace(nodes=nodes, settings=settings)
    seen: Any = SimpleNamespace(nodes={"n": b.observed("n")}, control_plane={}, cluster_version=SERVER)
    permit = LivePermit(fleet, seen, {}, {}, b.NOW).now(b.NOW, Rollouts())
    assert permit.kubelets.refusal(plan("n"), plan("n").actions) is None
    found = permit.refusal(installs("n"))
    assert (found is not None and found.code is BlockCode.BUDGET and "control plane first" in found.detail) is refused


@pytest.mark.parametrize(("runs", "waits"), [("v1.31.2", False), ("v1.30.9", True), ("", True)])
def test_a_repair_with_the_minor_that_a_node_runs_does_not_wait_for_the_control_plane(runs: str, waits: bool) -> None:
    order = KubeletOrder({"n": "1.31.4", "m": "1.31.4"}, SERVER, {"cp": "v1.30.9"}, {"n": runs} if runs else {})
    assert bool(order.why("n")) is waits
    assert "set the state of cp to quarantined" in order.why("m"), "the way out"
    found = installs("n").actions
    assert (order.kind("n", found) == order.kind("m", found)) is waits, "they share an answer, or don't"


@pytest.mark.parametrize(("state", "waits"), [(NodeState.ACTIVE, True), (NodeState.QUARANTINED, False)])
def test_a_control_plane_node_that_is_not_acted_upon_holds_back_no_worker(state: NodeState, waits: bool) -> None:
    assert b.PROFILE.image is not None
    profile = replace(b.PROFILE, image=replace(b.PROFILE.image, contents={"kubelet": "1.31.4"}))
    nodes = {"cp": b.node("cp", profile=profile, state=state), "n": b.node("n", profile=profile)}
    settings = replace(b.SETTINGS, cluster=ClusterAccess("main", None, kubernetes=True))
    members = {name: b.member(name, kubelet_version="v1.30.9", control_plane=name == "cp") for name in nodes}
    seen: Any = SimpleNamespace(
        nodes={name: b.observed(name, member=one) for name, one in members.items()},
        control_plane={"cp": True},
        cluster_version=SERVER,
    )
    fleet: Any = SimpleNamespace(nodes=nodes, settings=settings)
    permit = LivePermit(fleet, seen, {}, {}, b.NOW)
    assert bool(permit.now(b.NOW, Rollouts()).kubelets.why("n")) is waits
    permit.see(b.observed("n", member=replace(members["n"], kubelet_version="v1.31.4")))
    assert not permit.now(b.NOW, Rollouts()).kubelets.why("n"), "a repair"


def admitted(kubelets: dict[str, str], control_plane: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return which nodes may have the kubelets of their images installed now, and why others may not."""
    budget = b.budget((BudgetLimit("fleet", "100%"),), {name: b.node(name) for name in kubelets}, now=b.NOW)
    order = KubeletOrder(kubelets, SERVER, control_plane)
    permit = Permit(budget, Windows((), None, b.NOW), b.NOW, kubelets=order)
    made = schedule({name: installs(name) for name in kubelets}, permit)
    refused = {name: one.blocked.detail for name, one in made.items() if one.blocked is not None}
    return [name for name in made if name not in refused], refused


def test_a_node_whose_image_is_too_new_keeps_no_other_out() -> None:
    """Each node hears of its own image, whoever stands before it in the queue."""
    went, refused = admitted({"n0": "1.32.0", "n1": "1.31.4", "n2": "1.27.0"}, {})
    assert went == ["n1"]
    assert "upgrade the control plane first" in refused["n0"]
    assert "more than 3 minors behind" in refused["n2"]


def test_a_control_plane_node_that_may_not_go_keeps_no_other_out() -> None:
    went, refused = admitted({"cp0": "1.31.4", "cp1": "1.31.4"}, {"cp0": "v1.29.9", "cp1": "v1.30.9"})
    assert went == ["cp1"]
    assert "it is in the control plane and runs v1.29.9" in refused["cp0"]


@pytest.mark.parametrize(
    ("text", "minor"), [("v1.31.5+k3s1", (1, 31)), ("1.9", (1, 9)), ("", None), ("slurm 22", None)]
)
def test_minors_are_read(text: str, minor: tuple[int, int] | None) -> None:
    assert kubelet_minor(text) == minor
