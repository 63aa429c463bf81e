"""`reconciler conformance ssh` on a real OpenSSH server, and on ones that are set up badly."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.shell import Done, reconciler
from tests.drivers.ssh.conftest import NODE, Keys, Server, free_port, private, started

pytestmark = pytest.mark.wire


@pytest.fixture
def words(tmp_path: Path, keys: Keys) -> list[str]:
    key, ca = tmp_path / "key", tmp_path / "ca.pub"
    key.write_text(private(keys.login))
    ca.write_text(f"# the fleet's\n{keys.trust}")
    return ["--user", getpass.getuser(), "--key", str(key), "--ca", str(ca), "--timeout", "20", "--output", "json"]


def conformance(port: int, words: list[str], node: str = NODE) -> Done:
    return reconciler("conformance", "ssh", f"{node}=127.0.0.1:{port}", *words)


def results(done: Done) -> dict[str, str]:
    return {one["name"]: one["result"] for one in done.json["checks"]}


def failed(done: Done) -> dict[str, str]:
    return {one["name"]: one["detail"] for one in done.json["checks"] if one["result"] == "fail"}


def test_a_host_that_is_set_up_well_passes(sshd: Server, words: list[str]) -> None:
    done = conformance(sshd.port, words)
    expected = set[str]() if os.getuid() == 0 else {"root"}
    assert (set(failed(done)), done.code) == (expected, 7 if expected else 0), done.out + done.err
    assert {name for name, result in results(done).items() if result == "not tried"} == set()
    assert results(done)["deadline"] == "pass"
    shown = reconciler("conformance", "ssh", f"{NODE}=127.0.0.1:{sshd.port}", *words[:-2])
    assert "two-channels" in shown.out


@pytest.fixture
def noisy(tmp_path: Path, keys: Keys) -> Iterator[Server]:
    """A server whose users' shell prints something first, as one with `echo` in its .bashrc does."""
    command = 'echo "Welcome to the cluster"; eval "$SSH_ORIGINAL_COMMAND"'
    with started(tmp_path / "noisy", keys, f"ForceCommand {command}\n") as server:
        yield server


def test_a_shell_that_prints_something_first_fails(noisy: Server, words: list[str]) -> None:
    done = conformance(noisy.port, words)
    assert done.code == 7, done.out + done.err
    assert "a command that prints nothing answers 'Welcome to the cluster" in failed(done)["silence"]
    assert {"exit-status", "whole-output"} <= failed(done).keys()
    assert results(done)["login"] == "pass"


# A timeout(1) that gives a command that hangs up in time, and leaves its processes behind.
_LEAVES: Final = """\
#!/bin/sh
case $* in *"trap "*) ;; *) shift 3; exec "$@" ;; esac
seconds=$3
shift 3
setsid "$@" </dev/null >/dev/null 2>&1 &
echo $! >>{pids}
sleep "$seconds"
exit 124
"""


@pytest.fixture
def forgetful(tmp_path: Path, keys: Keys) -> Iterator[Server]:
    programs, pids = tmp_path / "bin", tmp_path / "pids"
    programs.mkdir()
    (programs / "timeout").write_text(_LEAVES.format(pids=pids))
    (programs / "timeout").chmod(0o755)
    try:
        command = f'PATH={programs}:$PATH; eval "$SSH_ORIGINAL_COMMAND"'
        with started(tmp_path / "forgetful", keys, f"ForceCommand {command}\n") as server:
            yield server
    finally:
        for pid in map(int, pids.read_text().split()):
            os.killpg(pid, signal.SIGKILL)


def test_a_command_that_hangs_and_leaves_a_process_behind_fails(forgetful: Server, words: list[str]) -> None:
    done = conformance(forgetful.port, words)
    assert done.code == 7, done.out + done.err
    assert "a command that hung goes on as process" in failed(done)["deadline"]


def test_one_session_at_a_time_is_not_enough(tmp_path: Path, keys: Keys, words: list[str]) -> None:
    with started(tmp_path / "narrow", keys, "MaxSessions 1\n") as server:
        done = conformance(server.port, words)
    assert (done.code, results(done)["login"]) == (7, "pass"), done.out
    assert "two-channels" in failed(done)


def test_another_name_in_the_certificate_and_another_key_are_refused_and_nothing_more_is_asked(
    sshd: Server, tmp_path: Path, words: list[str]
) -> None:
    done = conformance(sshd.port, words, node="gpu-b007")
    assert (done.code, list(failed(done))) == (7, ["login"]), done.out
    assert "gpu-b007" in failed(done)["login"]
    assert set(results(done).values()) == {"fail", "not tried"}
    refused = reconciler("conformance", "ssh", "10.0.0.1", "--key", words[3])
    assert (refused.code, "name the host CA with --ca FILE" in refused.err) == (64, True)


def test_a_host_that_is_away_is_not_failed(words: list[str]) -> None:
    done = conformance(free_port(), words)
    assert (done.code, set(results(done).values())) == (4, {"not tried"}), done.out


def test_an_address_with_a_user_is_refused_before_any_host_is_contacted(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("not read: nothing is contacted\n")
    done = reconciler("conformance", "ssh", "--insecure", "--key", key, "127.0.0.1:9", "root@127.0.0.1:9")
    assert (done.code, done.out) == (64, "")
    assert "root@127.0.0.1:9: an address has no user or password" in done.err
    assert "--user names the user" in done.err
