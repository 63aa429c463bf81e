"""The rights that the driver needs: deploy/kubernetes/rbac.yaml grants these and no other; `doctor` asks for each."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.app.doctor import _deprecated, _rights
from reconciler.drivers.kube import KubectlCluster
from reconciler.drivers.kube.rights import (
    CHECKPOINT_RIGHTS,
    EVENT_RIGHTS,
    QUEUE_RIGHTS,
    RIGHTS,
    SURGE_RIGHTS,
    Right,
    maintenance_rights,
    rights_for,
)
from reconciler.model.drain import Checkpoint, DrainPolicy, QueueHold, Surge
from reconciler.model.errors import DriverError, Failure
from reconciler.model.k3s import DeprecatedApi
from reconciler.model.maintenance import OPERATORS
from reconciler.model.observed import Answered, Taint
from reconciler.model.vocab import CheckpointWay, DrainProvider, StopPolicy
from tests.conftest import ROOT
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.test_cluster import MARK, failure, run
from tests.drivers.kube.test_watch import Listener, listening
from tests.drivers.kube.worlds import ROLE, LabWorld, World, granted, granted_anywhere, role

CHECKPOINT_ROLE = ROLE.with_name("rbac-checkpoint.yaml")
ADJUST_ROLE = ROLE.with_name("rbac-adjust.yaml")
DRAIN = DrainPolicy(DrainProvider.KUBERNETES)


def test_the_role_grants_what_the_driver_needs() -> None:
    assert granted(role()) == {(right.verb, right.resource) for right in RIGHTS}
    theirs = {(right.group, right.verb, right.resource) for right in maintenance_rights(OPERATORS)}
    assert {one for one in granted_anywhere(role()) if one[0]} == theirs
    kinds = [document["kind"] for document in role()]
    assert kinds == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    (events,) = (document for document in role() if document["kind"] == "Role")
    found = {(verb, name) for rule in events["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    assert found == {(right.verb, right.resource) for right in EVENT_RIGHTS}
    assert {right.namespace for right in EVENT_RIGHTS} == {events["metadata"]["namespace"]}


async def everything(driver: KubectlCluster, world: World) -> None:
    """Call all that the driver has, but for the watch."""

    async def member() -> Any:
        return await driver.member(world.node)

    assert isinstance(await driver.state(), Answered)
    await driver.mark(await member(), MARK)
    await driver.unmark(await member(), uncordon=True)
    await driver.set_labels(await member(), {"tier": "gold"}, [Taint("new", "", "NoSchedule")])
    await driver.delete(world.add_pod("deleted", labels={}), grace_s=0)
    await driver.evict(world.add_pod("evicted", labels={}), grace_s=0)
    gone = world.add_pod("gone", labels={})
    world.remove_pod("gone")
    world.add_pod("gone", labels={})
    await driver.delete(gone, grace_s=0)  # 409: another pod of that name, which is read
    await driver.remove(await member())


def test_a_second_role_grants_what_checkpoints_need() -> None:
    documents = list(YAML(typ="safe").load_all(CHECKPOINT_ROLE.read_text()))
    extra = {(right.verb, right.resource) for rights in CHECKPOINT_RIGHTS.values() for right in rights}
    assert granted(documents) == extra
    assert rights_for((DRAIN,)) == RIGHTS
    every = [replace(DRAIN, checkpoint=Checkpoint(way, 1.0)) for way in CheckpointWay]
    assert {(right.verb, right.resource) for right in rights_for(every)} == granted(role()) | extra


def test_a_third_role_grants_what_surges_and_queues_need() -> None:
    documents = list(YAML(typ="safe").load_all(ADJUST_ROLE.read_text()))
    theirs = {(right.group, right.verb, right.resource) for right in (*SURGE_RIGHTS, *QUEUE_RIGHTS)}
    assert granted_anywhere(documents) == theirs
    assert rights_for((replace(DRAIN, surge=Surge(every=True, timeout_s=1.0)),)) == (*RIGHTS, *SURGE_RIGHTS)
    held = replace(DRAIN, hold=QueueHold(("q",), StopPolicy.HOLD, 1.0))
    assert rights_for((held,)) == (*RIGHTS, *QUEUE_RIGHTS)


@pytest.mark.wire
@pytest.mark.tool
@pytest.mark.parametrize("keep", [False, True])
def test_the_driver_uses_each_right_and_no_other(bench: Bench, keep: bool) -> None:
    """Both with a kubectl for each request and with one that keeps running."""
    world = LabWorld(bench)
    used: set[tuple[str, str]] = set()

    class Asked(set[tuple[str, str]]):
        def __contains__(self, right: object) -> bool:
            used.add(right)  # type: ignore[arg-type]
            return super().__contains__(right)

    bench.front.rights = Asked(granted(role()))
    driver = bench.driver(keep=keep)

    async def work() -> None:
        await everything(driver, world)
        await driver.close()

    async def hears(listener: Listener) -> None:
        bench.on_loop(lambda: bench.truth.update_node("gpu-001", labels={"heard": "yes"}))
        await listener.hears("gpu-001")

    run(work())
    listening(bench, hears)
    assert used == granted(role())


@pytest.mark.wire
@pytest.mark.tool
def test_the_rights_of_the_role_are_enough(world: World) -> None:
    driver = world.restricted()
    run(everything(driver, world))
    assert run(driver.missing_rights()) == ()


@pytest.mark.wire
@pytest.mark.tool
@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.verb} {right.resource}")
def test_a_right_that_is_missing_is_named(world: World, right: Right) -> None:
    assert run(world.restricted(less=(right.verb, right.resource)).missing_rights()) == (right,)


@pytest.mark.wire
@pytest.mark.tool
def test_a_drain_without_its_right_is_refused_in_the_servers_words(world: World) -> None:
    pod = world.add_pod("victim", labels={})
    error = failure(world.restricted(less=("create", "pods/eviction")).evict(pod, grace_s=0))
    assert error.kind is Failure.AUTH
    assert 'pods "victim" is forbidden: User "' in error.detail
    assert 'cannot create resource "pods/eviction" in API group "" in the namespace "default"' in error.detail


@pytest.mark.wire
@pytest.mark.tool
def test_that_rights_are_not_known_is_no_right(bench: Bench) -> None:
    bench.front.fault = "unavailable"
    assert failure(bench.driver(timeout_s=1).missing_rights()).kind is Failure.BUSY


def findings(answer: Any) -> list[tuple[bool, str, str]]:
    def missing() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    workspace: Any = SimpleNamespace(missing_rights=missing, wanted_rights=RIGHTS)
    return [(finding.ok, finding.detail, finding.remedy) for finding in _rights(workspace)]


def test_doctor_names_each_missing_right_and_the_file() -> None:
    remedy = f"kubectl apply -f {ROLE.relative_to(ROOT)}"
    assert findings((RIGHTS[3], RIGHTS[-1])) == [
        (False, "this account may not patch nodes (marking, cordoning and labelling)", remedy),
        (False, "this account may not create pods/eviction (draining)", remedy),
    ]
    theirs = maintenance_rights(OPERATORS)[:1]
    may_not = "list nodemaintenances.maintenance.nvidia.com (seeing what NVIDIA's maintenance operator maintains)"
    assert findings(theirs) == [(False, f"this account may not {may_not}", remedy)]
    assert findings(()) == [
        (True, "may get, list, watch, patch and delete nodes; get, list and delete pods; create pods/eviction", "")
    ]
    [(ok, detail, _)] = findings(DriverError(Failure.TIMEOUT, "no answer"))
    assert not ok
    assert "not known" in detail


# --- deprecated APIs -------------------------------------------------------------------------------------------------

METRICS = """\
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",version="v1"} 1
apiserver_requested_deprecated_apis{group="policy",removed_release="1.25",resource="podsecuritypolicies",\
version="v1beta1"} 1
apiserver_storage_objects{resource="pods"} 12
"""


@pytest.mark.wire
@pytest.mark.tool
@pytest.mark.parametrize("keep", [False, True])
def test_deprecated_apis_are_read_from_the_metrics(bench: Bench, keep: bool) -> None:
    driver = bench.driver(keep=keep)

    async def ask() -> Any:
        try:
            await driver.member("gpu-001")
            return await driver.deprecated_apis()
        finally:
            await driver.close()

    assert run(ask()) == ()
    bench.front.metrics = METRICS
    assert run(ask()) == (DeprecatedApi("policy", "v1beta1", "podsecuritypolicies", "1.25"),)
    bench.front.rights = {("get", "nodes"), ("list", "pods")}
    assert failure(ask()).kind is Failure.AUTH


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((), "nobody has asked"),
        ((DeprecatedApi("policy", "v1beta1", "podsecuritypolicies", "1.25"),),
         "policy/v1beta1/podsecuritypolicies (gone with 1.25)"),
        (DriverError(Failure.AUTH, "forbidden"), "is not known: auth: forbidden: grant `get` of the nonResourceURL"),
        (DriverError(Failure.TIMEOUT, "no answer"), "is not known: timeout: no answer"),
    ],
)  # fmt: skip
def test_doctor_says_which_apis_an_upgrade_takes_away(answer: Any, said: str) -> None:
    def ask(_: object) -> Any:
        if isinstance(answer, DriverError):
            raise answer
        return answer

    found = _deprecated(SimpleNamespace(ask_cluster=ask))  # type: ignore[arg-type]  # all that it uses
    assert found.ok
    assert said in found.detail
