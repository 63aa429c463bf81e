"""Run a command of the gate alone on a node, and leave nothing of it behind."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from reconciler.gate.lock import end, locked, of_run
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult
from reconciler.model.ports import Host

_END_S: Final = 15.0  # for what a command has started to end


async def run_alone(argv: Sequence[str], host: Host, timeout: float) -> CommandResult:
    """Run one command alone on the node. Whatever happens, nothing that it started stays there.

    Its guard sees to that where it is told of the end. That it was told is not known after a time limit, when nobody
    waits for the command any more, or when the connection was lost.
    """
    run = secrets.token_hex(8)
    try:
        output = await host.run(locked(of_run(run, argv)), timeout=timeout)
    except (DriverError, asyncio.CancelledError):
        await end_run(run, host)
        raise
    if output.timed_out:
        await end_run(run, host)
    return output


async def end_run(run: str, host: Host) -> None:
    with suppress(DriverError):  # a host that can't be reached: timeout(1) there ends the command, and then its guard
        await host.run(end(run), timeout=_END_S)
