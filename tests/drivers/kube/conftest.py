"""Fixtures of the kubectl driver's tests.

`world` is a cluster in which tests may do anything: the lab's front, and a real one as well, which is the disposable
cluster that KUBECONFIG_REAL names, or else the control plane of `make e2e-kubernetes`. Its tests need one node, create
and delete pods in the namespace `default`, and put taints, labels and annotations on that node. What a kubelet would
report is written by the test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import until
from tests.drivers.kube.bench import Bench, Pki, kubectl, make_pki, running
from tests.drivers.kube.worlds import LabWorld, RealWorld, World
from tests.kubernetes.control_plane import ControlPlane

_NODE = "a-node-without-a-kubelet"


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def bench(pki: Pki, tmp_path: Path) -> Iterator[Bench]:
    with running(pki, tmp_path) as bench:
        yield bench


@pytest.fixture(scope="session")
def disposable(request: pytest.FixtureRequest) -> Path:
    """Return the kubeconfig of a real cluster with a node."""
    if config := os.environ.get("KUBECONFIG_REAL"):
        return Path(config)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    plane.kubelets.idle.add(_NODE)
    plane.kubelets.register(_NODE)
    until(lambda: _settled(plane.get(f"/api/v1/nodes/{_NODE}")))
    return plane.kubeconfig


def _settled(node: Any) -> bool:
    """Whether controllers are done with a new node: tests compare what it was with what it is."""
    known = node["metadata"].get("annotations", {})
    return "node.alpha.kubernetes.io/ttl" in known and not node["spec"].get("taints")


@pytest.fixture(params=["lab", pytest.param("real", marks=pytest.mark.kubernetes)])
def world(request: pytest.FixtureRequest, tmp_path: Path, pki: Pki) -> Iterator[World]:
    with ExitStack() as stack:
        if request.param == "lab":
            world: World = LabWorld(stack.enter_context(running(pki, tmp_path)))
        else:
            world = RealWorld(kubectl(), request.getfixturevalue("disposable"), tmp_path)
            stack.callback(world.clean)
        yield world
