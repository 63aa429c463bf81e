"""A K3s server whose state is elsewhere than the spec says is left as it is: no second cluster begins beside one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reconciler.lab.hardware.k3s_site import Database
from reconciler.lab.inprocess import LabFabric
from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import CONFIG, DATA, DATASTORE, PASSWORD, SECRETS, TOKEN, UNIT_FILES
from reconciler.model.k3s_datastore import DATABASE_LINE, SQLITE
from reconciler.model.outcome import Declined, Done, Permanent
from tests.converge.k3s_world import OLD, declare, k3s_world, site, spec
from tests.converge.test_k3s import NOT_THERE, converged, lose
from tests.converge.test_k3s_external import DATABASE, SERVER, external
from tests.converge.world import World

Worlds = Callable[..., World]
ONE = ("n0",)
TWO = ("n0", "n1")
ENDPOINT = f"postgres://k3s:own@{SERVER}/k3s"


def told(here: World, node: str, why: str) -> None:
    """Apply, and see that a server is blocked for this reason, that nobody is drained, and that no cluster begins."""
    assert here.lab.cluster is not None
    before = dict(here.machine(node).disk().files)
    registered = [name for name in here.fleet.nodes if site(here).known(name)]
    serving = [name for name in registered if here.serves(name)]
    report = here.apply(wait_s=0.0)
    assert why in report.results[node].detail, report.results[node]
    assert report.results[node].state.value == "not_started"
    assert here.machine(node).disk().files == before
    assert [name for name in registered if here.serves(name)] == serving
    assert site(here).begun == 1


def test_a_server_with_a_new_disk_begins_no_second_cluster_beside_etcd(world: Worlds) -> None:
    """The spec has moved to a database, and nothing on the new disk tells of the etcd of the others."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    lose(here, "n1")
    declare(here, external(bootstrap=True))
    told(here, "n1", "server n0: its state is in etcd")
    assert here.did("n1") == []
    servers = here.fabric.servers()  # type: ignore[attr-defined]
    outcome = here.act("join", "n1", servers=tuple(servers))  # what the plan was made of may be over
    assert isinstance(outcome, Declined)
    assert "server n0 serves the cluster, and keeps its state elsewhere" in outcome.detail
    assert site(here).begun == 1
    assert sorted(site(here).members) == ["n0", "n1", "n2"], "n1 is a member of etcd that is away"


def test_nothing_is_begun_beside_sqlite(world: Worlds) -> None:
    """K3s without any option keeps its state in SQLite; it counts as a cluster, though it has no etcd."""
    new = {name: ["not_a_member"] for name in ("n1", "n2", "n3")}
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=new)
    here.adopt()
    disk = here.machine("n0").disk()
    disk.files[SQLITE] = disk.files.pop(DATASTORE)
    told(here, "n1", "server n0: its state is in SQLite")
    disk.files[CONFIG] += "debug: true\n"
    told(here, "n0", "K3s moves it to etcd when it is started once with `cluster-init: true`")
    assert not [name for name in new if DATASTORE in here.machine(name).disk().files]


FOREIGN = (
    (CONFIG, f"datastore-endpoint: {ENDPOINT}\n"),
    (f"{CONFIG}.d/10-own.yaml", f'"datastore-endpoint": "{ENDPOINT}"\n'),
    (f"{UNIT_FILES}/k3s.service.env", f"K3S_DATASTORE_ENDPOINT='{ENDPOINT}'\n"),
    (f"{UNIT_FILES}/k3s.service.d/10-own.conf", f"[Service]\nEnvironment=K3S_DATASTORE_ENDPOINT={ENDPOINT}\n"),
    ("/etc/default/k3s", f"K3S_DATASTORE_ENDPOINT={ENDPOINT}\n"),
)


@pytest.mark.parametrize("wants_database", [True, False])
@pytest.mark.parametrize(("path", "text"), FOREIGN)
def test_an_endpoint_that_is_not_ours_is_never_overwritten(
    world: Worlds, path: str, text: str, wants_database: bool
) -> None:
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    for name in TWO:
        files = here.machine(name).disk().files
        del files[SECRETS]
        files[path] = files.get(path, "") + text
    if not wants_database:
        declare(here, spec(), TWO)
    told(here, "n0", f"set in {path}" if wants_database else "its state is in a database")
    outcome = here.act("configure_k3s", "n1")
    assert isinstance(outcome, Declined)
    assert "own@" not in repr((here.observe(), here.plan(), outcome)), "and nobody reads what is in it"
    assert here.machine("n0").disk().files[path].endswith(text)


def test_an_adopted_server_goes_on_once_its_endpoint_is_where_ours_is(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the block says to do: the line moves to our file, and what differs there is the word alone."""
    monkeypatch.setattr(LabFabric, "host_secret", lambda *_: f"postgres://k3s:word@{SERVER}/k3s?sslmode=require")
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    site(here).databases[f"{SERVER}/k3s"] = site(here).databases.pop(SERVER)
    for name in TWO:
        here.machine(name).disk().files[SECRETS] = f"datastore-endpoint: {ENDPOINT}\n"
    converged(here)
    for name in TWO:
        assert here.machine(name).disk().files[SECRETS].startswith(f"{DATABASE_LINE}{SERVER}\n")
        assert "own" not in here.machine(name).disk().files[SECRETS]
    assert site(here).begun == 1


def test_another_database_is_not_taken_for_this_one(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    declare(here, external(database={**DATABASE, "server": "new.example:5432"}), TWO)
    told(here, "n0", f"its state is in the database at {SERVER}, and the spec says new.example:5432")


def test_a_database_of_another_name_on_the_same_server_is_not_taken_for_this_one(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabFabric, "host_secret", lambda *_: f"postgres://k3s:word@{SERVER}/k3s2?sslmode=require")
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    kept = here.machine("n0").disk().files[SECRETS] = f"{DATABASE_LINE}{SERVER}\ndatastore-endpoint: {ENDPOINT}\n"
    outcome = here.act("configure_k3s", "n0")
    assert isinstance(outcome, Declined)
    assert f"{SECRETS} names another database than secret database" in outcome.detail
    assert here.machine("n0").disk().files[SECRETS] == kept


def test_data_in_another_folder_is_not_left_behind(world: Worlds) -> None:
    """K3s would begin an empty cluster of SQLite in the folder of its own, with etcd as with a database."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    here.machine("n1").disk().files[CONFIG] += f"data-dir: {DATA}-own\n"
    told(here, "n1", f"`data-dir` in {CONFIG}")


def test_keys_without_a_datastore_begin_nothing(world: Worlds) -> None:
    """So a server is whose etcd was put away for a restore, before the spec moved to a database."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    here.machine("n1").disk().files.pop(DATASTORE)
    declare(here, external())
    for action in ("configure_k3s", "install_k3s"):
        outcome = here.act(action, "n1")
        assert "other_datastore" in str(outcome), (action, outcome)
    assert site(here).begun == 1


def test_the_only_server_comes_back_from_a_new_disk(world: Worlds) -> None:
    """The database still has the password of its node, and no other server could delete it."""
    here = k3s_world(world, external(bootstrap=True, allowDowntime=True), servers=ONE, nodes=3)
    here.adopt()
    lose(here, "n0")
    converged(here)
    assert (site(here).begun, site(here).members) == (1, ["n0"])
    assert here.machine("n0").disk().files[PASSWORD] == site(here).passwords["n0"]


def test_a_run_that_died_before_the_password_was_forgotten_is_gone_on_with(world: Worlds) -> None:
    here = k3s_world(world, external(bootstrap=True, allowDowntime=True), servers=ONE, nodes=3)
    here.adopt()
    lose(here, "n0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.converge.actions.k3s_join._forget_password", _dies)
        with pytest.raises(BaseException, match="killed"):
            here.apply(wait_s=0.0)
    here.clock.elapsed += 61.0
    converged(here)
    assert site(here).begun == 1


async def _dies(*_: Any) -> None:
    raise KeyboardInterrupt("killed")


def test_the_token_of_another_cluster_is_told_and_not_tried_for_ever(world: Worlds) -> None:
    here = k3s_world(world, external(bootstrap=True), servers=TWO, nodes=3, drift=NOT_THERE)
    theirs = "a token of before\n"
    site(here).databases[SERVER] = Database(theirs)
    report = here.apply(wait_s=36000.0)
    detail = report.results["n0"].detail
    assert f"the database at {SERVER} holds a cluster that was begun with another token" in detail, detail
    assert "under the name k3s-token" in detail
    assert theirs.strip() not in repr(report)
    assert len(site(here).refused) <= 3, "and not for ever"
    disk, active = here.machine("n0").disk(), here.machine("n0").system().services_active
    assert (disk.services["k3s"], active["k3s"]) == (False, False), "nor by systemd, which would go on"
    assert (site(here).begun, site(here).databases[SERVER].token) == (0, theirs)
    assert here.did("n1") == [] or "join" not in here.did("n1")
    site(here).databases[SERVER] = Database(f"secret k3s-token of {SERVER}\n")  # as when the right token is declared
    site(here).refused.clear()
    here.clock.elapsed += 86400.0
    converged(here)
    assert site(here).begun == 0, "it went on with the cluster in the database"


def test_a_database_that_was_exchanged_for_another_clusters_is_told_when_a_server_restarts(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    site(here).databases[SERVER] = Database("a token of before\n")
    here.machine("n1").disk().files[CONFIG] += "debug: true\n"
    outcome = here.act("configure_k3s", "n1")
    assert isinstance(outcome, Permanent)
    assert "begun with another token" in outcome.detail
    assert not here.machine("n1").system().services_active["k3s"]
    assert here.machine("n0").system().services_active["k3s"], "the others run on, with what they know"


def test_a_server_that_was_refused_starts_with_the_token_that_the_secret_has_since(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the message says to go on, and the server has begun: nothing else writes its token anew."""
    theirs = "a token of before"
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    site(here).databases[SERVER] = Database(f"{theirs}\n")
    here.machine("n1").disk().files[CONFIG] += "debug: true\n"
    assert isinstance(here.act("configure_k3s", "n1"), Permanent)
    right = f"secret database of {SERVER}"
    monkeypatch.setattr(LabFabric, "host_secret", lambda _, name, *__: theirs if name == "k3s-token" else right)
    servers = tuple(here.fabric.servers())  # type: ignore[attr-defined]
    assert isinstance(here.act("join", "n1", servers=servers), Done)
    assert here.machine("n1").system().services_active["k3s"]


@pytest.mark.parametrize("wants_database", [True, False])
def test_a_wrong_database_that_no_server_ever_began_in_is_simply_declared_anew(
    world: Worlds, wants_database: bool
) -> None:
    """The files of a server are written before its first start, and a typo in them blocks nothing."""
    wanted = external(bootstrap=True) if wants_database else spec(bootstrap=True)
    here = k3s_world(world, wanted, servers=TWO, nodes=3, drift=NOT_THERE)
    for name in TWO:
        typo = "datastore-endpoint: postgres://k3s:word@tpyo.example:5432/k3s"
        here.machine(name).disk().files[SECRETS] = f"{DATABASE_LINE}tpyo.example:5432\n{typo}\n"
    converged(here)
    assert site(here).begun == 1
    for name in TWO:
        assert "tpyo" not in here.machine(name).disk().files.get(SECRETS, "")


def test_no_password_of_the_database_gets_out(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into no argument, which every user of the host sees, no journal, no report, and no file that others may read."""
    word, ran = "s3cret-word", []
    run = MachineHost.run

    async def noting(self: MachineHost, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        result = await run(self, argv, timeout=timeout, stdin=stdin)
        ran.append((tuple(argv), stdin, result.stdout + result.stderr))
        return result

    monkeypatch.setattr(MachineHost, "run", noting)
    monkeypatch.setattr(LabFabric, "host_secret", lambda *_: f"postgres://k3s:{word}@{SERVER}/k3s")
    here = k3s_world(world, external(bootstrap=True), servers=TWO, nodes=3, drift=NOT_THERE)
    converged(here)
    assert [argv for argv, _, out in ran if word in repr(argv) or word in out] == []
    writes = [argv for argv, stdin, _ in ran if word in stdin]
    assert writes
    assert {argv[:4] for argv in writes} == {("install", "-m", "600", "/dev/stdin")}
    assert {argv[4] for argv in writes} == {f"{SECRETS}.new", f"{TOKEN}.new"}
    kept = (here.events, here.observe(), here.plan(), [here.ledger.node(name) for name in here.fleet.nodes])
    assert word not in repr(kept)
    for path in here.where.glob("ledger.sqlite*"):
        assert word.encode() not in path.read_bytes(), path
    assert OLD in here.machine("n0").disk().files["/usr/local/bin/k3s"]
