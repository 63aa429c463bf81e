"""What a gate starts on a node ends with it, whatever it is and however the gate ends: real shells and processes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.converge.gate import AcceptanceGate
from reconciler.gate.lock import FILE, guarded, locked, unlocked
from reconciler.gate.tools import TOOLS
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Acceptance, GatePhase, GateTest
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult, Verdict
from reconciler.model.observed import Answered, HostFacts
from reconciler.model.ports import Host
from tests import builders as b
from tests.gate.cases import SEEN, gate_test, wanted

pytestmark = pytest.mark.tool  # sh, and flock and timeout of util-linux and coreutils

LONG = 3600


class RealNode:
    """Runs commands on this machine as the SSH driver does, under timeout(1), with a lock of its own.

    `deaf`: as of root's commands, no process is told when the client goes. `load`: a program whose processes are its.
    """

    def __init__(self, folder: Path, *, deaf: bool = True) -> None:
        self.lock, self.deaf, self.commands = folder / "lock", deaf, 0
        self.load = folder / f"load-{uuid.uuid4().hex}"
        self.load.write_text(f"#!/bin/sh\nexec sleep {LONG}.{uuid.uuid4().int % 10**12}\n")
        self.load.chmod(0o755)
        self.sleep = self.load.read_text().split("exec ")[1].strip()

    def words(self, argv: Sequence[str]) -> list[str]:
        return [word.replace(FILE, str(self.lock)) for word in argv]

    async def run(self, argv: Sequence[str], *, timeout: float) -> CommandResult:
        self.commands += 1
        words = ["timeout", "-k", "5", f"{timeout:g}", *self.words(argv)]
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once; what is waited for is in a thread
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            out, err = await asyncio.to_thread(process.communicate)  # as sshd: until nobody can print any more
        except asyncio.CancelledError:
            if not self.deaf:
                os.killpg(process.pid, signal.SIGTERM)
            raise
        timed_out = process.returncode == 124
        return CommandResult(-1 if timed_out else process.returncode, out.decode(), err.decode(), timed_out)

    async def facts(self, *_: Any) -> Answered[HostFacts]:
        return Answered(b.NOW, b.facts())

    @property
    def left(self) -> list[str]:
        """Return the processes of the load that run."""
        found = subprocess.run(["pgrep", "-f", "-x", self.sleep], capture_output=True, text=True, check=False)
        return found.stdout.split()

    def begun(self, number: int) -> None:
        until = time.monotonic() + 10
        while len(self.left) < number:
            assert time.monotonic() < until, "the load did not start"
            time.sleep(0.05)

    async def is_free(self) -> bool:
        return isinstance(unlocked(await self.run(locked(("true",)), timeout=10)), CommandResult)


@pytest.fixture
def node(tmp_path: Path) -> RealNode:
    return RealNode(tmp_path)


# {load} is a program that does not end by itself.
LOADS = {
    "one": "{load}",
    "one after another": "{load}; {load}",
    "side by side": "{load} & {load} & wait",
    "in a pipe": "{load} | {load}",
    "in a session of its own": "setsid {load} & {load}",
    "in a group of its own": "set -m; {load} & {load}",
    "of a parent that is gone": "(setsid {load} &) ; sleep 1; {load}",
    "that does not obey": "trap '' TERM; {load} & {load}; {load}",
}


@pytest.mark.parametrize("load", LOADS)
def test_a_load_ends_at_its_time_limit_and_gives_the_lock_up(node: RealNode, load: str) -> None:
    async def main() -> None:
        output = await node.run(locked(("sh", "-c", LOADS[load].format(load=node.load))), timeout=2)
        assert output.timed_out
        assert node.left == []
        assert await node.is_free()

    asyncio.run(main())


@pytest.mark.parametrize("load", LOADS)
def test_a_load_ends_with_the_command_that_started_it(node: RealNode, load: str) -> None:
    """Its output is whole, and arrives at once: a process that is left would keep the channel open."""
    script = f"({LOADS[load].format(load=node.load)}) & sleep 1; echo done; exit 3"

    async def main() -> None:
        output = await node.run(locked(("sh", "-c", script)), timeout=60)
        assert (output.exit_status, output.stdout, output.timed_out) == (3, "done\n", False)
        assert node.left == []
        assert await node.is_free()

    asyncio.run(main())


def test_the_load_of_a_test_may_be_several_commands(node: RealNode) -> None:
    """As args.load of pcie: a shell runs it in the background, while the links are read."""
    test = gate_test("pcie", load=f"true; {node.load}; {node.load}")
    commands = TOOLS["pcie"].commands(test, wanted(), SEEN)
    assert isinstance(commands, tuple)

    async def main() -> None:
        await node.run(locked(commands[-1]), timeout=30)
        assert node.left == []
        assert await node.is_free()

    asyncio.run(main())


def gate_of(node: Any, timeout_s: float = 3600.0, run: str = "") -> Any:
    test = GateTest("load", "command", {"run": run, "metrics": "mfu"}, (), timeout_s)
    desired = b.node(profile=replace(b.PROFILE, acceptance=Acceptance("a", (GatePhase("p", (test,)),), None)))
    return AcceptanceGate(lambda _: None).run(desired, cast("Host", node), b.observed(), VirtualClock())


@pytest.mark.parametrize("deaf", [True, False], ids=["as root", "as another user"])
def test_a_gate_that_is_cancelled_leaves_nothing(node: RealNode, deaf: bool) -> None:
    node.deaf = deaf

    async def main() -> None:
        gate = asyncio.create_task(gate_of(node, run=f"setsid {node.load} & {node.load}; {node.load}"))
        await asyncio.to_thread(node.begun, 2)
        gate.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gate
        assert node.left == []
        assert await node.is_free()

    asyncio.run(main())


def test_a_gate_whose_connection_is_lost_leaves_nothing(node: RealNode) -> None:
    """The next connection ends what the one before has started, and what the gate says is still that it was lost."""

    class Lost(RealNode):
        async def run(self, argv: Sequence[str], *, timeout: float) -> CommandResult:
            running = asyncio.create_task(super().run(argv, timeout=timeout))
            if self.commands == 0:
                await asyncio.to_thread(self.begun, 1)
                running.cancel()
                raise DriverError(Failure.AMBIGUOUS, "the connection was lost")
            return await running

    lost = Lost(node.lock.parent)

    async def main() -> None:
        with pytest.raises(DriverError, match="the connection was lost"):
            await gate_of(lost, run=f"{lost.load}; true")
        assert lost.left == []
        assert await node.is_free()

    asyncio.run(main())


def test_a_gate_ends_nothing_of_another_gate(node: RealNode) -> None:
    async def main() -> None:
        other = asyncio.create_task(gate_of(node, run=f"{node.load}; true"))
        await asyncio.to_thread(node.begun, 1)
        refused = await gate_of(node, run="echo mfu 1")
        assert refused.results[0].verdict is Verdict.ERROR
        assert "another gate runs" in refused.results[0].reasons[0]
        assert len(node.left) == 1
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other

    asyncio.run(main())


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exit 75", 75)])
def test_the_status_is_that_of_the_command(node: RealNode, script: str, status: int) -> None:
    output = asyncio.run(node.run(locked(("sh", "-c", f"echo x; {script}")), timeout=10))
    assert (output.exit_status, output.stdout) == (status, "x\n")


def test_a_program_that_is_missing_is_told_as_that(node: RealNode) -> None:
    output = asyncio.run(node.run(locked(("no-such-program",)), timeout=10))
    assert output.exit_status == 127
    assert "no-such-program" in output.stderr


def test_a_step_of_a_soak_leaves_nothing_for_the_next(node: RealNode) -> None:
    """Nor does it keep the pipe open by which its output is kept, which would stop the soak."""
    step = shlex.join(guarded(("sh", "-c", f"{node.load} & echo done")))
    ran = subprocess.run(["sh", "-c", f"{step} | cat"], capture_output=True, text=True, timeout=20, check=False)
    assert ran.stdout == "done\n"
    assert node.left == []
