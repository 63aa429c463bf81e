"""`python -m tests.converge.soak_process JSON`: follow a soak over real SSH, as the reconciler's run_gate does.

It prints a line for each look, and at the end the verdict. The machine has no GPUs, so its passive health is made up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from reconciler.converge.ports import SoakRun
from reconciler.converge.soak import Follower
from reconciler.drivers.ssh.host import SshHost
from reconciler.gate.certificate import judge_test
from reconciler.model import soak
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Answered, HostFacts
from tests import builders as b
from tests.gate.cases import wanted

HEALTHY = Answered(b.NOW, b.facts())
FACTOR = 20  # by which waits are shorter; commands have their whole time, on a machine that may be busy


class ShortClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return FACTOR * time.monotonic()

    def real_seconds(self, seconds: float) -> float:
        return seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FACTOR)


class Node:
    """Runs commands over SSH."""

    def __init__(self, port: int, key: str) -> None:
        self.ssh = SshHost(
            "n1", "127.0.0.1", port=port, user="root", private_key=key, insecure=True, connect_timeout=3.0,
            now=lambda: datetime.now(UTC),
        )  # fmt: skip

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        return await self.ssh.run(argv, timeout=timeout, stdin=stdin)

    async def facts(self, *_: object) -> Answered[HostFacts]:
        return HEALTHY


async def follow(port: int, key: str, seconds: int, run: str, resumed: bool) -> None:
    load = GateTest("train", "command", {"run": run, "metrics": "speed"}, (Threshold("speed", 50.0),), 60.0)
    (test,) = soak.phase(seconds, 20.0, (load,)).tests
    node = Node(port, key)
    observed = replace(b.observed(), host=HEALTHY)
    told = SoakRun("a1", resumed, lambda words: print(words, flush=True))
    desired = wanted(gpus=len(HEALTHY.value.gpus or ()))
    follower = Follower(test, desired, observed, node, ShortClock(), told)  # type: ignore[arg-type]  # parts of ports
    try:
        result = await follower.result()
    finally:
        await node.ssh.close()
    verdict, reasons = judge_test(test, result)
    print(json.dumps({"verdict": verdict.value, "why": "; ".join(reasons), "metrics": dict(result.metrics)}))


if __name__ == "__main__":
    asyncio.run(follow(**json.loads(sys.argv[1])))
