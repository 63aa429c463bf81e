"""The lab's sshd, used by OpenSSH's client where it is installed, and by asyncssh."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import asyncssh
import pytest

from reconciler.model.fact_framing import FactRequest, build_program, parse_answer
from tests.lab.ssh_bench import NODE, Bench, play, write_client_files

pytestmark = pytest.mark.wire

needs_openssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")
PROGRAM = build_program([FactRequest("hostname", "uname -n", 5), FactRequest("kernel", "uname -r", 5)], "abc123")


async def openssh(bench: Bench, folder: Path, *words: str, user: str = "root", stdin: str = "") -> tuple[int, str, str]:
    ssh = await asyncio.create_subprocess_exec(
        "ssh",
        *write_client_files(bench, folder),
        f"{user}@127.0.0.1",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await ssh.communicate(stdin.encode())
    assert ssh.returncode is not None
    return ssh.returncode, out.decode(), err.decode()


# --- OpenSSH's client --------------------------------------------------------------------------------------------


@needs_openssh
def test_openssh_trusts_the_signed_host_and_gets_streams_and_status(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert await openssh(bench, tmp_path, "true") == (0, "", "")
        status, out, err = await openssh(bench, tmp_path, "cat", "/etc/hostname", "/absent")
        assert (status, out) == (1, f"{NODE}\n")
        assert err == "cat: /absent: No such file or directory\n"
        assert await openssh(bench, tmp_path, "no-such-tool") == (
            127,
            "",
            "bash: line 1: no-such-tool: command not found\n",
        )
        assert bench.server.counters.commands == 3

    play(scenario)


@needs_openssh
def test_openssh_gets_the_facts(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        status, out, err = await openssh(bench, tmp_path, "sh", "-s", stdin=PROGRAM)
        assert (status, err) == (0, "")
        facts = parse_answer(out.encode(), "abc123")
        assert facts["hostname"].stdout == f"{NODE}\n"
        assert facts["kernel"].stdout == "6.8.0-48-generic\n"

    play(scenario)


@needs_openssh
def test_openssh_refuses_a_host_whose_key_our_ca_did_not_sign(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.disk().ssh_ca = False
        status, _, err = await openssh(bench, tmp_path, "true")
        assert status == 255
        assert "Host key verification failed" in err or "No ED25519 host key is known" in err

    play(scenario)


@needs_openssh
def test_only_root_and_only_with_our_key(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        status, _, err = await openssh(bench, tmp_path, "true", user="admin")
        assert (status, "Permission denied" in err) == (255, True)
        bench.client_key = asyncssh.generate_private_key("ssh-ed25519")
        status, _, err = await openssh(bench, tmp_path, "true")
        assert (status, "Permission denied" in err) == (255, True)
        assert (bench.server.counters.sessions, bench.server.counters.rejected) == (0, 2)

    play(scenario)


# --- commands ----------------------------------------------------------------------------------------------------


def test_commands_change_the_machine_and_answer_after_what_the_tool_takes() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            done = await ssh.run("hostnamectl set-hostname gpu-b002")
            assert done.exit_status == 0
            assert bench.machine.system().hostname == "gpu-b002"
            done = await ssh.run("tee /etc/sysctl.d/90-reconciler.conf", input="vm.swappiness = 10\n")
            assert done.stdout == "vm.swappiness = 10\n"
            assert bench.machine.disk().sysctls["vm.swappiness"] == "10"
            bench.sleeps.clear()
            done = await ssh.run("nvidia-smi -mig 1")
            assert done.exit_status == 0
            assert all(gpu.mig_enabled for gpu in bench.machine.state.gpus)
            assert bench.sleeps == [3.0]

    play(scenario)


def test_tools_that_only_show_print_what_the_facts_print() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            xml = await ssh.run("nvidia-smi -q -x")
            assert str(xml.stdout).count("<gpu id=") == 8
            shown = await ssh.run("systemctl show -p Id,ActiveState kubelet containerd")
            assert shown.stdout == (
                "Id=kubelet.service\nActiveState=inactive\n\nId=containerd.service\nActiveState=active\n"
            )
            assert (await ssh.run("uname -r")).stdout == "6.8.0-48-generic\n"
            assert (await ssh.run("nvidia-smi --fire")).exit_status == 2

    play(scenario)


@pytest.mark.parametrize(
    ("command", "stdin", "status"),
    [
        ("echo 'unbalanced", "", 2),
        ("sh -s", "echo not a facts program\n", 127),
        ("/usr/bin/true", "", 0),
        ("''", "", 127),
    ],
)
def test_odd_command_lines(command: str, stdin: str, status: int) -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            assert (await ssh.run(command, input=stdin)).exit_status == status

    play(scenario)


def test_there_is_no_shell_and_no_sftp() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            assert (await ssh.run(input="")).exit_status == 1
            with pytest.raises(asyncssh.ChannelOpenError):
                await ssh.start_sftp_client()

    play(scenario)


# --- boots and shutdowns ------------------------------------------------------------------------------------------


async def assert_refused(bench: Bench) -> None:
    with pytest.raises(ConnectionRefusedError):
        await bench.connect()


def test_a_machine_that_is_off_refuses_and_comes_back_on_the_same_port() -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.power("force_off")
        await bench.pass_time(60)
        assert bench.machine.state.power == "off"
        await assert_refused(bench)
        bench.machine.power("on")
        await bench.pass_time(100)
        await assert_refused(bench)  # in POST
        await bench.pass_time(300)
        async with await bench.connect() as ssh:
            assert (await ssh.run("true")).exit_status == 0

    play(scenario)


def test_a_connection_dies_with_the_system_that_accepted_it() -> None:
    async def scenario(bench: Bench) -> None:
        ssh = await bench.connect()
        bench.machine.power("force_off")
        await bench.pass_time(60)
        await asyncio.wait_for(ssh.wait_closed(), 2)
        with pytest.raises((asyncssh.Error, OSError)):
            await ssh.run("true")

    play(scenario)


def test_a_reboot_is_acknowledged_then_cuts_the_connection_and_brings_another_boot() -> None:
    async def scenario(bench: Bench) -> None:
        before = bench.machine.system().boot_id
        ssh = await bench.connect()
        assert (await ssh.run("systemctl reboot")).exit_status == 0
        await asyncio.wait_for(ssh.wait_closed(), 2)
        await assert_refused(bench)
        await bench.pass_time(1)
        await bench.pass_time(600)
        async with await bench.connect() as ssh:
            after = (await ssh.run("cat /proc/sys/kernel/random/boot_id")).stdout
        assert str(after).strip() not in ("", before)

    play(scenario)


def test_a_command_that_runs_when_the_power_goes_ends_without_a_status() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            process = await ssh.create_process("tee /etc/x")  # waits for its stdin
            bench.machine.power("force_off")
            await bench.pass_time(60)
            await asyncio.wait_for(process.wait_closed(), 2)
            assert process.exit_status is None
        assert "/etc/x" not in bench.machine.state.disks[bench.machine.state.drives[1].serial].files

    play(scenario)


# --- faults ------------------------------------------------------------------------------------------------------


def test_ssh_refused_refuses_new_connections_and_keeps_those_that_are_there() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            bench.machine.inject("ssh_refused")
            await bench.pass_time(1)
            await assert_refused(bench)
            assert (await ssh.run("true")).exit_status == 0
            bench.machine.clear("ssh_refused")
            await bench.pass_time(1)
            async with await bench.connect() as another:
                assert (await another.run("true")).exit_status == 0

    play(scenario)


@pytest.mark.parametrize("fault", ["ssh_hang", "host_hung"])
def test_a_hung_host_completes_the_handshake_of_tcp_and_says_nothing(fault: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.inject(fault)
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
        writer.write(b"SSH-2.0-test\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        assert bench.server.counters.silent == 1
        bench.machine.clear(fault)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 2)
        async with await bench.connect() as ssh:
            assert (await ssh.run("true")).exit_status == 0
        writer.close()

    play(scenario)


def test_established_sessions_of_a_hung_host_stall_until_it_comes_to_itself() -> None:
    async def scenario(bench: Bench) -> None:
        async with await bench.connect() as ssh:
            bench.machine.inject("host_hung")
            asked = asyncio.create_task(ssh.run("true"))
            done, _ = await asyncio.wait([asked], timeout=0.3)
            assert not done
            bench.machine.clear("host_hung")
            assert (await asyncio.wait_for(asked, 2)).exit_status == 0

    play(scenario)


def test_a_host_may_let_us_in_and_hang_then() -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.state.faults["ssh_hang"] = {"at": "exec"}
        async with await bench.connect() as ssh:
            asked = asyncio.create_task(ssh.run("true"))
            done, _ = await asyncio.wait([asked], timeout=0.3)
            assert not done
            bench.machine.clear("ssh_hang")
            assert (await asyncio.wait_for(asked, 2)).exit_status == 0

    play(scenario)


def test_a_power_cycle_ends_what_a_hung_host_had_accepted() -> None:
    async def scenario(bench: Bench) -> None:
        ssh = await bench.connect()
        bench.machine.inject("host_hung")
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
        bench.machine.power("force_off")
        await bench.pass_time(60)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 2)
        await asyncio.wait_for(ssh.wait_closed(), 2)
        writer.close()

    play(scenario)


def test_stopping_ends_every_connection_and_frees_the_port() -> None:
    async def scenario(bench: Bench) -> None:
        ssh = await bench.connect()
        await bench.server.stop()
        await asyncio.wait_for(ssh.wait_closed(), 2)
        assert await bench.server.start(port=bench.port) == bench.port
        started = time.monotonic()
        async with await bench.connect() as ssh:
            assert (await ssh.run("true")).exit_status == 0
        assert time.monotonic() - started < 5

    play(scenario)
