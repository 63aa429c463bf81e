"""The kubectl proxy gives the same answers as a kubectl per request, and ends with its owner."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.kube import KubectlCluster, proxy
from reconciler.lab.hardware.cluster_objects import DisruptionBudget
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Member, Pod, Taint
from tests.drivers.kube.bench import Bench, Pki, running
from tests.drivers.kube.test_cluster import MARK
from tests.drivers.kube.test_faults import config, fake_kubectl

pytestmark = [pytest.mark.wire, pytest.mark.tool]

NODE = "gpu-001"
_NUMBERS = re.compile(r"\d+ m?s|[0-9a-f-]{36}|127\.0\.0\.1:\d+")


async def told(work: Awaitable[object]) -> object:
    """Return the result, or the failure's kind and detail."""
    try:
        return await work
    except DriverError as error:
        return error.kind, _NUMBERS.sub("#", error.detail), error.retry_after


async def seen(driver: KubectlCluster) -> Member:
    found = await driver.member(NODE)
    assert found is not None
    return found


def kept(driver: KubectlCluster) -> bool:
    return driver._kubectl._proxy is not None


def victim(bench: Bench, **labels: str) -> Pod:
    made = bench.on_loop(lambda: bench.truth.add_pod("default", "victim", NODE, ("", ""), labels=labels))
    return Pod("default", "victim", made.uid, "Running", "", True)


def gone(bench: Bench) -> None:
    if bench.on_loop(lambda: any(pod.name == "victim" for pod in bench.truth.pods())):
        bench.on_loop(lambda: bench.truth.delete_pod("default", "victim", grace_s=0))


Scene = Callable[[Bench, KubectlCluster], Awaitable[object]]


async def reads_a_node(bench: Bench, driver: KubectlCluster) -> object:
    return await driver.member(NODE)


async def reads_an_absent_node(bench: Bench, driver: KubectlCluster) -> object:
    return await driver.member("nobody")


async def reads_all(bench: Bench, driver: KubectlCluster) -> object:
    found = await driver.state()
    assert isinstance(found, Answered)
    return found.value.members


async def labels_and_taints(bench: Bench, driver: KubectlCluster) -> object:
    before = bench.truth.node(NODE)
    await driver.set_labels(await seen(driver), {"tier": "a/b"[:1]}, [Taint("x", "y", "NoSchedule")])
    after = await seen(driver)
    bench.on_loop(lambda: bench.truth.update_node(NODE, labels=before.labels, taints=()))
    return after.labels.get("tier"), after.taints


async def marks_what_has_moved_on(bench: Bench, driver: KubectlCluster) -> object:
    member = await seen(driver)
    bench.on_loop(lambda: bench.truth.update_node(NODE, annotations={"a": str(member.resource_version)}))
    return await told(driver.mark(member, MARK))


async def evicts(bench: Bench, driver: KubectlCluster) -> object:
    await driver.evict(victim(bench), grace_s=0)
    return bench.on_loop(lambda: [pod.name for pod in bench.truth.pods()])


async def evicts_what_a_budget_keeps(bench: Bench, driver: KubectlCluster) -> object:
    bench.truth.budgets[:] = [DisruptionBudget("default", "keep", {"app": "v"}, 1)]
    found = await told(driver.evict(victim(bench, app="v"), grace_s=0))
    bench.truth.budgets.clear()
    gone(bench)
    return found


async def deletes_another_of_that_name(bench: Bench, driver: KubectlCluster) -> object:
    pod = victim(bench)
    await driver.delete(Pod("default", "victim", "another-uid", "Running", "", True), grace_s=0)
    left = bench.on_loop(lambda: [found.uid == pod.uid for found in bench.truth.pods()])
    gone(bench)
    return left


def of_a_fault(fault: Any, *, write: bool) -> Scene:
    async def scene(bench: Bench, driver: KubectlCluster) -> object:
        member = await seen(driver)
        bench.front.fault = fault
        found = await told(driver.mark(member, MARK) if write else driver.member(NODE))
        bench.front.fault = ""
        bench.on_loop(lambda: bench.truth.update_node(NODE, annotations={}, taints=(), unschedulable=False))
        return found[0] if isinstance(found, tuple) else found

    scene.__name__ = f"{'writes' if write else 'reads'}_during_{fault}"
    return scene


SCENES: tuple[Scene, ...] = (
    reads_a_node, reads_an_absent_node, reads_all, labels_and_taints, marks_what_has_moved_on, evicts,
    evicts_what_a_budget_keeps, deletes_another_of_that_name,
    *(of_a_fault(fault, write=True) for fault in ("hang", "reset", "unavailable", "garbage", "lost_answer")),
    *(of_a_fault(fault, write=False) for fault in ("hang", "reset", "unavailable", "garbage")),
)  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_it_says_what_a_kubectl_per_request_says(bench: Bench, scene: Scene) -> None:
    """Down to the words, but for faults, of which a proxy has words of its own."""

    async def both() -> tuple[object, object]:
        plain, other = bench.driver(timeout_s=2), bench.driver(timeout_s=2, keep=True)
        first = await scene(bench, plain)
        await seen(other)
        assert kept(other)
        try:
            return _unversioned(first), _unversioned(await scene(bench, other))
        finally:
            assert not kept(plain)
            await other.close()

    plain, other = asyncio.run(both())
    assert plain == other
    assert plain is not None or scene is reads_an_absent_node


def _unversioned(found: object) -> object:
    return re.sub(r"resource_version='\d+'", "", repr(found))


def test_a_wrong_token_is_auth(bench: Bench, tmp_path: Path) -> None:
    async def ask() -> object:
        driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", token="not-the-token"), keep=True)
        try:
            first = await told(driver.member(NODE))
            assert not kept(driver), "the next one reads the kubeconfig anew"
            return first
        finally:
            await driver.close()

    found = asyncio.run(ask())
    assert isinstance(found, tuple)
    assert found[0] is Failure.AUTH


def test_one_that_dies_costs_nothing_but_time(bench: Bench) -> None:
    async def ask() -> tuple[Member, Member]:
        driver = bench.driver(keep=True)
        before = await seen(driver)
        own = driver._kubectl._proxy
        assert own is not None
        os.killpg(own._child.pid, signal.SIGKILL)
        await own._child.wait()
        await driver.mark(before, MARK)
        marked = await seen(driver)
        assert kept(driver)
        assert driver._kubectl._proxy is not own
        await driver.close()
        return before, marked

    before, marked = asyncio.run(ask())
    assert (before.unschedulable, marked.unschedulable) == (False, True)


def test_closing_leaves_nothing_behind(bench: Bench) -> None:
    async def ask() -> tuple[int, Path]:
        driver = bench.driver(lasting=True)
        assert isinstance(await driver.state(), Answered)
        own = driver._kubectl._proxy
        assert own is not None
        assert own._directory.stat().st_mode & 0o077 == 0, "the socket speaks with our rights"
        await driver.close()
        return own._child.pid, own._directory

    pid, directory = asyncio.run(ask())
    assert not directory.exists()
    assert not _members(pid)


def test_it_ends_with_a_reconciler_that_is_killed(bench: Bench, tmp_path: Path) -> None:
    program = """
import asyncio, os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from reconciler.drivers.kube import KubectlCluster

async def main():
    driver = KubectlCluster(kubeconfig=Path(sys.argv[1]), context=None, kubectl=sys.argv[2], timeout_s=10,
                            now=lambda: datetime.now(UTC), keep=True)
    await driver.member("gpu-001")
    proxy = driver._kubectl._proxy
    print(proxy._child.pid, proxy._directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(bench.kubeconfig), bench.program]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.split()
    pid, directory = int(said[0]), Path(said[1])
    ends = time.monotonic() + 10
    while (directory.exists() or _members(pid)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not directory.exists()
    assert not _members(pid)


def _members(group: int) -> list[str]:
    """Processes of a group that are no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize("how", ["exit 1", "exec sleep 30"])
def test_without_one_each_request_has_its_own(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(proxy, "_STARTS_S", 0.3)
    _is_not_kept(bench, tmp_path, f'case "$*" in *proxy*) {how} ;; *) exec {bench.program} "$@" ;; esac')


def test_one_that_reaches_another_server_is_not_kept(bench: Bench, pki: Pki, tmp_path: Path) -> None:
    """A kubeconfig may name a path on its server, which a proxy leaves out."""
    (tmp_path / "b").mkdir()
    with running(pki, tmp_path / "b", version="v1.24.0") as other:
        elsewhere = f'shift; exec {bench.program} --kubeconfig={other.kubeconfig} "$@"'
        _is_not_kept(bench, tmp_path, f'case "$*" in *proxy*) {elsewhere} ;; *) exec {bench.program} "$@" ;; esac')


def _is_not_kept(bench: Bench, tmp_path: Path, script: str) -> None:
    async def ask() -> None:
        driver = bench.driver(kubectl=fake_kubectl(tmp_path / "fake", script), keep=True)
        assert (await seen(driver)).name == NODE
        assert not kept(driver)
        await driver.close()

    asyncio.run(ask())
