"""Fixtures of the kubectl driver's tests.

`world` is a cluster in which tests may do anything: the lab's front, and a real one as well if KUBECONFIG_REAL names a
disposable cluster. Its tests need one node, create and delete pods in the namespace `default`, and put taints, labels
and annotations on that node. Without kubelet and controllers (a bare kube-apiserver) it works too: what they would
report is written by the test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drivers.kube.bench import Bench, Pki, kubectl, make_pki, running
from tests.drivers.kube.worlds import LabWorld, RealWorld, World


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def bench(pki: Pki, tmp_path: Path) -> Iterator[Bench]:
    with running(pki, tmp_path) as bench:
        yield bench


@pytest.fixture(params=["lab", "real"])
def world(request: pytest.FixtureRequest, tmp_path: Path, pki: Pki) -> Iterator[World]:
    with ExitStack() as stack:
        if request.param == "lab":
            world: World = LabWorld(stack.enter_context(running(pki, tmp_path)))
        elif config := os.environ.get("KUBECONFIG_REAL"):
            world = RealWorld(kubectl(), Path(config), tmp_path)
            stack.callback(world.clean)
        else:
            pytest.skip("KUBECONFIG_REAL names no disposable cluster")
        yield world
