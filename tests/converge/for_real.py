"""A command of a fleet in virtual time that is run on a real host, and may be cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from reconciler.drivers.ssh import SshHost
from reconciler.lab.hardware.tools.call import Call
from reconciler.model.gate import CommandResult
from tests.converge.test_k3s_killed import Killed
from tests.drivers.ssh.conftest import closing

TIMEOUT_S = 60.0


def run_for_real(connect: Callable[[], SshHost], call: Call, dies: str, cut_s: float) -> CommandResult:
    """Run it over SSH. `dies`: when the process that asked is killed ("before", "in the midst", "after"); "" = never.

    In the midst is `cut_s` seconds after it was sent. Raise Killed.
    """
    if dies == "before":
        raise Killed
    cut = dies == "in the midst"

    async def once() -> CommandResult:
        async with closing(connect()) as host:
            task = asyncio.create_task(host.run((call.name, *call.args), timeout=TIMEOUT_S, stdin=call.stdin))
            if cut:
                await asyncio.sleep(cut_s)
                return CommandResult(-1, "", "", timed_out=True)
            return await task

    with ThreadPoolExecutor(1) as pool:  # the fleet's own loop runs in virtual time
        result = pool.submit(asyncio.run, once()).result(1.5 * TIMEOUT_S)
    if dies:
        raise Killed
    return result
