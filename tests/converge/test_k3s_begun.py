"""A server whose disk of etcd fails to mount begins no second cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.converge.k3s_birth import BIRTH_S, Birth, is_unborn
from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import CONFIG, DATASTORE, JOIN, SERVER_TOKEN, TOKEN, UNIT_FILES
from reconciler.model.observed import Answered
from reconciler.model.outcome import Declined, Done
from reconciler.model.records import NO_CLUSTER
from tests.converge.k3s_world import declare, k3s_world, site, spec
from tests.converge.test_k3s import NOT_THERE, converged
from tests.converge.test_k3s_external import external
from tests.converge.test_k3s_restore import restored, saved, whole
from tests.converge.world import World

Worlds = Callable[..., World]
BEGINS = 'node-name: "n0"\ncluster-init: true\n'


def starts_without_its_datastore(here: World, name: str) -> None:
    """Boot a server whose disk of etcd does not mount, by a unit that does not see that."""
    machine = here.machine(name)
    del machine.disk().files[DATASTORE]
    machine.service_set("k3s", active=False)
    machine.service_set("k3s", active=True)


def begins_nothing(here: World, name: str = "n0") -> None:
    before = site(here).begun
    starts_without_its_datastore(here, name)
    assert site(here).begun == before
    assert site(here).refused == [f"{name}: duplicate node name found, please use a unique name for this node"]
    assert sorted(site(here).members) == ["n0", "n1", "n2"]


def test_the_first_server_begins_a_cluster_once(world: Worlds) -> None:
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    converged(here)
    files = here.machine("n0").disk().files
    assert "cluster-init" not in files[JOIN]
    assert 'node-name: "n0"' in files[JOIN], "and all else is kept"
    assert "node-taint" in files[JOIN]
    assert files[TOKEN] == files[SERVER_TOKEN]
    begins_nothing(here)


def answers(here: World) -> bool:
    return isinstance(here.run(here.fabric.cluster().state()), Answered)  # type: ignore[union-attr]


def test_while_the_first_server_starts_the_cluster_is_not_silent(world: Worlds) -> None:
    """Other nodes go on meanwhile. What is silent for longer, or was never seen unborn, may be any cluster."""
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    assert answers(here)
    here.machine("n0").disk().files[DATASTORE] = "K3s"
    assert answers(here)
    here.clock.elapsed += BIRTH_S + 1
    assert not answers(here)
    here.fabric.birth = Birth(here.ledger)  # type: ignore[attr-defined]  # of another process
    assert not answers(here)


def test_a_proof_that_ends_after_the_cluster_answered_counts_for_nothing(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers are asked one after another, and another call may meanwhile see the cluster."""
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    run = MachineHost.run

    async def overtaken(self: MachineHost, argv: tuple[str, ...], *, timeout: float, stdin: str = "") -> CommandResult:
        here.fabric.birth.has_answered()  # type: ignore[attr-defined]
        return await run(self, argv, timeout=timeout, stdin=stdin)

    with monkeypatch.context() as patch:
        patch.setattr(MachineHost, "run", overtaken)
        assert not answers(here)
    assert answers(here), "each proof is judged by itself"


def test_a_silent_server_that_a_teardown_emptied_has_no_datastore(world: Worlds) -> None:
    """Its image may be written just now. The cluster begins only when all servers answer."""
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    here.machine("n1").poweroff()
    here.clock.elapsed += 60.0
    assert not answers(here)
    here.ledger.note_silences([("n1", NO_CLUSTER, True)], here.clock.now())
    assert answers(here)
    assert not here.run(is_unborn(here.fabric.servers(), here.clock))  # type: ignore[attr-defined]
    here.clock.elapsed += 86400.0
    assert not answers(here), "somebody else may have put K3s on it"


def test_one_that_an_earlier_version_began_is_mended_with_its_next_restart(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    here.machine("n0").disk().files[JOIN] = BEGINS
    declare(here, spec(registries={"docker.io": ["https://mirror.example"]}))
    converged(here)
    begins_nothing(here)


def test_without_that_it_would_begin_one(world: Worlds) -> None:
    """The lab does as K3s would, with `cluster-init` and without anything."""
    for text in (BEGINS, 'node-name: "n0"\n'):
        here = k3s_world(world, spec(), nodes=4)
        here.adopt()
        here.machine("n0").disk().files[JOIN] = text
        starts_without_its_datastore(here, "n0")
        assert site(here).begun == 2


def test_a_restored_server_begins_none_either(world: Worlds) -> None:
    here, snapshot = saved(world)
    restored(here, snapshot)
    files = here.machine("n1").disk().files
    assert "cluster-init" not in files[JOIN]
    assert files[TOKEN] == files[SERVER_TOKEN]
    whole(here)
    begins_nothing(here, "n1")


@pytest.mark.parametrize(("name", "unit", "waits"), [("n0", "k3s", True), ("n3", "k3s-agent", False)])
def test_a_server_waits_for_the_mounts_of_its_datastore(world: Worlds, name: str, unit: str, waits: bool) -> None:
    here = k3s_world(world, spec(), nodes=4)
    wanted = here.fleet.nodes[name].profile.k3s
    assert wanted is not None
    text = wanted.files[f"{UNIT_FILES}/{unit}.service"]
    assert (f"RequiresMountsFor={DATASTORE}\n\n[Install]" in text) == waits
    assert "After=network-online.target\n" in text
    assert CONFIG in wanted.files


@pytest.mark.parametrize("database", [False, True])
def test_a_member_whose_disk_is_not_mounted_stays_one_and_goes_on_once_it_is(world: Worlds, database: bool) -> None:
    """It would be taken out of etcd and could not start; what is on its disk could then never join again."""
    here = k3s_world(world, external() if database else spec(), nodes=4)
    here.adopt()
    machine, servers = here.machine("n1"), tuple(here.fabric.servers())  # type: ignore[attr-defined]
    machine.service_set("k3s", active=False)
    files = machine.disk().files
    files["/etc/fstab"] = "# of the image\nUUID=1 / ext4 defaults 0 1\nUUID=2 /var/lib/rancher xfs defaults 0 2\n"
    site(here).unmounted["n1"] = "/var/lib/rancher"
    away = {path: files.pop(path) for path in [*files] if path.startswith("/var/lib/rancher/")}
    outcome = here.act("join", "n1", servers=servers)
    assert isinstance(outcome, Declined)
    assert "/var/lib/rancher is in /etc/fstab and is not mounted" in outcome.detail
    assert site(here).known("n1"), "its node object stays, and with it its member"
    assert sorted(site(here).members) == ["n0", "n1", "n2"]
    del site(here).unmounted["n1"]
    files |= away
    assert isinstance(here.act("join", "n1", servers=servers), Done)
    assert (site(here).begun, sorted(site(here).members)) == (1, ["n0", "n1", "n2"])
