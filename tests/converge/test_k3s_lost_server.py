"""A lost server of K3s is taken out by a person's word, and another machine joins in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.k3s_lost_server import LostServer, find, remove_server
from reconciler.model.errors import PartlyDone, Refused, UsageError
from reconciler.model.outcome import Transient
from reconciler.model.vocab import NodeState
from tests.converge.k3s_world import SERVERS, declare, k3s_world, site, spec
from tests.converge.world import World

Worlds = Callable[..., World]
FOUR = (*SERVERS, "n3")


def set_aside(here: World, name: str, state: NodeState = NodeState.QUARANTINED) -> None:
    nodes = {one: replace(node, state=state) if one == name else node for one, node in here.fleet.nodes.items()}
    here.fleet = replace(here.fleet, nodes=nodes)
    here.fabric.fleet = here.fleet  # type: ignore[attr-defined]


def burnt(here: World, name: str) -> None:
    """Lose a machine, of which nothing answers any more."""
    here.machine(name).poweroff()
    here.clock.elapsed += 600.0


def removed(here: World, name: str) -> None:
    here.run(remove_server(here.fleet, name, fabric=here.fabric, ledger=here.ledger, clock=here.clock, holder="test"))


def found(here: World, name: str) -> LostServer:
    return here.run(find(here.fleet, name, fabric=here.fabric, ledger=here.ledger, clock=here.clock, holder="test"))


def with_a_blank_fourth(world: Worlds) -> World:
    """A cluster of n0, n1 and n2, of which n1 is lost, and n3, which is to be a server in its place."""
    here = k3s_world(world, spec(), nodes=5, drift={"n3": ["not_a_member"]})
    here.adopt()
    burnt(here, "n1")
    declare(here, spec(), servers=FOUR)
    set_aside(here, "n1")
    return here


def test_another_machine_joins_once_the_lost_one_is_taken_out(world: Worlds) -> None:
    here = with_a_blank_fourth(world)
    report = here.apply(wait_s=0.0)
    assert "server n1 is not Ready" in report.results["n3"].detail
    assert "`reconciler cluster remove-server CLUSTER n1`" in report.results["n3"].detail
    outcome = here.act("join", "n3", servers=here.fabric.servers())  # type: ignore[attr-defined]
    assert isinstance(outcome, Transient)
    assert outcome.detail.endswith("`reconciler cluster remove-server CLUSTER n1` takes it out")
    assert site(here).members == ["n0", "n1", "n2"]
    assert found(here, "n1").off
    removed(here, "n1")
    assert site(here).members == ["n0", "n2"]
    report = here.apply(wait_s=7200.0)
    assert "remove-server" not in str(report.results)
    assert report.results["n3"].state.value == "done", report.results["n3"]
    assert site(here).members == ["n0", "n2", "n3"]
    assert here.serves("n3")
    assert (site(here).begun, site(here).fewest >= 0) == (1, True)
    removed(here, "n1")  # again, as after an interruption: nothing is left to do


def test_the_lost_server_may_be_out_of_the_spec_altogether(world: Worlds) -> None:
    here = with_a_blank_fourth(world)
    nodes = {name: node for name, node in here.fleet.nodes.items() if name != "n1"}
    here.fleet = replace(here.fleet, nodes=nodes)
    assert not found(here, "n1").off, "nobody knows its BMC any more"
    removed(here, "n1")
    assert site(here).members == ["n0", "n2"]
    with pytest.raises(UsageError, match="the cluster has no server n9; it has n0, n2"):
        removed(here, "n9")


def test_it_is_refused_before_anything_is_changed(world: Worlds) -> None:
    here = with_a_blank_fourth(world)
    set_aside(here, "n1", NodeState.ACTIVE)
    with pytest.raises(Refused, match="n1 is active: set its state to quarantined first"):
        removed(here, "n1")
    set_aside(here, "n1")
    here.ledger.hold("n1", "its power supply is changed", "alice", None, here.clock.now())
    with pytest.raises(Refused, match="n1 is held by alice: its power supply is changed"):
        removed(here, "n1")
    here.ledger.release("n1", "alice", here.clock.now())
    set_aside(here, "n2")
    with pytest.raises(Refused, match="server n2 is Ready"):
        removed(here, "n2")
    here.fleet = replace(here.fleet, nodes={name: one for name, one in here.fleet.nodes.items() if name != "n4"})
    with pytest.raises(UsageError, match="the cluster has no server n4"):
        removed(here, "n4")
    assert site(here).members == ["n0", "n1", "n2"]


def test_a_server_on_which_k3s_runs_is_not_lost(world: Worlds) -> None:
    """Its kubelet is not Ready, and its host answers: it would register again."""
    here = k3s_world(world, spec(), nodes=4, faults={"n1": {"kubelet_not_ready": {}}})
    here.adopt()
    here.clock.elapsed += 600.0
    set_aside(here, "n1")
    with pytest.raises(Refused, match="n1 answers, and K3s runs on it"):
        removed(here, "n1")
    here.machine("n1").service_set("k3s", active=False, enabled=False)
    removed(here, "n1")
    assert site(here).members == ["n0", "n2"]


def test_etcd_lets_no_member_go_without_its_quorum(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {}}})
    here.adopt()
    burnt(here, "n1")
    set_aside(here, "n1")
    with pytest.raises(Refused, match="of the 2 other servers, 2 have to be Ready, and n2 is not"):
        removed(here, "n1")


def test_two_of_five_may_be_lost_at_once(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=6, servers=("n0", "n1", "n2", "n3", "n4"))
    here.adopt()
    for name in ("n1", "n2"):
        burnt(here, name)
        set_aside(here, name)
        here.clock.elapsed += 600.0
    removed(here, "n1")
    removed(here, "n2")
    assert site(here).members == ["n0", "n3", "n4"]
    assert site(here).fewest >= 0


def test_a_machine_that_answers_nobody_and_runs_is_told(world: Worlds) -> None:
    """Its SSH is gone, and its kubelet registers it again as soon as its node object is deleted."""
    here = k3s_world(world, spec(), nodes=4, faults={"n1": {"kubelet_not_ready": {}, "ssh_refused": {}}})
    here.adopt()
    here.clock.elapsed += 600.0
    set_aside(here, "n1")
    assert not found(here, "n1").off
    with pytest.raises(PartlyDone, match="a kubelet has registered it again, so its machine runs: switch it off"):
        removed(here, "n1")
    assert site(here).members == ["n0", "n2"]
