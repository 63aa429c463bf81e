"""The gate's tools for the host, run for real over a real SSH server, in sizes of a second or so."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.gate.evidence import required_metrics
from reconciler.gate.lock import end, locked, of_run, unlocked
from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.fio_verify import FILE
from reconciler.gate.tools.shell import SCRATCH
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gate_arguments import Value
from tests.drivers.ssh.conftest import HostFactory, Server, closing, free_port
from tests.gate.cases import SEEN, wanted

HUGE = 6000  # an order of the matrix with which hpcc does not end in two seconds
# One gate runs on a node at a time, and takes away what the one before it left: so do these tests.
pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.xdist_group("gate-tools")]


def run(make_host: HostFactory, sshd: Server, tool: str, **args: Value) -> TestResult:
    program = {"fio-verify": "fio", "command": "sh"}.get(tool, tool)
    if shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin") is None:
        pytest.skip(f"{program} is not installed")
    timeout = 60.0 if args.get("order") != HUGE else 2.0
    test = GateTest(tool, tool, args, (), timeout)
    commands = TOOLS[tool].commands(test, wanted(), SEEN)
    assert isinstance(commands, tuple), commands

    async def outputs() -> list[CommandResult]:
        async with closing(make_host(sshd.port)) as host:
            return [await host.run(argv, timeout=timeout) for argv in commands]

    return TOOLS[tool].judge(test, wanted(), SEEN, asyncio.run(outputs()))


CASES: Mapping[str, Mapping[str, Value]] = {
    "stress-ng": {"stressors": "cpu,vm", "workers": 1, "seconds": 1, "memory": "16M"},
    "memtester": {"mebibytes": 1},
    "hpcc": {"order": 300},
    "command": {"run": "printf 'step 1\\nmfu 0.42\\nhash a1b2\\n'", "metrics": "mfu", "repeat": 2, "same": "hash"},
}


@pytest.mark.parametrize("tool", CASES)
def test_it_passes_and_has_every_metric(make_host: HostFactory, sshd: Server, tool: str) -> None:
    result = run(make_host, sshd, tool, **CASES[tool])
    assert result.verdict is Verdict.PASS, result
    assert set(required_metrics(GateTest(tool, tool, CASES[tool], (), 60.0))) <= set(result.metrics)
    assert all(value > 0 for name, value in result.metrics.items() if not name.endswith(".spread"))


def test_iperf3_over_loopback_leaves_no_server(make_host: HostFactory, sshd: Server) -> None:
    port = free_port()
    for _ in range(2):  # the second could not bind the port if the first had left its server
        result = run(make_host, sshd, "iperf3", seconds=1, port=port)
        assert result.verdict is Verdict.PASS, result
        assert result.metrics["gbps"] > 0
    refused = run(make_host, sshd, "iperf3", seconds=1, port=port, server="127.0.0.1")
    assert refused.verdict is Verdict.ERROR
    assert "unable to connect" in refused.reasons[0]


def test_fio_leaves_nothing_and_touches_no_file_of_others(make_host: HostFactory, sshd: Server, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    result = run(make_host, sshd, "fio-verify", directory=str(tmp_path), mebibytes=4)
    assert result.verdict is Verdict.PASS, result
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    (tmp_path / FILE).symlink_to(tmp_path / "other")
    linked = run(make_host, sshd, "fio-verify", directory=str(tmp_path), mebibytes=4)
    assert linked.verdict is Verdict.ERROR
    assert (tmp_path / "other").read_text() == "mine"
    missing = run(make_host, sshd, "fio-verify", directory=str(tmp_path / "none"), mebibytes=4)
    assert missing.verdict is Verdict.ERROR


def test_what_hangs_is_killed_and_leaves_nothing(make_host: HostFactory, sshd: Server) -> None:
    result = run(make_host, sshd, "hpcc", order=HUGE)
    assert result.verdict is Verdict.ERROR
    assert result.reasons == ("killed at its timeout",)
    assert list(Path("/tmp").glob(f"{SCRATCH}.??????")) == []
    assert subprocess.run(["pgrep", "-x", "hpcc"], capture_output=True, check=False).stdout == b""


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -9 $$", "killed"),
        ("echo mfu 0.4; exit 3", "exit status 3"),
        ("no-such-program", "not installed"),
        ("printf 'mfu 0.4'", "breaks off"),
        ("echo mfu nan", "no finite number"),
        ("echo mfu 0,4", "no finite number"),
        ("echo mfu 0.4 >/dev/full", "exit status"),
        ("echo mfu 0.4; echo mfu 0.5", "more than once"),
        ("head -c 2000000 /dev/zero | tr '\\0' x; echo; echo mfu 0.4", "more than 1048576"),
        ("echo loss 2", "does not print mfu"),
    ],
)
def test_a_program_of_the_site_that_gives_no_evidence(
    make_host: HostFactory, sshd: Server, script: str, reason: str
) -> None:
    result = run(make_host, sshd, "command", run=script, metrics="mfu")
    assert result.verdict in (Verdict.ERROR, Verdict.UNJUDGED)
    assert reason in result.reasons[0]


def test_a_hash_that_differs_between_two_runs_fails(make_host: HostFactory, sshd: Server, tmp_path: Path) -> None:
    script = f"echo x >>{tmp_path}/runs; echo mfu 0.4; echo hash $(wc -l <{tmp_path}/runs)"
    result = run(make_host, sshd, "command", run=script, metrics="mfu", repeat=2, same="hash")
    assert result.verdict is Verdict.FAIL
    assert result.reasons == ("hash differs between runs: 1, 2",)


def test_what_a_killed_gate_left_goes_with_the_next(make_host: HostFactory, sshd: Server) -> None:
    """SIGKILL runs no trap: the directory stays until the next gate, and no longer."""
    left = Path("/tmp") / f"{SCRATCH}.abcdef"
    left.mkdir(exist_ok=True)
    (left / "out.yaml").write_text("half")
    result = run(make_host, sshd, "stress-ng", **CASES["stress-ng"])
    assert result.verdict is Verdict.PASS, result
    assert not left.exists()


def test_one_gate_at_a_time_runs_on_a_node(make_host: HostFactory, sshd: Server) -> None:
    """The second is told at once; a killed one holds nothing, and a program that is missing is still told as that."""

    async def both() -> list[CommandResult | str]:
        async with closing(make_host(sshd.port)) as one, closing(make_host(sshd.port)) as other:
            first = asyncio.create_task(one.run(locked(("sleep", "30")), timeout=2))
            await asyncio.sleep(0.7)
            second = unlocked(await other.run(locked(("true",)), timeout=10))
            await first
            third = await other.run(locked(("echo", "free")), timeout=10)
            return [second, unlocked(third), unlocked(await one.run(locked(("no-such-program",)), timeout=10))]

    held, free, missing = asyncio.run(both())
    assert isinstance(held, str)
    assert "another gate" in held
    assert free == CommandResult(0, "free\n")
    assert isinstance(missing, CommandResult)
    assert missing.exit_status == 127


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "at its time limit"])
def test_a_load_of_several_commands_ends_with_its_gate(make_host: HostFactory, sshd: Server, cancelled: bool) -> None:
    """Whoever logs in: sshd tells none of root's commands that nobody waits for it any more."""
    load = ("sh", "-c", "setsid sleep 271.828 & sleep 271.828; sleep 271.828")

    async def main() -> list[CommandResult | str]:
        async with closing(make_host(sshd.port)) as one, closing(make_host(sshd.port)) as other:
            running = asyncio.create_task(one.run(locked(of_run("r1", load)), timeout=600 if cancelled else 2))
            await asyncio.sleep(1)
            held = unlocked(await other.run(locked(("true",)), timeout=10))
            if cancelled:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            else:
                assert (await running).timed_out
            await one.run(end("r1"), timeout=15)
            return [held, unlocked(await other.run(locked(("echo", "free")), timeout=10))]

    held, free = asyncio.run(main())
    assert isinstance(held, str)
    assert free == CommandResult(0, "free\n")
    left = subprocess.run(["pgrep", "-f", "-x", "sleep 271.828"], capture_output=True, check=False)
    assert left.stdout == b""
