"""Start child processes, and end them with all that they started, without leaving zombies."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

_DRAIN_S = 1.0


async def start(*command: str, **settings: Any) -> asyncio.subprocess.Process:
    """Start a child that leads a session of its own, as `asyncio.create_subprocess_exec` does.

    A start that is cancelled half-way may wait for ever in Python 3.11: this one is awaited, and its child ended.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, start_new_session=True, **settings))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):  # it did not start
            await reap(await starting)
        raise


async def reap(child: asyncio.subprocess.Process, *, patience_s: float = 0.0) -> None:
    """End a child that leads a session of its own, unless it has ended; works after a cancellation too.

    `patience_s`: seconds between SIGTERM and SIGKILL; 0 sends SIGKILL at once.
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
