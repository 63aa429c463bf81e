"""Data of a node is saved before its disk is written, and back before it serves: killed anywhere, never lost."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.lab.hardware.cluster_objects import NodeObject
from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.backup import DesiredBackup, Saved, read_saved
from reconciler.model.container_images import HOME, RELOAD
from reconciler.model.desired import Desired, DesiredImage
from reconciler.model.errors import UsageError
from reconciler.model.gate import CommandResult, Verdict
from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.vocab import Provision
from tests.converge.k3s_world import BASE, k3s_world, spec
from tests.converge.test_k3s_killed import Killed, killed_at, surviving
from tests.converge.world import IMAGE, PROFILE, SIGNATURES, QuickGate, World

Worlds = Callable[..., World]
DATA = {"/srv/models/a": "weights", "/srv/models/b/c": "more weights"}
BACKUP = DesiredBackup(("/srv/models",), "rest:https://backup.example/", {"RESTIC_PASSWORD": "restic"})
NEW: DesiredImage = replace(IMAGE, version="2026.12.0", sha256="5" * 64)


def saving(world: Worlds, **changes: Any) -> World:
    """A fleet of two whose persona declares a backup, and both have data."""
    profile = replace(PROFILE, backup=BACKUP)
    here = world(nodes=2, profile=profile, signatures={**SIGNATURES, (NEW.name, NEW.version): True}, **changes)
    here.adopt()
    for name in here.fleet.nodes:
        here.machine(name).disk().files |= DATA
    return here


def each(here: World, change: Callable[[Desired], Desired], *names: str) -> None:
    """Change the spec of these nodes; without names, of all."""
    nodes = {name: change(one) if not names or name in names else one for name, one in here.fleet.nodes.items()}
    here.fleet = replace(here.fleet, nodes=nodes)


def to_new_image(here: World, *names: str) -> None:
    each(here, lambda node: replace(node, profile=replace(node.profile, image=NEW, digest="new")), *names)


def declare(here: World, backup: DesiredBackup | None) -> None:
    each(here, lambda node: replace(node, profile=replace(node.profile, backup=backup)))


def has_data(here: World, name: str) -> bool:
    return DATA.items() <= here.machine(name).disk().files.items()


def saved_whole(here: World, name: str) -> bool:
    """Whether the repository holds all of it."""
    snapshots = here.machine(name).state.repositories.get(BACKUP.repository, {})
    return any(DATA.items() <= files.items() for files in snapshots.values())


def installs(here: World) -> int:
    return here.machine("n0").state.counters.installs


def test_data_is_saved_before_the_wipe_and_back_before_the_gate(world: Worlds) -> None:
    here = saving(world)
    to_new_image(here, "n0")
    here.apply(wait_s=36000.0)
    did = here.did("n0")
    order = [did.index(action) for action in ("drain", "back_up", "reimage", "restore_backup", "run_gate", "admit")]
    assert order == sorted(order), did
    assert (has_data(here, "n0"), here.serves("n0")) == (True, True)
    assert here.machine("n0").disk().version == NEW.version
    assert "back_up" not in here.did("n1")
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_nothing_is_wiped_that_could_not_be_saved(world: Worlds) -> None:
    """A data disk is not mounted: the node stays out, as it is, and the report says why."""
    here = saving(world)
    for path in DATA:
        del here.machine("n0").disk().files[path]
    to_new_image(here, "n0")
    report = here.apply(wait_s=36000.0)
    assert installs(here) == 0
    assert "/srv/models is not there: mount it" in report.results["n0"].detail


def test_a_host_that_is_down_is_not_wiped(world: Worlds) -> None:
    here = saving(world, faults={"n0": {"ssh_refused": {}, "kubelet_not_ready": {}}})
    to_new_image(here, "n0")
    here.apply(wait_s=36000.0)
    assert installs(here) == 0
    assert has_data(here, "n0")


def test_what_the_repository_changed_is_not_restored(world: Worlds) -> None:
    here = saving(world)
    to_new_image(here, "n0")
    here.act("back_up", "n0")
    here.act("reimage", "n0")
    for files in here.machine("n0").state.repositories[BACKUP.repository].values():
        files["/srv/models/a"] = "damaged"
    outcome = here.act("restore_backup", "n0")
    assert isinstance(outcome, Permanent)
    assert "no longer holds what was saved" in outcome.detail
    assert not here.serves("n0")


@pytest.mark.parametrize(
    "changed",
    [
        replace(BACKUP, paths=("/srv/models/b",)),
        replace(BACKUP, paths=("/srv/models", "/srv/more")),
        replace(BACKUP, repository="rest:https://other.example/"),
    ],
    ids=["fewer paths", "more paths", "another repository"],
)
def test_a_backup_that_the_spec_changed_meanwhile_is_named(world: Worlds, changed: DesiredBackup) -> None:
    here = saving(world)
    to_new_image(here, "n0")
    here.act("back_up", "n0")
    here.act("reimage", "n0")
    declare(here, changed)
    outcome = here.act("restore_backup", "n0")
    assert isinstance(outcome, Permanent)
    assert "was saved under another `backup` of the spec; put that back until it is restored" in outcome.detail
    declare(here, BACKUP)
    assert isinstance(here.act("restore_backup", "n0"), Done)
    assert has_data(here, "n0")


def test_nothing_is_put_over_what_a_node_wrote_while_it_served(world: Worlds) -> None:
    """Somebody took our mark away before its data was back."""
    here = saving(world)
    to_new_image(here, "n0")
    for name in ("mark", "drain", "back_up", "reimage", "configure_host", "join"):
        here.act(name, "n0")
    assert here.lab.cluster is not None
    here.lab.cluster.update_node("n0", unschedulable=False, taints=[], annotations={})
    here.machine("n0").disk().files["/srv/models/a"] = "written by jobs since"
    report = here.apply(wait_s=36000.0)
    assert here.machine("n0").disk().files["/srv/models/a"] == "written by jobs since"
    assert "it served without what was saved before its disk was written" in report.results["n0"].detail


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_machine_that_is_blank_by_the_spec_has_nothing_to_save(world: Worlds, verdict: Verdict) -> None:
    """Nor has it after an installation by which it has not come into service."""
    here = world(
        nodes=1, profile=replace(PROFILE, backup=BACKUP), drift={"n0": ["blank"]},
        node={"provision": Provision.BLANK}, gate=QuickGate(n0=verdict),
    )  # fmt: skip
    here.apply(wait_s=36000.0)
    assert installs(here) == 1
    assert here.serves("n0") == (verdict is Verdict.PASS)


def test_both_actions_on_a_node_as_it_is(world: Worlds) -> None:
    here = saving(world)
    assert here.act("restore_backup", "n0") == Done("nothing waits to be restored", changed=False)
    done = here.act("back_up", "n0")
    assert isinstance(done, Done)
    saved = read_saved(done.detail)
    assert saved is not None
    assert (saved.files, saved.declared) == (2, BACKUP.digest)
    assert read_saved(str(saved)) == saved
    assert read_saved(str(replace(saved, declared=""))) == Saved(saved.snapshot, 2, saved.manifest)
    other = here.act("back_up", "n0", secret=lambda *_: "another")
    assert other == Transient("not saved: Fatal: wrong password or no key found", 60.0)
    declare(here, None)
    assert isinstance(here.act("back_up", "n0"), Declined)
    assert isinstance(here.act("restore_backup", "n0"), Declined)


def test_secrets_are_on_stdin_alone(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = saving(world)
    heard: list[tuple[str, str]] = []
    run = MachineHost.run

    async def listening(self: Any, argv: Any, *, timeout: float, stdin: str = "") -> Any:
        heard.append((" ".join(argv), stdin))
        return await run(self, argv, timeout=timeout, stdin=stdin)

    monkeypatch.setattr(MachineHost, "run", listening)
    here.act("back_up", "n0", secret=lambda *_: "hunter2-hunter2")
    [(argv, stdin)] = [one for one in heard if one[1]]
    assert stdin == "RESTIC_PASSWORD=hunter2-hunter2\n"
    assert "hunter2" not in argv
    attempts = [one.detail for one in here.ledger.node("n0").attempts]
    assert not any("hunter2" in one for one in attempts)


def test_a_secret_that_cant_be_had_stops_before_the_wipe(world: Worlds) -> None:
    here = saving(world)

    def refused(name: str, server: str | None) -> str:
        raise UsageError(f"{name} may not be sent to {server}")

    told = here.act("back_up", "n0", secret=refused)
    assert told == Transient("RESTIC_PASSWORD of the backup: restic may not be sent to backup.example", 60.0)
    two = here.act("back_up", "n0", secret=lambda *_: "a\nLD_PRELOAD=/tmp/x")
    assert two == Transient("RESTIC_PASSWORD of the backup: secret restic has more than one line", 60.0)


def test_words_of_the_repository_are_kept_without_secrets(world: Worlds) -> None:
    here = saving(world)
    here.act("back_up", "n0", secret=lambda *_: "first")
    outcome = here.act("back_up", "n0", secret=lambda *_: "x", conceal=lambda text: text.replace("password", "***"))
    assert outcome == Transient("not saved: Fatal: wrong *** or no key found", 60.0)


@pytest.mark.parametrize(
    ("repository", "server"),
    [
        ("rest:https://backup.example:8000/fleet/", "backup.example:8000"),
        ("rest:https://me@backup.example/", "backup.example"),
        ("s3:https://s3.example.com/bucket", "s3.example.com"),
        ("sftp:me@10.0.0.1:/srv/restic", "10.0.0.1"),
        ("sftp://me@[fd00::1]:2222//srv", "[fd00::1]:2222"),
        ("/mnt/backup", None),
    ],
)
def test_the_server_that_a_secret_is_used_at(repository: str, server: str | None) -> None:
    assert replace(BACKUP, repository=repository).server == server


def test_a_runner_that_is_killed_at_any_command_loses_nothing() -> None:
    for command in range(1, 30, 2):
        with tempfile.TemporaryDirectory() as folder:
            here = saving(lambda _folder=folder, **given: World(Path(_folder), **given))
            to_new_image(here, "n0")
            for at in (command, 3):
                with killed_at(at), surviving():
                    here.apply(wait_s=36000.0)
                assert has_data(here, "n0") or saved_whole(here, "n0"), f"killed at command {command}"
                assert has_data(here, "n0") or not here.serves("n0")
            here.apply(wait_s=36000.0)
            assert (has_data(here, "n0"), here.serves("n0")) == (True, True), f"killed at command {command}"
            assert installs(here) == 1
            here.ledger.close()


LOST = "tail: error writing: No space left on device"
ENGINE = "docker.io/vllm/vllm-openai:v0.11.0"


def test_container_images_are_loaded_again_and_their_archives_go(world: Worlds) -> None:
    here = saving(world)
    declare(here, replace(BACKUP, images=(ENGINE,)))
    for name in here.fleet.nodes:
        here.machine(name).disk().container_images[ENGINE] = f"sha256:{'a' * 64}"
    to_new_image(here, "n0")
    here.apply(wait_s=36000.0)
    disk = here.machine("n0").disk()
    assert here.serves("n0")
    assert (disk.version, disk.container_images) == (NEW.version, {ENGINE: f"sha256:{'a' * 64}"})
    assert not [path for path in disk.files if path.startswith("/var/lib/reconciler/images")]
    assert has_data(here, "n0")


def test_a_node_that_lacks_a_declared_image_is_not_wiped(world: Worlds) -> None:
    here = saving(world)
    declare(here, replace(BACKUP, images=(ENGINE,)))
    to_new_image(here, "n0")
    here.apply(wait_s=36000.0)
    assert here.machine("n0").disk().version == IMAGE.version
    [detail] = {one.detail for one in here.ledger.node("n0").attempts if one.action == "back_up"}
    assert detail == f"container images: no runtime has all images whole; containerd has not: {ENGINE}"


def test_images_of_which_the_host_lost_the_list_keep_no_node_out(tmp_path: Path) -> None:
    """The node lost power while the list was not yet on its disk. What is said of that becomes the outcome's detail."""
    (tmp_path / "list").touch()
    argv = ("sh", "-c", RELOAD.replace(f"home={HOME}", f"home={tmp_path}"))
    first, second = (subprocess.run(argv, capture_output=True, text=True, check=True) for _ in range(2))
    assert (first.stdout, second.stdout) == (f"all: {tmp_path}/list is empty\n", "")


@pytest.mark.parametrize("k3s", [False, True])
def test_a_program_that_fails_to_load_keeps_no_node_out(
    world: Worlds, monkeypatch: pytest.MonkeyPatch, k3s: bool
) -> None:
    profile = replace(BASE if k3s else PROFILE, backup=replace(BACKUP, images=(ENGINE,)))
    signed = {**SIGNATURES, (NEW.name, NEW.version): True}
    here = k3s_world(world, spec(), nodes=4, profile=profile, signatures=signed) if k3s else saving(world)
    here.adopt()
    declare(here, profile.backup)
    node = "n3" if k3s else "n1"
    here.machine(node).disk().files |= DATA
    run = MachineHost.run

    async def failing(self: MachineHost, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        if argv[:3] == ("sh", "-c", RELOAD):
            return CommandResult(1, "", LOST)
        return await run(self, argv, timeout=timeout, stdin=stdin)

    here.machine(node).disk().container_images[ENGINE] = f"sha256:{'a' * 64}"
    to_new_image(here, node)
    monkeypatch.setattr(MachineHost, "run", failing)
    here.apply(wait_s=36000.0)
    assert here.serves(node)
    wanted = "admit" if k3s else "restore_backup"
    [detail] = [one.detail for one in here.ledger.node(node).attempts if one.action == wanted and one.outcome == "done"]
    assert detail.endswith(f"; not loaded, and kept in {HOME}: the program ended with 1: {LOST}")


def test_with_k3s_images_are_loaded_before_the_node_serves(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containerd comes with the cluster, after the data is back. A run that dies in that is made up for.

    Loading takes long, and whoever holds the node meanwhile is heard.
    """
    profile = replace(BASE, backup=replace(BACKUP, images=(ENGINE,)))
    here = k3s_world(world, spec(), nodes=4, profile=profile, signatures={**SIGNATURES, (NEW.name, NEW.version): True})
    here.adopt()
    images = {ENGINE: f"sha256:{'a' * 64}"}
    here.machine("n3").disk().files |= DATA
    here.machine("n3").disk().container_images |= images
    each(here, lambda node: replace(node, profile=replace(node.profile, image=NEW, digest="new")), "n3")
    served: list[dict[str, str]] = []
    died: list[Sequence[str]] = []
    cluster, run = here.lab.cluster, MachineHost.run
    assert cluster is not None

    def watch(node: NodeObject, serves: bool) -> None:
        if serves and node.name == "n3" and here.did("n3"):
            served.append(dict(here.machine("n3").disk().container_images))

    async def dying(self: MachineHost, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        if argv[:3] == ("sh", "-c", RELOAD) and not died:
            died.append(argv)
            raise Killed
        if argv[:3] == ("sh", "-c", RELOAD) and len(died) == 1:
            died.append(argv)
            here.ledger.hold("n3", "mine", "ops", None, here.clock.now())
        return await run(self, argv, timeout=timeout, stdin=stdin)

    cluster.watcher = watch
    monkeypatch.setattr(MachineHost, "run", dying)
    with surviving():
        here.apply(wait_s=36000.0)
    assert died
    assert not served
    here.apply(wait_s=36000.0)
    assert len(died) == 2
    assert not served
    here.ledger.release("n3", "ops", here.clock.now())
    here.apply(wait_s=36000.0)
    disk = here.machine("n3").disk()
    assert served
    assert all(found == images for found in served)
    assert (disk.version, disk.container_images) == (NEW.version, images)
    assert not [path for path in disk.files if path.startswith("/var/lib/reconciler/images")]
