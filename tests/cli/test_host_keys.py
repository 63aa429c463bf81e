"""What was revoked is refused by commands that only read, and, by an exported list, by the SSH of people."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.install_progress import InstallAttempt, digest_of
from tests.cli.shell import reconciler, running_lab

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def new_key() -> str:
    kind, data, *_ = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()
    return f"{kind} {data}"


def certified(node: str, days: int) -> tuple[str, str]:
    """Return a host key and its certificate, valid for so many days from NOW."""
    key, ca = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    until = NOW + timedelta(days=days)
    made = ca.generate_host_certificate(key, node, principals=[node], valid_after=NOW, valid_before=until)
    line = key.export_public_key().decode()
    return " ".join(line.split()[:2]), made.export_certificate().decode().strip()


def note(
    place: Path, node: str, host_key: str = "", revoked: tuple[str, ...] = (), days: int = 0, certificate: str = ""
) -> None:
    ledger = SqlLedger(place)
    at = NOW + timedelta(days=days)
    one = InstallAttempt(
        digest_of(f"{node} {days}"), node, "{}", "", at, host_key=host_key, revoked=revoked, certificate=certificate
    )
    ledger.save_install(one, at)
    ledger.close()


def test_keys_are_listed_by_node_with_their_state(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    first, second, bad, worse = (new_key() for _ in range(4))
    note(place, "a", first)
    note(place, "a", second, days=1)
    note(place, "b", bad, (bad, worse))
    done = reconciler("host-keys", "list", "--ledger", place, "-o", "json")
    assert done.code == 0, done.err
    rows = [(row["node"], row["state"], row["key"]) for row in done.json]
    assert rows == [
        ("a", "replaced", first), ("a", "certified", second), ("b", "revoked", bad), ("b", "revoked", worse),
    ]  # fmt: skip


def test_the_list_says_when_the_newest_certificate_of_a_key_is_valid(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    key, line = certified("a", 90)
    note(place, "a", key, certificate=line)
    note(place, "b", new_key())
    done = reconciler("host-keys", "list", "--ledger", place, "-o", "json")
    assert [(row["node"], row["from"], row["until"]) for row in done.json] == [
        ("a", "2026-11-22 00:00:00 UTC", "2027-02-20 00:00:00 UTC"), ("b", "-", "-"),
    ]  # fmt: skip
    shown = reconciler("host-keys", "list", "--ledger", place)
    assert "until" in shown.out
    assert "2027-02-20 00:00:00 UTC" in shown.out


@pytest.mark.tool
@pytest.mark.parametrize("revoked", [0, 2])
def test_the_exported_list_refuses_what_was_revoked_and_nothing_else(tmp_path: Path, revoked: int) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen (OpenSSH) is not installed")
    place, out = tmp_path / "ledger.sqlite", tmp_path / "fleet.krl"
    keys = [new_key() for _ in range(3)]
    note(place, "a", keys[-1], tuple(keys[:revoked]))
    for _ in range(2):  # it replaces what is there
        done = reconciler("host-keys", "krl", "--ledger", place, "--out", out)
        assert done.code == 0, done.err
    for at, key in enumerate(keys):
        file = tmp_path / f"{at}.pub"
        file.write_text(key + "\n")
        asked = subprocess.run(["ssh-keygen", "-Q", "-f", out, file], capture_output=True, text=True, check=False)
        assert ("REVOKED" in asked.stdout) == (at < revoked), asked
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


@pytest.mark.wire
def test_commands_that_only_read_refuse_a_revoked_host_key(tmp_path: Path) -> None:
    with running_lab(tmp_path / "lab", "--scenario", "clean", nodes=2) as lab:
        assert lab.run("observe", "--limit", "gpu-0001").code == 0
        targets = json.loads(lab.endpoints.read_text())["ssh"]
        host, _, port = next(iter(targets.values()))["target"].rpartition(":")
        shown = asyncio.run(asyncssh.get_server_host_key(host, int(port)))
        assert shown is not None
        kind, data, *_ = shown.export_public_key().decode().split()
        note(lab.path / "ledger.sqlite", "gpu-0001", revoked=(f"{kind} {data}",))
        for name in ("observe", "drift", "plan", "doctor"):
            done = lab.run(name, "--limit", "gpu-0001") if name != "doctor" else lab.run(name)
            assert done.code == 4, (name, done.out, done.err)
            assert "auth" in done.out, (name, done.out)
