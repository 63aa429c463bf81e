"""Operators and admission: nobody serves before the GPU Operator has validated it and its devices are offered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from reconciler.converge.run import Ended
from reconciler.lab.hardware.cluster_objects import NodeObject
from reconciler.lab.hardware.operands import FAULT
from reconciler.model import desired as d
from reconciler.model.drift import DriftClass
from reconciler.model.errors import Position
from reconciler.model.operands import DEVICE_PLUGIN, GPU_RESOURCE, VALIDATOR
from reconciler.model.outcome import Done, Transient
from reconciler.model.releases import Chart, CrdPolicy, DesiredRelease, OperatorKind
from tests import builders as b
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
RDMA = "rdma/rdma_shared_device_a"
CHART = Chart("https://charts.example", "gpu-operator", "v1", "0" * 64)
RELEASE = DesiredRelease(
    "gpu-operator", "gpu-operator", OperatorKind.GPU, CHART, "{}", CrdPolicy.CREATE, 300.0, Position("cluster.yaml", 7),
    out_of_service=True,
)  # fmt: skip


def waiting(allocatable: Mapping[str, int], *, validated: bool = True, **changes: object) -> d.Profile:
    membership = PROFILE.membership
    assert membership is not None
    membership = replace(membership, allocatable=allocatable, validated=validated)
    return replace(PROFILE, digest="waiting", membership=membership, **changes)  # type: ignore[arg-type]


def declared(world: Worlds, profile: d.Profile, **more: object) -> World:
    built = world(profile=profile, nodes=2, settings={"releases": (RELEASE,)}, **more)
    built.adopt()
    return built


@pytest.fixture
def here(world: Worlds) -> World:
    """Two nodes of four GPUs, of which one has to be booted, and an operator that is not installed yet."""
    return declared(world, waiting({GPU_RESOURCE: 4, RDMA: 63}), drift={"n0": ["bios_off"]})


def pods_of(here: World, node: str) -> dict[str, str]:
    assert here.lab.cluster is not None
    return {pod.owner_name: pod.phase for pod in here.lab.cluster.pods(node) if pod.owner_kind == "DaemonSet"}


def state(here: World, node: NodeObject) -> tuple[int, int, str]:
    """What a node offers, and its validator, as it begins to serve."""
    return node.allocatable.get(GPU_RESOURCE, 0), node.allocatable.get(RDMA, 0), pods_of(here, node.name)[VALIDATOR]


def lacks(here: World, node: str) -> list[str]:
    found = here.plan().nodes[node].drift
    return [str(item.observed) for item in found if item.path == "cluster.allocatable"]


def test_a_node_is_admitted_when_its_operators_are_ready(here: World) -> None:
    assert VALIDATOR not in pods_of(here, "n0")
    cluster, begins = here.lab.cluster, []
    assert cluster is not None
    cluster.watcher = lambda node, serves: begins.append(state(here, node)) if serves and here.events else None
    plan = here.plan()
    assert [action.name for action in plan.nodes["n0"].actions][-2:] == ["await_operators", "admit"]
    report = here.apply()
    assert report.releases["gpu-operator"].state is Ended.DONE
    assert here.serves("n0")
    assert begins
    assert set(begins) == {(4, 63, "Running")}
    assert here.did("n1") == []


def test_where_nothing_waits_for_operators_no_plan_names_them(world: Worlds) -> None:
    built = declared(world, PROFILE, drift={"n0": ["bios_off"]})
    built.apply()
    assert built.serves("n0")
    assert "await_operators" not in built.did("n0")


def test_a_node_whose_device_plugin_leaves_a_gpu_out_is_not_admitted_and_says_so(here: World) -> None:
    here.apply()
    here.machine("n0").inject(FAULT, gpus=1)
    assert lacks(here, "n0") == ["it offers 3 nvidia.com/gpu, and 4 are declared"]
    assert here.serves("n0"), "nobody is taken out of service for that"
    [item] = [one for one in here.plan().nodes["n0"].drift if one.path == "cluster.allocatable"]
    assert item.kind is DriftClass.REPORTED


@pytest.mark.parametrize("persistent", [False, True])
def test_seven_of_eight(world: Worlds, persistent: bool) -> None:
    """A device plugin that is started anew may find the GPU again; if it does not, the node stays out."""
    built = declared(
        world, waiting({GPU_RESOURCE: 4}), drift={"n0": ["bios_off"]},
        faults={"n0": {FAULT: {"gpus": 1, "persistent": persistent}}},
    )  # fmt: skip
    report = built.apply()
    assert built.serves("n0") is not persistent
    if persistent:
        assert built.tainted("n0")
        assert "it offers 3 nvidia.com/gpu, and 4 are declared" in report.results["n0"].detail
        built.machine("n0").clear(FAULT)
        built.clock.elapsed += 86400.0
        built.apply()
        assert built.serves("n0")


def test_mig_devices_are_offered_by_a_plugin_that_is_started_anew(world: Worlds) -> None:
    """It looks for them when it starts alone, and the layout is set after that."""
    profile = waiting({GPU_RESOURCE: 8}, gpu=d.DesiredGpu({"3g.40gb": 2}))
    built = declared(world, profile)
    cluster = built.lab.cluster
    assert cluster is not None
    built.apply()
    assert built.serves("n0")
    assert cluster.node("n0").allocatable == {GPU_RESOURCE: 8}


def test_the_action_waits_for_the_validator_and_each_resource(here: World) -> None:
    outcome = here.act("await_operators")
    assert isinstance(outcome, Transient)
    assert f"no pod of {VALIDATOR} is on it" in str(outcome)
    assert here.lab.cluster is not None
    here.lab.cluster.helm.gpu_operator = True
    here.lab.cluster.helm.changed()
    assert here.act("await_operators") == Done("its operators are ready", changed=False)
    here.lab.cluster.devices["n0"] = {RDMA: 62}
    here.lab.cluster.helm.changed()
    assert "it offers 62 rdma/rdma_shared_device_a, and 63 are declared" in str(here.act("await_operators"))


def test_a_plugin_is_started_anew_once_for_its_own_devices_alone(here: World) -> None:
    assert here.lab.cluster is not None
    here.lab.cluster.helm.gpu_operator = True
    here.lab.cluster.devices["n0"] = {RDMA: 1}
    here.lab.cluster.helm.changed()

    def plugin() -> str:
        assert here.lab.cluster is not None
        return next(pod.uid for pod in here.lab.cluster.pods("n0") if pod.owner_name == DEVICE_PLUGIN)

    before = plugin()
    here.act("await_operators")
    assert plugin() == before
    here.machine("n0").inject(FAULT, gpus=1)
    here.act("await_operators")
    assert plugin() != before


def test_a_cluster_whose_nodes_all_wait_gets_its_operator_if_that_tolerates_our_mark(here: World) -> None:
    cluster = here.lab.cluster
    assert cluster is not None
    for node in cluster.nodes():
        if node.name in here.fleet.nodes:
            here.act("mark", node.name)
        else:
            cluster.update_node(node.name, unschedulable=True)
    report = here.apply()
    assert report.releases["gpu-operator"].state is Ended.DONE
    assert all(here.serves(name) for name in here.fleet.nodes)


@pytest.mark.parametrize("seconds", [10.0, 185.0, 400.0])
def test_a_run_that_dies_while_it_waits_is_gone_on_with(world: Worlds, seconds: float) -> None:
    """Before, while and after the device plugin is started anew."""
    built = declared(
        world, waiting({GPU_RESOURCE: 4}), drift={"n0": ["bios_off"]}, faults={"n0": {FAULT: {"persistent": True}}}
    )

    async def dies() -> None:
        task = asyncio.ensure_future(built.applying())
        waits = asyncio.ensure_future(built.started("await_operators"))
        await asyncio.wait((task, waits), return_when=asyncio.FIRST_COMPLETED)
        assert waits.done(), "the run ended without a wait"
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    built.run(dies())
    assert built.tainted("n0")
    built.machine("n0").clear(FAULT)
    built.apply()
    assert built.serves("n0")
    assert not [name for _, _, name, _, _ in built.ledger.unfinished() if name == "await_operators"]


@pytest.mark.parametrize("label", ["mofed", "nic-configuration"])
def test_a_node_whose_nics_the_network_operator_is_not_done_with_is_not_admitted(label: str) -> None:
    membership = b.PROFILE.membership
    assert membership is not None
    key = f"network.nvidia.com/operator.{label}.wait"
    for networked in (True, False):
        node = b.node(profile=b.profile(membership=replace(membership, networked=networked)))
        labels = {"workload": "training", key: "true"}
        seen = b.observed(member=b.member(mark=b.our_mark(), labels=labels))
        plan = b.planner().plan(node, seen, b.record(node, seen))
        assert (b.actions(plan)[0] == "await_operators") is networked, b.actions(plan)
        done = b.observed(member=b.member(mark=b.our_mark(), labels=labels | {key: "false"}))
        assert b.actions(b.planner().plan(node, done, b.record(node, done))) == ["admit"]
