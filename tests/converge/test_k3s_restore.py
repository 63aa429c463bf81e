"""A K3s cluster restored from a snapshot: one server has it, the others give up theirs, and no old cluster revives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.k3s_hosts import k3s_hosts
from reconciler.converge.k3s_restore import Found, WantedSnapshot, look
from reconciler.converge.k3s_restore_run import HOLDER, RestoreBroke, Restored, RestoreRequest, restore
from reconciler.lab.inprocess.host import MachineHost
from reconciler.lab.k3s import remove
from reconciler.model.errors import LeaseHeld, Refused, UsageError
from reconciler.model.k3s import BINARY, DATASTORE, DB, RESTORE, SERVER_TOKEN, SNAPSHOTS
from reconciler.model.records import FLEET
from reconciler.spec.kinds.k3s import K3s
from tests.converge.k3s_world import SERVERS, k3s_world, site, spec
from tests.converge.test_k3s_killed import Killed, killed_at
from tests.converge.world import World

Worlds = Callable[..., World]


def saved(world: Worlds, k3s: K3s | None = None, **changes: Any) -> tuple[World, str]:
    """Return a cluster of three servers and two agents, and the name of a snapshot that n1 has."""
    here = k3s_world(world, k3s or spec(), nodes=5, **changes)
    here.adopt()
    result = here.run(host(here, "n1").run((BINARY, "etcd-snapshot", "save", "--name", "good"), timeout=60))
    name = result.stdout.split()[1]
    assert here.lab.cluster is not None
    here.lab.cluster.remove_node("n4")  # an agent that is in the snapshot alone
    return here, name


def host(here: World, name: str) -> MachineHost:
    found = here.fabric.host(here.fleet.nodes[name])
    assert isinstance(found, MachineHost)
    return found


def restored(here: World, snapshot: str, server: str = "", bucket: str = "") -> Restored:
    wanted = RestoreRequest(here.fleet, "main", WantedSnapshot(snapshot, server, bucket), "test")
    return here.run(restore(wanted, fabric=here.fabric, ledger=here.ledger, clock=here.clock))


def looked(here: World, snapshot: str, server: str = "") -> Found:
    servers = k3s_hosts(here.fleet, SERVERS, here.fabric, here.clock, None)
    return here.run(look(servers, WantedSnapshot(snapshot, server)))


def whole(here: World) -> None:
    """The restored cluster has all its servers again, by an ordinary run, and nothing of the old one ever ran."""
    ended(here)
    shared = site(here)
    report = here.apply(wait_s=36000.0)
    assert {one.state.value for one in report.results.values()} <= {"done", "converged"}, report.results
    assert sorted(shared.members) == list(SERVERS)
    assert all(here.serves(name) for name in here.fleet.nodes)
    ended(here)


def ended(here: World) -> None:
    """One restored server, or more; what it wrote was never taken away again, and nothing is left of the restore."""
    shared = site(here)
    assert (shared.begun, shared.undone, shared.revived) == (1, 0, [])
    assert shared.restores
    assert "n1" in shared.members
    assert not here.ledger.holds()
    assert not any(RESTORE in here.machine(name).disk().files for name in here.fleet.nodes)


def test_one_server_has_the_snapshot_and_the_others_join_it_anew(world: Worlds) -> None:
    here, snapshot = saved(world)
    assert looked(here, snapshot).server == "n1"
    done = restored(here, snapshot)
    assert (done.server, done.path, done.stays_stopped) == ("n1", f"{SNAPSHOTS}/{snapshot}", False)
    assert site(here).members == ["n1"]
    assert sorted(done.kept) == ["n0", "n2"]
    for name, path in done.kept.items():  # what was there is kept, and said
        files = here.machine(name).disk().files
        assert f"{path}/etcd" in files
        assert DATASTORE not in files
    assert here.lab.cluster is not None
    assert "n4" in {node.name for node in here.lab.cluster.nodes()}  # as it was in the snapshot
    whole(here)


def test_a_restore_that_is_killed_at_any_command_goes_on() -> None:
    """Killed before each of its commands in turn, and once more while it goes on; the third one ends."""
    at = 1
    while survives_death_at(at):
        at += 1
    assert at > 40  # it has so many commands


def survives_death_at(command: int) -> bool:
    """Return whether it came so far; otherwise it ended before."""
    with tempfile.TemporaryDirectory() as folder:
        here, snapshot = saved(lambda **given: World(Path(folder), **given))
        began = {name: here.machine(name).disk().files[DATASTORE] for name in SERVERS}
        came_so_far = died(here, snapshot, command)
        shared = site(here)
        lost = [name for name in SERVERS if not at_rest(here, name, began[name]) and name not in shared.members]
        assert not lost, f"killed at command {command}: {lost} have neither the old datastore nor the new"
        if came_so_far:
            died(here, snapshot, 1 + command % 7)
            restored(here, snapshot)
        ended(here)
        if command % 5 == 0:
            whole(here)
        here.ledger.close()
    return came_so_far


def at_rest(here: World, name: str, datastore: str) -> list[str]:
    files = here.machine(name).disk().files
    return [path for path, text in files.items() if path.startswith(DB) and text == datastore]


def died(here: World, snapshot: str, command: int) -> bool:
    with killed_at(command):
        try:
            restored(here, snapshot)
        except Killed:
            return True
    return False


def test_nothing_else_is_done_while_a_restore_has_not_ended(world: Worlds) -> None:
    here, snapshot = saved(world)
    assert died(here, snapshot, 40)
    with pytest.raises(Refused, match="cluster main is restored"):
        here.apply()
    other = f"{SNAPSHOTS}/other"
    here.machine("n0").disk().files[other] = "another snapshot"
    with pytest.raises(Refused, match="did not end: end it first"):
        restored(here, other)
    assert restored(here, snapshot).server == "n1"
    whole(here)


def test_a_server_that_is_silent_and_not_off_is_never_left_to_its_old_datastore(world: Worlds) -> None:
    here, snapshot = saved(world, faults={"n2": {"ssh_refused": {}}})
    with pytest.raises(Refused, match="n2 does not answer"):
        restored(here, snapshot)
    assert sorted(site(here).members) == list(SERVERS)
    assert not here.ledger.holds()


def test_a_server_that_is_off_stays_held_until_its_old_datastore_is_gone(world: Worlds) -> None:
    here, snapshot = saved(world)
    here.machine("n2").poweroff()
    here.clock.elapsed += 600.0
    done = restored(here, snapshot)
    assert done.held == ("n2",)
    here.apply(wait_s=3600.0)
    assert site(here).revived == []
    assert sorted(site(here).members) == ["n0", "n1"]
    (hold,) = here.ledger.holds()
    assert (hold.subject, hold.owner) == ("n2", HOLDER)
    assert "install it anew" in hold.reason


def test_a_snapshot_that_k3s_refuses_costs_no_server_its_datastore(world: Worlds) -> None:
    here, _ = saved(world)
    here.machine("n0").disk().files["/root/damaged"] = "no snapshot of this cluster"
    with pytest.raises(RestoreBroke, match="did not restore the snapshot"):
        restored(here, "/root/damaged")
    assert all(DATASTORE in here.machine(name).disk().files for name in SERVERS)
    assert site(here).restores == 0


@pytest.mark.parametrize(
    ("snapshot", "server", "error", "words"),
    [
        ("gone", "", UsageError, "is on none of n0, n1, n2"),
        ("/root/copy", "", UsageError, "is on n0 and n2: say which with --server"),
        ("/root/copy", "n3", UsageError, "--server n3"),
    ],
)
def test_a_snapshot_is_taken_from_one_server_that_has_it(
    world: Worlds, snapshot: str, server: str, error: type[Exception], words: str
) -> None:
    here, _ = saved(world)
    for name in ("n0", "n2"):
        here.machine(name).disk().files["/root/copy"] = "one snapshot, copied"
    with pytest.raises(error, match=words):
        looked(here, snapshot, server)
    assert looked(here, "/root/copy", "n2").server == "n2"


def test_a_snapshot_without_its_token_is_refused_before_anything_stops(world: Worlds) -> None:
    here, snapshot = saved(world)
    del here.machine("n1").disk().files[SERVER_TOKEN]
    with pytest.raises(Refused, match="server token"):
        restored(here, snapshot)
    assert sorted(site(here).members) == list(SERVERS)


def test_a_stop_of_people_comes_first_and_outlives_a_restore(world: Worlds) -> None:
    here, snapshot = saved(world)
    assert died(here, snapshot, 40)
    here.ledger.hold(FLEET, "a person looks", "alice", None, here.clock.now())
    with pytest.raises(Refused, match="stopped by alice"):
        restored(here, snapshot)


def test_a_restore_waits_for_whoever_leads_the_fleet(world: Worlds) -> None:
    here, snapshot = saved(world)
    here.ledger.acquire(here.fleet.settings.fleet, "a run", 3600.0, here.clock.now())
    with pytest.raises(LeaseHeld):
        restored(here, snapshot)
    assert sorted(site(here).members) == list(SERVERS)


def test_all_servers_but_one_have_lost_their_disks(world: Worlds) -> None:
    """The case that restores are for: etcd has no quorum any more, and two machines were installed anew."""
    here, snapshot = saved(world)
    for name in ("n0", "n2"):
        here.machine(name).service_set("k3s", active=False)
        remove(here.machine(name).disk())
    assert not site(here).healthy()
    site(here).fewest = 0
    assert restored(here, snapshot).kept == {}
    whole(here)


STORE = {"server": "s3.example:9000", "bucket": "k3s", "folder": "main", "accessKey": "key", "secretKey": "secret"}


def stored(world: Worlds) -> tuple[World, str]:
    """Return a cluster that copies its snapshots to an object store, where one is that no server has any more."""
    here, name = saved(world, spec(snapshots={"s3": STORE}))
    del here.machine("n1").disk().files[f"{SNAPSHOTS}/{name}"]
    return here, name


def test_a_snapshot_is_fetched_from_the_object_store(world: Worlds) -> None:
    here, name = stored(world)
    with pytest.raises(UsageError, match="is on none of"):
        restored(here, name)
    done = restored(here, name, "n1", "k3s/main")
    assert (done.server, done.path) == ("n1", f"s3://k3s/main/{name}")
    whole(here)


def test_a_name_that_the_store_does_not_have_costs_nothing_and_may_be_given_anew(world: Worlds) -> None:
    here, name = stored(world)
    with pytest.raises(RestoreBroke, match=r"did not restore the snapshot.*--snapshot gone --from-store"):
        restored(here, "gone", "n1", "k3s/main")
    assert all(DATASTORE in here.machine(server).disk().files for server in SERVERS)
    with pytest.raises(Refused, match="/root/other can't be read"):
        restored(here, "/root/other", "n1")
    restored(here, name, "n1", "k3s/main")
    whole(here)


def test_a_restore_from_the_store_that_dies_goes_on() -> None:
    for command in (14, 17, 20, 26, 32):
        with tempfile.TemporaryDirectory() as folder:
            here, name = stored(lambda **given: World(Path(folder), **given))
            with killed_at(command), pytest.raises(Killed):
                restored(here, name, "n1", "k3s/main")
            restored(here, name, "n1", "k3s/main")
            whole(here)
            here.ledger.close()


def test_a_snapshot_on_disk_is_restored_where_the_spec_names_a_store(world: Worlds) -> None:
    """K3s would look for it in the store."""
    here, name = saved(world, spec(snapshots={"s3": STORE}))
    site(here).bucket.clear()
    assert restored(here, name).server == "n1"
    whole(here)
