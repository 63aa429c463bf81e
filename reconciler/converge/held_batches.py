"""Run the tests of a round, each with its nodes held only while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from reconciler.converge.partner_pool import GatePartners
from reconciler.converge.ports import TakenPartner

T = TypeVar("T")


async def in_batches(
    holder: GatePartners,
    asked: Sequence[tuple[T, Sequence[str]]],
    test: Callable[[T, list[TakenPartner]], Coroutine[Any, Any, None]],
    lost: Callable[[T, str], None],
) -> None:
    """Run the tests of a round with their nodes held, at once or in as many batches as there is no room for more.

    `lost` is called for tests whose nodes can't be held though no other runs, with the reason.
    """
    waiting = list(asked)
    while waiting:
        batch: list[tuple[T, list[TakenPartner]]] = []
        why: dict[int, str] = {}
        try:
            for at, (one, names) in enumerate(waiting):
                held = await _hold(holder, names)
                if isinstance(held, str):
                    why[at] = held
                else:
                    batch.append((one, held))
            async with asyncio.TaskGroup() as tasks:
                for one, nodes in batch:
                    tasks.create_task(test(one, nodes))
        finally:
            for _, nodes in batch:
                await _free(holder, nodes)
        if not batch:
            for at, (one, _) in enumerate(waiting):
                lost(one, why[at])
            return
        waiting = [one for at, one in enumerate(waiting) if at in why]


async def _hold(holder: GatePartners, names: Sequence[str]) -> list[TakenPartner] | str:
    held: list[TakenPartner] = []
    try:
        for name in names:
            taken = await holder.pool.hold(holder, name)
            if isinstance(taken, str):
                await _free(holder, held)
                return f"{name}: {taken}"
            held.append(taken)
    except BaseException:  # a cancellation too: nobody else knows that they are held
        await _free(holder, held)
        raise
    return held


async def _free(holder: GatePartners, held: Sequence[TakenPartner]) -> None:
    for one in held:
        await holder.free(one)
