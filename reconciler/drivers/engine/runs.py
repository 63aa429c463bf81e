"""Play runs of a rehearsal on the workers of an engine, of any site: what they need travels, without a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from reconciler.drivers.engine.access import EngineAccess, EngineError
from reconciler.drivers.engine.client import EngineClient
from reconciler.drivers.engine.worker import rehearse_run

RUN_S: Final = 6 * 3600.0  # after which nobody waits for a run; a worker that dies or hangs is noticed at once


async def run_on_workers(access: EngineAccess, tasks: Sequence[Callable[[], bytes]]) -> list[bytes | str]:
    """Return the result of each task, in their order, or why there is none. Each is made at its turn. Never raises."""
    client = EngineClient(access)

    async def one(pack: Callable[[], bytes]) -> bytes | str:
        try:
            return await client.call_any(rehearse_run, pack, RUN_S)
        except EngineError as error:
            return str(error)

    try:
        async with client.working():
            return list(await asyncio.gather(*map(one, tasks)))
    finally:
        await client.close()
