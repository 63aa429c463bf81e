"""The end of child processes: neither a child, nor what it started, nor a zombie stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

_DRAIN_S = 1.0


async def reap(child: asyncio.subprocess.Process, *, patience_s: float = 0.0) -> None:
    """End a child that leads a session of its own, also after a cancellation; nothing, when it has ended by itself.

    `patience_s`: how long it may tidy up after a SIGTERM before SIGKILL.
    """
    if child.returncode is not None:
        return
    if patience_s:
        _signal(child, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await child.wait()
    _signal(child, signal.SIGKILL)
    with suppress(TimeoutError):  # a grandchild that left the session may keep the pipes open
        async with asyncio.timeout(_DRAIN_S):
            await child.communicate()


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
