"""SshHost against a real sshd: trust, facts of this very machine, commands and their deadlines."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from reconciler.drivers.ssh import SshHost
from reconciler.drivers.ssh.facts.extended import Extended, ExtendedSignals, fact
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.vocab import UnknownReason
from tests.drivers.ssh.conftest import NOW, HostFactory, Keys, Server, closing, private

pytestmark = [pytest.mark.wire, pytest.mark.tool]


async def read(host: SshHost) -> Answered[HostFacts] | Silent:
    async with closing(host):
        return await host.facts(["kernel.ostype"], [])


def silent(host: SshHost) -> Silent:
    answer = asyncio.run(read(host))
    assert isinstance(answer, Silent)
    return answer


def run(host: SshHost, *argv: str, timeout: float = 10, stdin: str = "") -> CommandResult:
    async def once() -> CommandResult:
        async with closing(host):
            return await host.run(argv, timeout=timeout, stdin=stdin)

    return asyncio.run(once())


def alive(mark: str) -> bool:
    """Say whether a process with this in its command line still runs."""
    found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True)
    return found.returncode == 0


def ends(mark: str) -> bool:
    for _ in range(50):
        if not alive(mark):
            return True
        time.sleep(0.1)
    return False


# --- facts -------------------------------------------------------------------------------------------------------


def test_facts_of_this_machine(sshd: Server, make_host: HostFactory) -> None:
    answer = asyncio.run(read(make_host(sshd.port)))
    assert isinstance(answer, Answered)
    assert answer.at == NOW
    facts = answer.value
    assert facts.hostname == platform.node()
    assert facts.kernel == platform.release()
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.uptime_s is not None
    assert abs(facts.uptime_s - float(Path("/proc/uptime").read_text().split()[0])) < 60
    assert facts.sysctls == {"kernel.ostype": "Linux"} or "sysctls" in facts.unknown
    for name in HostFacts.__slots__:
        assert getattr(facts, name) is not None or name in facts.unknown, f"no word on {name}"


def test_facts_of_extensions_are_read_beside_ours(sshd: Server, make_host: HostFactory) -> None:
    longest = "a" * 63  # as long as the name of an entry point may be
    asked = Extended(
        (
            fact(longest, "uname -s", lambda answer: answer.stdout, 5.0),
            fact("lacking", "no-such-tool", lambda _: "well", 5.0),
            fact("hangs", "exec sleep 60", lambda _: "well", 1.0),
        ),
        (ExtendedSignals(("linux",), (longest,), lambda values: [("linux", values[longest])]),),
    )
    answer = asyncio.run(read(make_host(sshd.port, extended=asked)))
    assert isinstance(answer, Answered), answer
    assert (answer.value.hostname, answer.value.extensions) == (platform.node(), {longest: "Linux"})
    assert answer.value.raised == {"linux": ("Linux",)}
    assert "no-such-tool" in answer.value.unknown["extensions.lacking"]
    assert "did not end in time" in answer.value.unknown["extensions.hangs"]


def test_the_connection_serves_a_whole_pass(sshd: Server, make_host: HostFactory) -> None:
    async def pass_over(host: SshHost) -> None:
        async with closing(host):
            assert isinstance(await host.facts([], []), Answered)
            for _ in range(3):
                assert (await host.run(["true"], timeout=5)).exit_status == 0

    before = sshd.log.read_text().count("Accepted publickey")
    asyncio.run(pass_over(make_host(sshd.port)))
    assert sshd.log.read_text().count("Accepted publickey") == before + 1


def test_a_closed_host_opens_again(sshd: Server, make_host: HostFactory) -> None:
    async def twice(host: SshHost) -> None:
        assert (await host.run(["true"], timeout=5)).exit_status == 0
        await host.close()
        await host.close()
        async with closing(host):
            assert (await host.run(["true"], timeout=5)).exit_status == 0

    asyncio.run(twice(make_host(sshd.port)))


# --- trust -------------------------------------------------------------------------------------------------------


def test_a_host_of_another_ca_is_an_incident(sshd: Server, make_host: HostFactory) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    answer = silent(make_host(sshd.port, authorities=[stranger]))
    assert answer.reason is UnknownReason.AUTH
    assert "not signed by the fleet's CA" in answer.detail
    assert f"gpu-a001 (127.0.0.1:{sshd.port})" in answer.detail


def test_another_node_of_the_same_ca_is_an_incident(sshd: Server, make_host: HostFactory) -> None:
    answer = silent(make_host(sshd.port, node="gpu-a002"))
    assert answer.reason is UnknownReason.AUTH
    assert "principal" in answer.detail


def test_no_authority_trusts_nobody(sshd: Server, make_host: HostFactory) -> None:
    assert silent(make_host(sshd.port, authorities=[])).reason is UnknownReason.AUTH


def test_one_of_several_authorities_is_enough(sshd: Server, make_host: HostFactory, keys: Keys) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    both = [f"# retired\n{stranger}\n\n{keys.trust}"]
    assert isinstance(asyncio.run(read(make_host(sshd.port, authorities=both))), Answered)


def test_insecure_only_when_told(sshd: Server, make_host: HostFactory) -> None:
    host = make_host(sshd.port, authorities=[], insecure=True)
    assert isinstance(asyncio.run(read(host)), Answered)


def test_a_key_that_the_host_does_not_know(sshd: Server, make_host: HostFactory) -> None:
    other = private(asyncssh.generate_private_key("ssh-ed25519"))
    answer = silent(make_host(sshd.port, private_key=other))
    assert answer.reason is UnknownReason.AUTH
    assert "authorized_keys" in answer.detail


def test_a_key_that_is_none(sshd: Server, make_host: HostFactory) -> None:
    answer = silent(make_host(sshd.port, private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n"))
    assert answer.reason is UnknownReason.AUTH
    assert "hunter2" not in answer.detail


def test_an_authority_that_is_none(sshd: Server, make_host: HostFactory) -> None:
    assert "hostKeys.authorities" in silent(make_host(sshd.port, authorities=["nonsense"])).detail


def test_nothing_of_the_user_is_used(
    sshd: Server, make_host: HostFactory, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that would open every door: right key, right known_hosts, a config that redirects, and an agent."""
    home = tmp_path / ".ssh"
    home.mkdir()
    (home / "id_ed25519").write_text(private(keys.login))
    (home / "id_ed25519").chmod(0o600)
    (home / "known_hosts").write_text(f"* {keys.host.export_public_key().decode()}")
    (home / "config").write_text("Host *\n  Port 1\n  User nobody\n  StrictHostKeyChecking no\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        for _ in range(50):
            if (tmp_path / "agent").exists():
                break
            time.sleep(0.05)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(["ssh-add", "-q", str(home / "id_ed25519")], check=True)
        other = private(asyncssh.generate_private_key("ssh-ed25519"))
        assert "refuses the key" in silent(make_host(sshd.port, private_key=other)).detail
        assert "not signed" in silent(make_host(sshd.port, authorities=[])).detail
        assert isinstance(asyncio.run(read(make_host(sshd.port))), Answered)
    finally:
        agent.terminate()
        agent.wait(5)


def test_a_uid_without_a_name(sshd: Server, make_host: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uid has no passwd entry, as in a container of CI."""

    def unknown(*_: Any) -> Any:
        raise KeyError("uid not found")

    host = make_host(sshd.port)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")  # remembered by monkeypatch, which takes back what connect() sets
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert isinstance(asyncio.run(read(host)), Answered)


# --- nobody there ------------------------------------------------------------------------------------------------


def test_nobody_listens(make_host: HostFactory) -> None:
    answer = silent(make_host(1))
    assert answer.reason is UnknownReason.UNREACHABLE
    assert "gpu-a001 (127.0.0.1:1) refuses connections" in answer.detail


def test_a_name_that_does_not_resolve(keys: Keys) -> None:
    host = SshHost("gpu-a001", "no-such-host.invalid", user="root", private_key=private(keys.login), now=lambda: NOW)
    answer = silent(host)
    assert answer.reason is UnknownReason.UNREACHABLE
    assert "does not resolve" in answer.detail


def test_the_constructor_does_nothing(keys: Keys) -> None:
    SshHost("n", "no-such-host.invalid", user="root", private_key="no key", authorities=["no key"], now=lambda: NOW)


# --- commands ----------------------------------------------------------------------------------------------------


def test_words_arrive_as_they_were(sshd: Server, make_host: HostFactory) -> None:
    words = ["a b", "$HOME", "it's", "*", "", "x;y", "ü\n"]
    assert run(make_host(sshd.port), "printf", "%s|", *words).stdout == "".join(f"{word}|" for word in words)


def test_stdin_stdout_stderr_and_status(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "sh", "-c", "cat; echo err >&2; exit 7", stdin="in\n")
    assert result == CommandResult(7, "in\n", "err\n")


def test_a_command_that_reads_no_stdin(sshd: Server, make_host: HostFactory) -> None:
    assert run(make_host(sshd.port), "true", stdin="x" * 1_000_000).exit_status == 0


def test_a_tool_that_is_not_there(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "no-such-tool")
    assert result.exit_status == 127
    assert "no-such-tool" in result.stderr


def test_a_command_dies_of_its_deadline(sshd: Server, make_host: HostFactory) -> None:
    started = time.monotonic()
    result = run(make_host(sshd.port), "sh", "-c", "echo begun; sleep 61.25; echo no", timeout=1)
    assert result == CommandResult(-1, "begun\n", "", timed_out=True)
    assert time.monotonic() - started < 5
    assert ends("sleep 61.25")


def test_a_command_that_ignores_its_deadline_is_killed(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.33; done", timeout=1)
    assert result == CommandResult(-1, "begun\n", "", timed_out=True)
    assert ends("sleep 0.33")


def test_a_command_that_says_124_in_time_was_not_killed(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "sh", "-c", "exit 124", timeout=5)
    assert (result.exit_status, result.timed_out) == (124, False)


def test_a_command_that_dies_of_a_signal(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "sh", "-c", "kill -9 $$", timeout=5)
    assert result.exit_status != 0
    assert not result.timed_out


def test_a_command_outlives_neither_us_nor_its_deadline(sshd: Server, make_host: HostFactory) -> None:
    """The caller gives up: at once for us, and on the host when its time is over."""

    async def give_up(host: SshHost) -> None:
        async with closing(host):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.7):
                    await host.run(["sh", "-c", "sleep 62.25"], timeout=2)
            assert (await host.run(["echo", "next"], timeout=5)).stdout == "next\n"

    asyncio.run(give_up(make_host(sshd.port)))
    assert ends("sleep 62.25")


def test_a_flood_is_bounded(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "yes", "flood-17", timeout=30)
    assert result.exit_status == -1
    assert not result.timed_out
    assert len(result.stdout) == 16 * 1024 * 1024
    assert "printed more than" in result.stderr
    assert ends("yes flood-17")


def test_a_long_output_arrives_whole(sshd: Server, make_host: HostFactory) -> None:
    result = run(make_host(sshd.port), "head", "-c", "5000000", "/dev/zero")
    assert (result.exit_status, len(result.stdout)) == (0, 5_000_000)


def test_a_host_that_goes_down_under_a_command_leaves_it_open(sshd: Server, make_host: HostFactory) -> None:
    """The connection's own sshd dies, as under `systemctl reboot`."""
    kill_sshd = (
        "p=$(ps -o ppid= -p $$); p=$(ps -o ppid= -p $p); case $(ps -o comm= -p $p) in sshd*) kill -9 $p;; esac; sleep 5"
    )
    with pytest.raises(DriverError) as caught:
        run(make_host(sshd.port), "sh", "-c", kill_sshd)
    assert caught.value.kind is Failure.AMBIGUOUS
    assert "may have run" in caught.value.detail


def test_a_lost_connection_is_opened_once_more(sshd: Server, make_host: HostFactory) -> None:
    async def lose_and_go_on(host: SshHost) -> None:
        async with closing(host):
            ours = (await host.run(["sh", "-c", "ps -o ppid= -p $(ps -o ppid= -p $$)"], timeout=5)).stdout.split()[0]
            os.kill(int(ours), 9)
            await asyncio.sleep(0.3)
            assert (await host.run(["echo", "again"], timeout=5)).stdout == "again\n"

    asyncio.run(lose_and_go_on(make_host(sshd.port)))
