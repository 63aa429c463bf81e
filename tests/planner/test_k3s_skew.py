"""Servers of K3s go up past no kubelet that their API servers would not support, whatever the spec declares of it."""

from __future__ import annotations

import pytest

from reconciler.model.k3s import Artifact, DesiredK3s, K3sRole
from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Certainty
from reconciler.planner.fleet.k3s_order import K3sOrder
from reconciler.planner.node.actions import ACTIONS

INSTALL = ACTIONS["install_k3s"]
ACTION = PlannedAction(INSTALL.name, "", INSTALL.concern, (), INSTALL.disruption, 1.0, Certainty.EXACT, (), ())


def why(server: str, wanted: str, agent: str, node: str = "s0") -> str:
    """Why a server may not have a version, in a cluster of two others that run `server`, and one agent."""
    names = ("s0", "s1", "s2")
    roles = {**dict.fromkeys(names, K3sRole.SERVER), "a0": K3sRole.AGENT}
    declared = {
        name: DesiredK3s(role, wanted, "https://x:6443", Artifact("https://x", ""), None)
        for name, role in roles.items()
    }
    versions = {**{name: server for name in names if server}, "a0": agent}
    order = K3sOrder(declared, versions, dict.fromkeys(names, True), (), dict.fromkeys(names, ()))
    return order.why(node, [ACTION])


@pytest.mark.parametrize(
    ("server", "wanted", "agent", "most"),
    [
        ("v1.32.1+k3s1", "v1.33.0+k3s1", "v1.30.0+k3s1", 0),
        ("v1.32.1+k3s1", "v1.33.0+k3s1", "v1.29.9+k3s1", 3),
        ("v1.32.1+k3s1", "v1.33.0+k3s1", "v1.28.9+k3s1", 3),
        ("v1.32.1+k3s1", "v1.32.2+k3s1", "v1.28.9+k3s1", 0),  # a patch takes it no further away
        ("v1.27.1+k3s1", "v1.28.0+k3s1", "v1.25.0+k3s1", 0),
        ("v1.26.1+k3s1", "v1.27.0+k3s1", "v1.24.9+k3s1", 2),
        ("v1.25.1+k3s1", "v1.26.0+k3s1", "v1.24.9+k3s1", 0),
        ("v1.32.1+k3s1", "v1.33.0+k3s1", "v1.28.9", 0),  # not of K3s: somebody else's
    ],
)
def test_servers_go_up_no_further_than_each_kubelet_may_be_behind(
    server: str, wanted: str, agent: str, most: int
) -> None:
    """kubernetes.io, "Version Skew Policy": at most three minors, and two before 1.25."""
    found = why(server, wanted, agent)
    assert bool(found) == bool(most), found
    if most:
        assert f"agent a0 runs {agent}" in found
        assert f"at most {most} minors" in found
        assert "quarantine it" in found


def test_a_server_of_a_cluster_that_nobody_is_in_yet_is_not_kept_out_for_it() -> None:
    assert why("", "v1.33.0+k3s1", "v1.28.9+k3s1") == ""
