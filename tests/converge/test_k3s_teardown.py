"""A whole K3s cluster is taken away: agents before servers, held meanwhile, killed at any command and gone on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.app.k3s_commands import lost_with
from reconciler.converge.brake import look_for_storm
from reconciler.converge.k3s_teardown import HOLDER, TeardownBroke, TeardownRequest, TornDown, bucket_of, tear_down
from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.errors import Refused
from reconciler.model.gate import CommandResult
from reconciler.model.k3s_removal import REMOVAL
from reconciler.model.records import FLEET, NO_CLUSTER
from reconciler.model.vocab import NodeState
from tests.converge.k3s_world import declare, k3s_world, site, spec
from tests.converge.test_k3s_killed import Killed, killed_at
from tests.converge.world import World

Worlds = Callable[..., World]


def torn_down(here: World, tell: Callable[[str], None] = lambda _: None) -> TornDown:
    request = TeardownRequest(here.fleet, "main", "test")
    return here.run(tear_down(request, fabric=here.fabric, ledger=here.ledger, clock=here.clock, tell=tell))


def gone(here: World) -> None:
    for name in here.fleet.nodes:
        left = [path for path in here.machine(name).disk().files if "rancher" in path or "k3s" in path]
        assert left == []
    assert (site(here).members, site(here).tokens, site(here).passwords) == ([], {}, {})
    assert not here.ledger.holds()


def test_agents_go_first_and_servers_one_by_one(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=5)
    here.adopt()
    told: list[str] = []
    done = torn_down(here, told.append)
    assert (done.nodes, done.kept, done.untouched) == (("n3", "n4", "n0", "n1", "n2"), {}, ())
    assert told == [f"taking K3s from {name}" for name in ("n3", "n4", "n2", "n1", "n0")]
    gone(here)
    here.apply(wait_s=3600.0)
    gone(here)  # nothing begins it anew


def test_nodes_whose_cluster_was_taken_away_are_no_storm_until_they_serve_again(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    here.apply()
    torn_down(here)
    assert all(NO_CLUSTER in here.ledger.node(name).silent_since for name in here.fleet.nodes)
    declare(here, spec(bootstrap=True))
    here.apply()
    assert all(here.serves(name) for name in here.fleet.nodes), here.ledger.holds()
    assert site(here).begun == 2
    assert not any(NO_CLUSTER in here.ledger.node(name).silent_since for name in here.fleet.nodes)


def test_a_teardown_that_is_killed_at_any_command_goes_on() -> None:
    at = 1
    while survives_death_at(at):
        at += 1
    assert at == 11  # two commands for each node


def sets_no_brake(here: World) -> None:
    """A service looks at the fleet meanwhile: what this teardown did is no storm."""
    here.clock.elapsed += 120.0
    records = here.ledger.nodes(list(here.fleet.nodes))
    look_for_storm(here.ledger, here.fleet, here.observe(), records, here.clock.now())
    assert [hold.subject for hold in here.ledger.holds()] == [FLEET]


def survives_death_at(command: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        here = k3s_world(lambda **given: World(Path(folder), **given), spec(), nodes=5)
        here.adopt()
        here.apply()  # so they are known to have served
        came_so_far = False
        with killed_at(command):
            try:
                torn_down(here)
            except Killed:
                came_so_far = True
        if came_so_far and here.ledger.holds():
            sets_no_brake(here)
            with pytest.raises(Refused, match="cluster main is taken away"):
                here.apply()
        if came_so_far:
            torn_down(here)
        gone(here)
        here.ledger.close()
    return came_so_far


def test_what_a_node_refuses_is_told_and_the_fleet_stays_held(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = k3s_world(world, spec(), nodes=4)
    run = MachineHost.run

    async def refusing(self: MachineHost, argv: tuple[str, ...], *, timeout: float, stdin: str = "") -> CommandResult:
        if argv == ("sh", "-c", REMOVAL):
            return CommandResult(1, "", "/var/lib/kubelet/pods/x is still mounted: nothing is removed\n")
        return await run(self, argv, timeout=timeout, stdin=stdin)

    with monkeypatch.context() as patch:
        patch.setattr(MachineHost, "run", refusing)
        with pytest.raises(TeardownBroke, match="n3: /var/lib/kubelet/pods/x is still mounted"):
            torn_down(here)
    assert [(hold.subject, hold.owner) for hold in here.ledger.holds()] == [(FLEET, HOLDER)]
    assert sorted(site(here).members) == ["n0", "n1", "n2"]
    torn_down(here)
    gone(here)


def test_a_host_that_still_shows_k3s_is_not_believed(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = k3s_world(world, spec(), nodes=4)
    monkeypatch.setattr(site(here).__class__, "removed", lambda *_: None)
    with pytest.raises(TeardownBroke, match="still shows"):
        torn_down(here)


def test_it_is_refused_before_anything_is_changed(world: Worlds) -> None:
    here = k3s_world(world, spec(bootstrap=True), nodes=4)
    with pytest.raises(Refused, match="bootstrap: true"):
        torn_down(here)
    declare(here, spec())
    here.ledger.hold("n3", "a look at it", "alice", None, here.clock.now())
    with pytest.raises(Refused, match="n3 is held by alice: a look at it"):
        torn_down(here)
    here.ledger.release("n3", "alice", here.clock.now())
    here.machine("n3").poweroff()
    here.clock.elapsed += 600.0
    with pytest.raises(Refused, match="n3: off"):
        torn_down(here)
    assert sorted(site(here).members) == ["n0", "n1", "n2"]
    assert not here.ledger.holds()
    nodes = {name: replace(one, state=NodeState.QUARANTINED) if name == "n3" else one
             for name, one in here.fleet.nodes.items()}  # fmt: skip
    here.fleet = replace(here.fleet, nodes=nodes)
    assert torn_down(here).untouched == ("n3",)


def test_copies_of_snapshots_in_a_bucket_are_named_and_left(world: Worlds) -> None:
    store = {"server": "s3.example:9000", "bucket": "k3s", "folder": "main", "accessKey": "a", "secretKey": "b"}
    for snapshots, bucket in (({"s3": store}, "k3s/main"), ({}, "")):
        fleet = k3s_world(world, spec(snapshots=snapshots), nodes=4).fleet
        assert bucket_of(fleet) == bucket
        assert ("all but the copies in k3s/main" in lost_with(fleet)) is bool(bucket)
