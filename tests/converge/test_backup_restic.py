"""Backups by the real restic on files of this machine, over a real sshd, with the rest of the fleet in the lab.

A disk that the lab writes takes the files with it. A run is killed as its command begins, in its midst and after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.lab.hardware.tools import backup as lab_backup
from reconciler.lab.hardware.tools.call import Call, Ran
from reconciler.model.backup import RESTORE, SAVE, DesiredBackup
from reconciler.model.outcome import Done, Permanent, Transient
from tests.converge.for_real import run_for_real
from tests.converge.test_backup import each, to_new_image
from tests.converge.test_k3s_killed import surviving
from tests.converge.world import IMAGE, PROFILE, SIGNATURES, World
from tests.drivers.ssh.conftest import HostFactory, Server, free_port
from tests.drivers.ssh.conftest import keys as keys
from tests.drivers.ssh.conftest import make_host as make_host
from tests.drivers.ssh.conftest import sshd as sshd

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed"),
]
PASSWORD = "a pass word $HOME"
SIGNED = {**SIGNATURES, (IMAGE.name, "2026.12.0"): True}


def digests(folder: Path) -> Mapping[str, str]:
    """Return what is there: for each file its digest, mode and owner, for each link where it points."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name, about = str(path.relative_to(folder)), path.lstat()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = f"{hashlib.sha256(path.read_bytes()).hexdigest()} {about.st_mode:o} {about.st_uid}"
    return found


@dataclass
class Site:
    """One node whose data is in `data`. `kill`: at which of its programs the run dies, and when."""

    world: World
    port: int
    make_host: HostFactory
    data: Path
    repository: Path | str
    kill: tuple[int, str] = (0, "")
    ran: list[str] = field(default_factory=list)
    installs: int = 0

    def script(self, call: Call) -> Ran | None:
        if call.args[:2] not in (("-c", SAVE), ("-c", RESTORE)):
            return None
        self.wipe(call)
        self.ran.append("save" if call.args[1] == SAVE else "restore")
        number, when = self.kill
        dies = when if number == len(self.ran) else ""
        return Ran(run_for_real(lambda: self.make_host(self.port), call, dies, 0.3), 60.0)

    def wipe(self, call: Call) -> None:
        written = call.machine.state.counters.installs
        if written > self.installs:
            self.installs = written
            shutil.rmtree(self.data)

    def apply(self) -> None:
        with surviving():
            self.world.apply(wait_s=36000.0)

    def restic(self, *argv: str, **more: str) -> str:
        environment = {**os.environ, "RESTIC_PASSWORD": PASSWORD, "RESTIC_REPOSITORY": str(self.repository), **more}
        ran = subprocess.run(["restic", *argv], env=environment, capture_output=True, text=True, check=True)
        return ran.stdout


@pytest.fixture
def site(sshd: Server, make_host: HostFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """One node with data of several kinds, and an empty repository."""
    with tempfile.TemporaryDirectory(prefix="backup-") as folder:
        data, repository = Path(folder) / "models", Path(folder) / "repository"
        backup = DesiredBackup((str(data),), str(repository), {"RESTIC_PASSWORD": "restic"})
        world = World(Path(folder), nodes=1, profile=replace(PROFILE, backup=backup), signatures=SIGNED)
        monkeypatch.setattr(world.fabric, "host_secret", lambda *_: f"{PASSWORD}\n")
        world.adopt()
        here = Site(world, sshd.port, make_host, data, repository)
        monkeypatch.setattr(lab_backup, "backup_script", here.script)
        fill(data)
        here.restic("init")
        yield here
        world.ledger.close()


def fill(data: Path) -> None:
    (data / "deep" / "er").mkdir(parents=True)
    (data / "weights").write_bytes(os.urandom(16 * 1024 * 1024))
    (data / "deep" / "er" / "with space").write_text("tokens\n")
    (data / "empty").touch()
    (data / "weights").chmod(0o640)
    (data / "latest").symlink_to("weights")
    (data / "deep" / "of two words").symlink_to("er/with space")
    os.mkfifo(data / "pipe")
    (data / "hard").hardlink_to(data / "weights")


def test_data_survives_a_rebuild(site: Site) -> None:
    before = digests(site.data)
    to_new_image(site.world, "n0")
    site.apply()
    assert site.ran == ["save", "restore"]
    assert (site.installs, site.world.serves("n0")) == (1, True)
    assert digests(site.data) == before
    details = [one.detail for one in site.world.ledger.node("n0").attempts]
    [snapshot] = json.loads(site.restic("snapshots", "--json"))
    assert snapshot["hostname"] == "n0"
    assert any(f"saved as {snapshot['short_id']}: 4 files" in detail for detail in details)
    assert not any(PASSWORD in detail for detail in details)


@pytest.mark.parametrize("when", ["before", "in the midst", "after"])
@pytest.mark.parametrize("number", [1, 2], ids=["save", "restore"])
def test_a_run_that_is_killed_there_is_continued_by_the_next(site: Site, number: int, when: str) -> None:
    before = digests(site.data)
    to_new_image(site.world, "n0")
    site.kill = (number, when)
    site.apply()
    assert not site.world.serves("n0")
    assert site.installs == number - 1
    site.kill = (0, "")
    site.apply()
    assert (site.installs, site.world.serves("n0")) == (1, True)
    assert site.world.machine("n0").state.counters.installs == 1
    assert digests(site.data) == before


def test_files_that_change_while_they_are_saved_are_no_backup(site: Site) -> None:
    stop = threading.Event()

    def write() -> None:
        count = 0
        while not stop.wait(0.005):
            count += 1
            (site.data / "deep" / "log").write_text(f"{count}\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        outcome = site.world.act("back_up")
    finally:
        stop.set()
        writer.join()
    assert isinstance(outcome, Transient), outcome
    assert isinstance(site.world.act("back_up"), Done)


def test_what_the_repository_lost_is_not_restored(site: Site) -> None:
    assert isinstance(site.world.act("back_up"), Done)
    to_new_image(site.world, "n0")
    assert isinstance(site.world.act("reimage"), Done)
    for pack in (Path(site.repository) / "data").rglob("*"):
        if pack.is_file():
            pack.chmod(0o600)
            pack.write_bytes(b"\0" * pack.stat().st_size)
    outcome = site.world.act("restore_backup")
    assert isinstance(outcome, Transient | Permanent)
    assert "can't be read from the repository" in outcome.detail or "no longer holds" in outcome.detail
    assert not site.data.exists() or not digests(site.data)


def test_the_password_is_in_no_argument_of_any_process(site: Site) -> None:
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(place.read_bytes())
                except OSError:
                    continue  # the process has ended

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        assert isinstance(site.world.act("back_up"), Done)
    finally:
        stop.set()
        watcher.join()
    assert any(b"restic" in line and b"backup" in line for line in seen)
    assert not any(PASSWORD.encode() in line for line in seen)


def test_a_repository_that_was_never_made_is_named(site: Site) -> None:
    """A mistyped one is not made by the way: the data would be where nobody looks for it."""
    shutil.rmtree(site.repository)
    outcome = site.world.act("back_up")
    assert isinstance(outcome, Transient)
    assert "make it once with restic init" in outcome.detail
    assert not Path(site.repository).exists()


# Program, its words, the repository that it serves, and variables that restic needs for that.
SERVERS: Mapping[str, tuple[tuple[str, ...], str, Mapping[str, str]]] = {
    "rest": (
        ("rclone", "serve", "restic", "--addr", "127.0.0.1:{port}", "{folder}"),
        "rest:http://127.0.0.1:{port}/fleet",
        {},
    ),
    "s3": (
        ("moto_server", "-H", "127.0.0.1", "-p", "{port}"),
        "s3:http://127.0.0.1:{port}/fleet",
        {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "key"},
    ),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_data_survives_a_rebuild_in_an_object_store(site: Site, tmp_path: Path, kind: str) -> None:
    """Of rclone, which speaks the protocol of restic's own server, and of moto, which speaks that of S3."""
    argv, repository, environment = SERVERS[kind]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed (apt-get install rclone, pip install 'moto[s3,server]')")
    port = free_port()
    words = [word.format(port=port, folder=tmp_path) for word in argv]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        await_port(port, server)
        site.repository = repository.format(port=port)
        secrets = {"RESTIC_PASSWORD": "restic", **environment}
        backup = DesiredBackup((str(site.data),), site.repository, secrets)
        each(site.world, lambda node: replace(node, profile=replace(node.profile, backup=backup)))
        site.restic("init", **dict.fromkeys(environment, PASSWORD))
        before = digests(site.data)
        to_new_image(site.world, "n0")
        site.apply()
        assert site.ran == ["save", "restore"]
        assert (site.installs, site.world.serves("n0")) == (1, True)
        assert digests(site.data) == before
    finally:
        server.terminate()
        server.wait(10)


def await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while True:
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.1)
