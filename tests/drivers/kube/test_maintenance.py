"""Objects by which other operators maintain nodes: read where a cluster has them, and a hold where they can't be."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.lab.inprocess.cluster_port import TruthCluster
from reconciler.lab.inprocess.virtual_time import VirtualClock
from reconciler.model.maintenance import OPERATORS, Operator
from reconciler.model.observed import Answered, Member
from reconciler.planner.node.foreign_holds import hold_of
from tests.drivers.kube.bench import NOW, Bench
from tests.drivers.kube.test_cluster import run
from tests.drivers.kube.worlds import granted, role

pytestmark = [pytest.mark.wire, pytest.mark.tool]
NODE = "gpu-002"

HOLDS = {
    "maintenance.nvidia.com": "NVIDIA's maintenance operator maintains it (nodemaintenances.maintenance.nvidia.com "
    "operators/nvidia-operator-gpu-002: nvidia.gpu.operator, Draining)",
    "nodemaintenance.medik8s.io": "medik8s' node maintenance maintains it (nodemaintenances.nodemaintenance.medik8s.io "
    "maintain-gpu-002: new fans, Running)",
    "remediation.medik8s.io": "medik8s' health check maintains it (nodehealthchecks.remediation.medik8s.io "
    "check-gpu-002: remediates it)",
    "self-node-remediation.medik8s.io": "medik8s' self node remediation maintains it "
    "(selfnoderemediations.self-node-remediation.medik8s.io operators/gpu-002-x7k2p: Pre-Reboot-Completed)",
    "fence-agents-remediation.medik8s.io": "medik8s' fence agents maintains it "
    "(fenceagentsremediations.fence-agents-remediation.medik8s.io operators/gpu-002)",
}


def members(bench: Bench) -> dict[str, Member]:
    """Every member, as a list and a read of one alone tell alike."""

    async def read() -> dict[str, Member]:
        driver = bench.driver()
        reading = await driver.state()
        assert isinstance(reading, Answered), reading
        assert {name: await driver.member(name) for name in reading.value.members} == reading.value.members
        return dict(reading.value.members)

    return run(read())


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: str(operator.group))
def test_an_object_holds_the_node_that_it_names_until_it_is_gone(bench: Bench, operator: Operator) -> None:
    machine = bench.truth.machines[NODE]
    bench.truth.operators = frozenset({operator.group})
    assert not any(map(hold_of, members(bench).values())), "the cluster has this API, and no object of it"
    bench.on_loop(lambda: machine.inject("maintenance", operator=operator.group))
    found = members(bench)
    assert {name: hold_of(member) for name, member in found.items() if hold_of(member)} == {NODE: HOLDS[operator.group]}
    port = TruthCluster(bench.truth, VirtualClock(NOW), latency_s=0)
    reading = asyncio.run(port.state())
    assert isinstance(reading, Answered)
    assert reading.value.members[NODE].requests == found[NODE].requests, "the lab's own port tells the same"
    bench.on_loop(lambda: machine.clear("maintenance"))
    assert not any(map(hold_of, members(bench).values()))


def test_a_cluster_without_these_operators_is_asked_for_its_groups_alone(bench: Bench) -> None:
    used: set[tuple[str, str]] = set()

    class Asked(set[tuple[str, str]]):
        def __contains__(self, right: object) -> bool:
            used.add(right)  # type: ignore[arg-type]
            return super().__contains__(right)

    bench.front.rights = Asked(granted(role()))
    assert not any(map(hold_of, members(bench).values()))
    assert {resource for _, resource in used} == {"nodes", "pods"}


def test_objects_that_may_not_be_read_hold_every_node(bench: Bench) -> None:
    """An account of before knows nothing of them: whom they name is not known, so nobody is disrupted."""
    bench.truth.operators = frozenset({"remediation.medik8s.io"})
    bench.front.rights = granted(role())
    assert [str(right) for right in run(bench.driver().missing_rights())] == [
        "list nodehealthchecks.remediation.medik8s.io (seeing what medik8s' health check maintains)"
    ]
    for member in members(bench).values():
        assert "nodehealthchecks.remediation.medik8s.io" in hold_of(member)
        assert "is forbidden" in hold_of(member)
    bench.front.rights = granted(role()) | {("list", "nodehealthchecks")}
    assert run(bench.driver().missing_rights()) == ()
    assert not any(map(hold_of, members(bench).values()))
