"""The account of deploy/kubernetes/rbac.yaml at work, with a token of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from reconciler.drivers.kube import NodeWatch
from reconciler.drivers.kube.rights import EVENT_RIGHTS, RIGHTS
from reconciler.model.errors import DriverError, Failure
from reconciler.model.k3s import DeprecatedApi
from reconciler.model.maintenance import OPERATORS
from reconciler.model.observed import Answered, Member, Taint
from reconciler.model.outcome import Done, Outcome
from tests.drivers.kube.bench import kubectl
from tests.drivers.kube.worlds import ROLE
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

ACCOUNT = "/api/v1/namespaces/reconciler/serviceaccounts/reconciler"


@pytest.fixture
def account(scene: Scene) -> Scene:
    """Apply the file as it is shipped, and act as its account."""
    scene.plane.kubectl("apply", "-f", str(ROLE))
    return acting(scene)


def acting(scene: Scene) -> Scene:
    """Act as the account that the file makes, with a token of its own."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = scene.plane.create(f"{ACCOUNT}/token", request)["status"]["token"]
    scene.kubeconfig = scene.plane.write_kubeconfig("reconciler", token)
    scene.driver = scene.driver_of(scene.kubeconfig)
    return scene


def test_it_may_do_what_a_run_does(account: Scene) -> None:
    node, driver = account.add_node(), account.driver
    account.add_pod("web", node)
    account.add_pod("stuck", node, labels={"app": "stuck"})
    account.add_budget("never", {"app": "stuck"}, 1)
    until(lambda: len(account.running(node)) == 2)

    async def member() -> Member:
        found = await driver.member(node)
        assert found is not None
        return found

    async def run() -> Outcome:
        assert await driver.missing_rights() == ()
        assert isinstance(await driver.state(), Answered)
        assert isinstance(await account.act("mark", node), Done)
        drained = await account.act("drain", node, timeout_s=4, force=True)
        await driver.set_labels(await member(), {"tier": "gold"}, [Taint("new", "", "NoSchedule")])
        assert isinstance(await account.act("admit", node), Done)
        return drained

    assert isinstance(asyncio.run(run()), Done)
    assert account.names(node) == []


def test_it_may_watch(account: Scene) -> None:
    node = account.add_node()
    watch = NodeWatch(kubeconfig=account.kubeconfig, context=None, kubectl=kubectl(), timeout_s=10)

    async def run() -> str:
        async def label() -> None:
            for number in range(100):
                await asyncio.to_thread(
                    account.plane.patch, f"/api/v1/nodes/{node}", {"metadata": {"labels": {"n": f"{number}"}}}
                )
                await asyncio.sleep(0.5)

        labelling = asyncio.create_task(label())
        try:
            async with asyncio.timeout(30), aclosing(watch.changes()) as changes:
                return await anext(changes)
        finally:
            labelling.cancel()
            await asyncio.wait([labelling])

    assert asyncio.run(run()) == node


def test_it_may_do_nothing_else(account: Scene) -> None:
    """The cluster's own reviewer lists what it may do, beyond what everybody may."""
    listed = account.plane.kubectl(
        "auth", "can-i", "--list", "--no-headers", "--as=system:serviceaccount:reconciler:reconciler"
    )
    rows = [line.split() for line in listed.splitlines()]
    found = {(verb.strip("[]"), row[0]) for row in rows if row[0].startswith(("nodes", "pods")) for verb in row[3:]}
    assert found == {(right.verb, right.resource) for right in RIGHTS}
    theirs = {row[0] for row in rows if not row[0].startswith(("nodes", "pods", "[", "selfsubject"))}
    events = {right.resource for right in EVENT_RIGHTS}  # of the namespace that this asks about
    assert theirs == {operator.full_name for operator in OPERATORS} | events, listed


def test_deprecated_apis_in_use_are_told_and_without_the_right_it_is_not_known(scene: Scene) -> None:
    """Of 1.20, Ingresses of extensions/v1beta1 are gone with 1.22. The metric counts from the first request on."""
    scene.plane.get("/apis/extensions/v1beta1/ingresses")
    found = asyncio.run(scene.driver.deprecated_apis())
    assert DeprecatedApi("extensions", "v1beta1", "ingresses", "1.22") in found
    scene.plane.kubectl("apply", "-f", str(ROLE))
    with pytest.raises(DriverError) as caught:
        asyncio.run(acting(scene).driver.deprecated_apis())
    assert caught.value.kind is Failure.AUTH
