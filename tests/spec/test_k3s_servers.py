"""How many servers a K3s cluster may have while some are set aside, and images that nobody would load."""

from __future__ import annotations

import pytest

from tests.spec.example import load, messages
from tests.spec.test_k3s import AGENTS, DIGEST, edits, told

ENTRY = '  - {name: "c[1-3]", bmc: "https://10.20.8.[1-3]", host: "10.20.9.[1-3]", domains: {rack: r1}}\n'
ONE = '  - {{name: c{0}, bmc: "https://10.20.8.{0}", host: 10.20.9.{0}, domains: {{rack: r1}}, state: {1}}}\n'


def servers(*states: str) -> tuple[str, str]:
    return ENTRY, "".join(ONE.format(at, state) for at, state in enumerate(states, 1))


@pytest.mark.parametrize("state", ["quarantined", "retired"])
def test_a_lost_server_can_be_set_aside(state: str) -> None:
    """An invalid spec would leave the fleet on the commit in which the lost server is still active."""
    change = servers("active", state, "active")
    [warning] = messages(*edits(change))
    assert warning.startswith("warning: fleet.yaml:"), warning
    assert "it has 2 active nodes, and 1, 3 or 5 can serve (c2 is not active: put another node in the pool)" in warning
    assert load(*edits(change)).nodes["c2"].state == state
    assert messages(*edits(servers("active", state, "active", "active"))) == [], "and replaced by another"


def test_a_count_that_nothing_explains_is_refused_and_so_is_a_cluster_without_an_active_server() -> None:
    [found] = told(servers("active", "active"))
    assert "it has 2 active nodes" in found
    [found] = told(servers("quarantined", "retired", "quarantined"))
    assert "it has 0 active nodes" in found


def test_images_for_docker_are_refused_as_nothing_would_load_them() -> None:
    """K3s loads them into its own containerd alone (k3s-io/k3s#600, #4502)."""
    [found] = messages(*edits(("bootstrap: true", "docker: true")))
    assert found.startswith("fleet.yaml:"), found
    assert "spec.k3s.release.images: with `docker: true` nothing would load them" in found
    agents = AGENTS.format(version="v1.31.5+k3s1", digest=DIGEST)
    images = f'images: {{url: "https://files.example/i.tar.zst", sha256: {DIGEST}}}'
    own = agents.replace("{version", f"{{{images}, version", 1)
    both = told(("bootstrap: true", "docker: true"), ("    disable: [traefik, servicelb]\n", own))
    assert len(both) == 2, both


def test_a_kubelet_before_1_25_may_be_two_minors_behind() -> None:
    """kubernetes.io, "Version Skew Policy"."""
    newest = ("version: v1.31.5+k3s1", "version: v1.27.9+k3s1")
    for version, count in (("v1.25.1+k3s1", 0), ("v1.24.9+k3s1", 1)):
        agents = AGENTS.format(version=version, digest=DIGEST)
        found = told(newest, ("    disable: [traefik, servicelb]\n", agents))
        assert len(found) == count, found
