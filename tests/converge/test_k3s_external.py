"""A K3s cluster whose state is in a database: no quorum of etcd, no snapshots, and one token of all servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.k3s_commands import WantedSnapshot, wanted_snapshot
from reconciler.converge.k3s_teardown import TeardownRequest, tear_down
from reconciler.lab.hardware.k3s_site import option
from reconciler.lab.inprocess import LabFabric
from reconciler.model.errors import Refused, UsageError
from reconciler.model.k3s import CONFIG, DATASTORE, JOIN, SECRETS, SERVER_TOKEN
from reconciler.model.k3s_datastore import DATABASE_LINE
from reconciler.model.outcome import Permanent
from tests.converge.k3s_world import NEW, OLD, declare, k3s_world, site, spec
from tests.converge.test_k3s import NOT_THERE, converged, lose, overlapping
from tests.converge.world import World

Worlds = Callable[..., World]
SERVERS = ("n0", "n1")
SERVER = "db.example:5432"
DATABASE = {"server": SERVER, "endpoint": "database", "token": "k3s-token"}


def external(version: str = OLD, **changes: Any) -> Any:
    return spec(version, **{"datastore": "external", "database": DATABASE, **changes})


def saved(version: str) -> Any:
    return external(version, database={**DATABASE, "savedBefore": version})


def there(world: Worlds, **changes: Any) -> World:
    here = k3s_world(world, external(), servers=SERVERS, nodes=4, **changes)
    here.adopt()
    return here


def test_two_servers_begin_one_cluster_in_the_database(world: Worlds) -> None:
    here = k3s_world(world, external(bootstrap=True), servers=SERVERS, nodes=4, drift=NOT_THERE)
    converged(here)
    shared = site(here)
    assert (shared.begun, sorted(shared.members), len(shared.databases)) == (1, list(SERVERS), 1)
    assert shared.issued == 2  # for the agents
    assert overlapping(here.events, dict.fromkeys(SERVERS)) == []
    for name in SERVERS:
        disk = here.machine(name).disk()
        assert DATASTORE not in disk.files
        assert "cluster-init" not in disk.files[JOIN]
        assert option(disk, "datastore-endpoint") == f"secret database of {SERVER}"
        assert "secret database of" not in disk.files[CONFIG], "only root's file has the value"
    assert all(SECRETS not in here.machine(name).disk().files for name in ("n2", "n3"))
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_nothing_begins_without_consent(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=SERVERS, nodes=4, drift=NOT_THERE)
    here.apply()
    assert site(here).begun == 0


def test_one_of_two_servers_may_be_away_for_an_upgrade_and_no_snapshot_is_asked_for(world: Worlds) -> None:
    """With etcd, two members allow no one to go."""
    here = there(world)
    declare(here, external(NEW), SERVERS)
    report = here.apply(wait_s=0.0)
    for name in SERVERS:
        assert f"savedBefore: {NEW}" in report.results[name].detail, "nobody said that the database is saved"
        assert here.did(name) == []
    assert "not_saved" in str(here.act("install_k3s", "n0"))
    declare(here, saved(NEW), SERVERS)
    converged(here)
    assert site(here).snapshots == []
    assert site(here).begun == 1
    assert overlapping(here.events, dict.fromkeys(SERVERS)) == []
    assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {NEW}  # type: ignore[union-attr]


def test_the_last_server_that_is_ready_stays(world: Worlds) -> None:
    here = there(world, faults={"n1": {"kubelet_not_ready": {}}})
    declare(here, saved(NEW), SERVERS)
    report = here.apply(wait_s=0.0)
    assert "install_k3s" not in here.did("n0")
    assert "no other server is Ready" in report.results["n0"].detail, report.results["n0"]


def test_a_lost_server_comes_back_to_the_same_cluster(world: Worlds) -> None:
    here = there(world)
    lose(here, "n1")
    converged(here)
    assert (site(here).begun, sorted(site(here).members)) == (1, list(SERVERS))


def test_another_secret_is_written_and_servers_restart_one_by_one(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is known by its name alone: agents are not touched, and no digest of it is read or kept."""
    monkeypatch.setattr(LabFabric, "host_secret", lambda *_: f"postgres://k3s:word@{SERVER}/k3s")
    here = k3s_world(world, external(bootstrap=True), servers=SERVERS, nodes=4, drift=NOT_THERE)
    converged(here)
    here.events.clear()
    declare(here, external(database={**DATABASE, "endpoint": "database-2027"}), SERVERS)
    for name in SERVERS:
        old = f'datastore-endpoint: "postgres://k3s:old@{SERVER}/k3s"'
        here.machine(name).disk().files[SECRETS] = f"{DATABASE_LINE}{SERVER}\n{old}\n"
    converged(here)
    assert [name for name in here.fleet.nodes if "configure_k3s" in here.did(name)] == list(SERVERS)
    for name in SERVERS:
        written = here.machine(name).disk().files[SECRETS]
        assert json.loads(written.partition("endpoint: ")[2]) == f"postgres://k3s:word@{SERVER}/k3s"
    assert site(here).begun == 1
    assert "word@" not in repr(here.observe())
    assert "word@" not in repr(here.plan())


@pytest.mark.parametrize("other", ["elsewhere:5432", f"my{SERVER}", f"{SERVER}0", f"my-{SERVER}", f"a.{SERVER}"])
def test_a_secret_of_another_server_is_not_written(world: Worlds, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    monkeypatch.setattr(LabFabric, "host_secret", lambda *_: f"postgres://k3s:word@{other}/k3s")
    here = there(world)
    outcome = here.act("configure_k3s", "n1")
    assert isinstance(outcome, Permanent)
    assert f"does not name {SERVER}" in outcome.detail
    assert "word" not in outcome.detail


@pytest.mark.parametrize("to_database", [True, False])
def test_the_state_is_never_left_behind(world: Worlds, to_database: bool) -> None:
    """K3s would begin an empty cluster; it is said in the plan, and nobody is drained."""
    before, after = (spec(), external()) if to_database else (external(), spec())
    here = k3s_world(world, before, nodes=4)
    here.adopt()
    declare(here, after)
    report = here.apply(wait_s=0.0)
    assert "would begin an empty cluster" in report.results["n0"].detail, report.results["n0"]
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert not [name for name in ("n0", "n1", "n2") if "drain" in here.did(name)]
    assert "other_datastore" in str(here.act("configure_k3s", "n1"))
    assert site(here).begun == 1


def test_a_teardown_says_which_database_it_left(world: Worlds) -> None:
    here = there(world)
    request = TeardownRequest(here.fleet, "main", "test")
    done = here.run(tear_down(request, fabric=here.fabric, ledger=here.ledger, clock=here.clock))
    assert done.database == SERVER
    assert not [path for name in SERVERS for path in here.machine(name).disk().files if path in (SECRETS, SERVER_TOKEN)]
    assert [one.token for one in site(here).databases.values()] != [""]


def test_a_restore_of_etcd_is_refused_with_the_way_to_go(world: Worlds) -> None:
    workspace: Any = SimpleNamespace(fleet=there(world).fleet)
    with pytest.raises(Refused, match=f"the database at {SERVER}, and not in etcd"):
        wanted_snapshot(workspace, "good", "", stored=False)


def test_only_a_name_in_a_store_of_the_spec_is_fetched(world: Worlds) -> None:
    store = {"server": "s3.example:9000", "bucket": "k3s", "folder": "main", "accessKey": "a", "secretKey": "b"}
    kept: Any = SimpleNamespace(fleet=k3s_world(world, spec(snapshots={"s3": store}), nodes=4).fleet)
    assert wanted_snapshot(kept, "good", "n1", stored=True) == WantedSnapshot("good", "n1", "k3s/main")
    with pytest.raises(UsageError, match="is no name of a snapshot"):
        wanted_snapshot(kept, "/root/good", "", stored=True)
    plain: Any = SimpleNamespace(fleet=k3s_world(world, spec(), nodes=4).fleet)
    with pytest.raises(UsageError, match="the spec names no"):
        wanted_snapshot(plain, "good", "", stored=True)
