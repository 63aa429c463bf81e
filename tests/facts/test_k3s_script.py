"""The script of the fact of K3s in a real shell, with a real openssl, on files laid out as K3s lays them out."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.k3s import K3S, parse_k3s
from reconciler.lab.hardware.k3s_disk import same_place
from reconciler.lab.hardware.state import DiskImage
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import (
    BINARY,
    CONFIG,
    DATA,
    DATASTORE,
    DUE,
    IMAGES,
    NONE,
    RESTART_DUE,
    SECRETS,
    SERVER_TOKEN,
    UNIT_FILES,
    K3sFacts,
)
from reconciler.model.k3s_datastore import DATABASE_LINE, ENVIRONMENT, SAME, SQLITE, place_of

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


class Host:
    """A folder in place of /, and programs of it on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program("bin/systemctl", "case $2 in k3s) echo active;; *) echo inactive; exit 3;; esac")
        self.program("bin/id", "echo 0")

    def program(self, path: str, text: str) -> None:
        self.file(path, f"#!/bin/sh\n{text}\n").chmod(0o755)

    def file(self, path: str, text: str) -> Path:
        found = self.root / path.lstrip("/")
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(text)
        return found

    def certificate(self, path: str, days: int) -> None:
        found = self.file(path, "")
        key = "ec -pkeyopt ec_paramgen_curve:prime256v1"
        words = f"openssl req -x509 -newkey {key} -nodes -subj /CN=x -days {days} -out {found} -keyout {found}.key"
        subprocess.run(words.split(), check=True, capture_output=True)

    def read(self) -> CommandResult:
        command = K3S.command
        for folder in ("/usr/local", "/var/lib/rancher", "/etc/"):
            command = command.replace(folder, f"{self.root}{folder}")
        env = {"PATH": f"{self.root}/bin:/usr/bin:/bin"}
        ran = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True)
        return CommandResult(ran.returncode, ran.stdout.replace(str(self.root), ""), ran.stderr)

    def facts(self) -> K3sFacts:
        ran = self.read()
        assert ran.exit_status == 0, ran
        return parse_k3s(ran).value


def test_a_host_without_k3s(tmp_path: Path) -> None:
    assert Host(tmp_path).facts() == K3sFacts("", {}, {}, (), False)


def test_a_server(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program(BINARY, 'echo "k3s version v1.31.5+k3s1 (56ec5dd4)"; echo "go version go1.22.10"')
    host.file(f"{UNIT_FILES}/k3s.service", "[Unit]\n")
    host.file(CONFIG, "docker: true\n")
    host.file(f"{IMAGES}/9082.tar.zst", "")
    host.file(f"{DATASTORE}/member/wal", "")
    host.certificate(f"{DATA}/agent/client-kubelet.crt", 300)
    host.certificate(f"{DATA}/server/tls/server-ca.crt", 10)  # an authority is not renewed by a restart
    found = host.facts()
    assert (found.version, found.units, found.images) == ("v1.31.5+k3s1", {"k3s": True}, ("9082.tar.zst",))
    assert (found.datastore, found.restart, found.renewal) == (True, NONE, NONE)
    assert found.ends is not None
    assert timedelta() <= datetime.now(UTC) + timedelta(days=300) - found.ends < timedelta(minutes=5)
    assert set(found.files) == {CONFIG, f"{UNIT_FILES}/k3s.service"}


def test_what_is_due(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program(BINARY, 'echo "k3s version v1.31.5+k3s1 (56ec5dd4)"')
    host.file(RESTART_DUE, "")
    host.certificate(f"{DATA}/agent/client-kubelet.crt", 300)
    host.certificate(f"{DATA}/agent/serving-kubelet.crt", 59)
    found = host.facts()
    assert (found.restart, found.renewal) == (DUE, DUE)
    assert found.ends is not None
    assert found.ends < datetime.now(UTC) + timedelta(days=59), "the first of them"
    host.file(f"{DATA}/agent/broken.crt", "no certificate")
    host.certificate(f"{DATA}/agent/serving-kubelet.crt", 300)
    assert host.facts().renewal is None


@pytest.mark.parametrize(
    "text", ["", "Bad time value", "Nov 31 05:49:00 2027 GMT", "2027-11-08", "Nov  8 05:49:00 2027"]
)
def test_an_end_that_is_no_date_leaves_the_rest_of_the_fact(text: str) -> None:
    """As a certificate that can't be read does: whether it is due is not known then."""
    found = parse_k3s(CommandResult(0, f"unit k3s active\nends Nov  8 05:49:00 2027 GMT\nends {text}\nend\n"))
    assert (found.value.units, found.value.renewal) == ({"k3s": True}, None)
    assert found.value.ends == datetime(2027, 11, 8, 5, 49, tzinfo=UTC)
    assert "k3s.renewal" in found.notes


def test_whoever_is_not_root_learns_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program(BINARY, "")
    host.program("bin/id", "echo 1000")
    ran = host.read()
    assert ran.exit_status == 1
    assert "permission denied" in ran.stderr


def test_of_secrets_the_options_alone_are_told(tmp_path: Path) -> None:
    host = Host(tmp_path)
    labels = 'group="",removed_release="1.99",resource="x",subresource="",version="v1"'
    metric = f"apiserver_requested_deprecated_apis{{{labels}}} 1"
    told = f"case $1 in --version) echo 'k3s version v1.31.5+k3s1 (56ec5dd4)';; *) echo '{metric}';; esac"
    host.program(BINARY, told)
    endpoint = "postgres://k3s:word@db.example:5432/k3s"
    host.file(SECRETS, f'datastore-endpoint: "{endpoint}"\netcd-s3-secret-key: "word: word"\n')
    found = host.facts()
    assert found.secrets == ("datastore-endpoint", "etcd-s3-secret-key")
    assert "word" not in host.read().stdout
    assert not found.deprecated, "it has joined no cluster yet: no API server is asked"
    host.file(SERVER_TOKEN, "K10::server:token\n")
    assert [api.name for api in host.facts().deprecated or ()] == ["v1/x"]
    assert not host.facts().datastore


OURS = f"{DATABASE_LINE}db.example:5432\ndatastore-endpoint: "


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (CONFIG, "datastore-endpoint: {}\n"),
        (f"{CONFIG}.d/10-own.yaml", '"datastore-endpoint": "{}"\n'),
        (
            f"{UNIT_FILES}/k3s.service",
            "ExecStart=/usr/local/bin/k3s \\\n  server \\\n\t'--datastore-endpoint' \\\n\t'{}' \\\n",
        ),
        (f"{UNIT_FILES}/k3s.service.env", "K3S_DATASTORE_ENDPOINT='{}'\n"),
        (f"{UNIT_FILES}/k3s.service.d/own.conf", "[Service]\nEnvironment=K3S_DATASTORE_ENDPOINT={}\n"),
        ("/etc/default/k3s", "K3S_DATASTORE_ENDPOINT={}\n"),
        ("/etc/sysconfig/k3s", "K3S_DATASTORE_ENDPOINT={}\n"),
    ],
)
def test_where_an_endpoint_is_set_is_told_and_not_what_it_is(tmp_path: Path, path: str, text: str) -> None:
    host = Host(tmp_path)
    host.program(BINARY, 'echo "k3s version v1.31.5+k3s1 (56ec5dd4)"')
    host.file(path, f"# datastore-endpoint is in {SECRETS}\n")
    assert host.facts().endpoints == (), "a comment sets nothing"
    host.file(path, text.format("postgres://k3s:word@db.example:5432/k3s"))
    found = host.facts()
    assert (found.endpoints, found.database, found.data_dirs) == ((path,), "", ())
    assert "word" not in host.read().stdout


def test_where_the_state_is(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program(BINARY, 'echo "k3s version v1.31.5+k3s1 (56ec5dd4)"')
    host.file(SECRETS, f'{OURS}"postgres://k3s:word@db.example:5432/k3s"\n')
    found = host.facts()
    assert (found.endpoints, found.database, found.began, found.sqlite) == ((SECRETS,), "db.example:5432", False, False)
    host.file(SQLITE, "")
    host.file(SERVER_TOKEN, "K10::server:token\n")
    assert (host.facts().began, host.facts().sqlite, host.facts().datastore) == (True, True, False)
    host.file(CONFIG, f'data-dir: "{host.root}{DATA}"\n')
    assert host.facts().data_dirs == (), "it is where K3s has it by itself"
    host.file(CONFIG, f"data-dir: {host.root}{DATA}-own\n")
    assert host.facts().data_dirs == (CONFIG,)


def test_the_environment_of_the_process_counts_whatever_set_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program(BINARY, 'echo "k3s version v1.31.5+k3s1 (56ec5dd4)"')
    program = ["sleep", "60"]
    with subprocess.Popen(program, env={"K3S_DATASTORE_ENDPOINT": "mysql://word", "PATH": "/usr/bin:/bin"}) as running:
        try:
            host.program("bin/systemctl", f"case $1 in show) echo {running.pid};; *) echo active;; esac")
            assert host.facts().endpoints == (ENVIRONMENT,)
            assert "word" not in host.read().stdout
        finally:
            running.kill()
    host.program("bin/systemctl", "case $1 in show) echo 0;; *) echo inactive; exit 3;; esac")
    assert host.facts().endpoints == ()
    assert not host.read().stderr


POSTGRES = "postgres://k3s:word@db.example:5432/k3s"


@pytest.mark.parametrize(
    ("file", "wanted", "answer"),
    [
        (f'{OURS}"{POSTGRES}"\n', POSTGRES.replace("word", "other?word"), "same"),
        (f"datastore-endpoint: {POSTGRES}?sslmode=require\n", POSTGRES, "same"),
        (f"datastore-endpoint: '{POSTGRES}'\n", POSTGRES + "?sslmode=require", "same"),
        (f"{OURS}{POSTGRES}2\n", POSTGRES, "other"),
        (f"{OURS}{POSTGRES.replace('db.', 'my-db.')}\n", POSTGRES, "other"),
        (f"{OURS}{POSTGRES.replace('5432', '54321')}\n", POSTGRES, "other"),
        (f"{OURS}mysql://k3s:word@tcp(db.example:5432)/k3s\n", "mysql://a:b@tcp(db.example:5432)/k3s", "same"),
        (f"{OURS}mysql://k3s:word@tcp(db.example:5432)/k3s\n", "mysql://a:b@tcp(db.example:5432)/k4s", "other"),
        (f"{OURS}https://a:2379,https://db.example:5432,https://c:1\n", "https://db.example:5432,https://d:1", "same"),
        ("etcd-s3-secret-key: word\n", POSTGRES, "none"),
        (None, POSTGRES, "none"),
    ],
)
def test_whether_two_endpoints_are_of_one_database(tmp_path: Path, file: str | None, wanted: str, answer: str) -> None:
    host = Host(tmp_path)
    if file is not None:
        host.file(SECRETS, file)
    place = place_of(wanted, "db.example:5432")
    assert place
    assert "word" not in place
    script = SAME.replace(SECRETS, f"{host.root}{SECRETS}").replace(DATASTORE, f"{host.root}{DATASTORE}")
    ran = subprocess.run(["sh", "-c", script], input=f"{place}\n", capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{answer}\n", "")
    disk = DiskImage("ubuntu", "1", "", "", None, "", "", "n0", files={} if file is None else {SECRETS: file})
    played = same_place(disk, place)
    assert played == answer, "the lab says so, too"
    host.file(f"{DATASTORE}/member/wal", "")
    ran = subprocess.run(["sh", "-c", script], input=f"{place}\n", capture_output=True, text=True, check=True)
    disk.files[DATASTORE] = "K3s"
    assert (ran.stdout, same_place(disk, place)) == ("other\n", "other"), "K3s goes on with etcd on its disk"
