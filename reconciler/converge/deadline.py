"""A deadline for calls, as cheap as no deadline for calls that never wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")

_Step = Generator[Any, Any, Any]


@coroutine
def within(seconds: float, call: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await `call`, and raise TimeoutError when it takes longer than `seconds` of wall-clock time.

    Unlike `asyncio.timeout`, it sets no timer for a call that never waits. In virtual time nearly every call is such,
    and a rehearsal of thousands of nodes makes a hundred of them per node.
    """
    steps: Any = call.__await__()
    try:
        first = steps.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    return cast("T", (yield from _timed(seconds, first, steps).__await__()))


async def _timed(seconds: float, first: object, steps: _Step) -> Any:
    async with asyncio.timeout(seconds):
        return await _rest(first, steps)


@coroutine
def _rest(first: object, steps: _Step) -> Generator[Any, Any, Any]:
    """Continue `yield from steps` (PEP 380) after its first step has been taken."""
    waits_for = first
    while True:
        step: Callable[[], object]
        try:
            step = partial(steps.send, (yield waits_for))
        except BaseException as thrown:  # noqa: BLE001 - a cancellation: the call itself handles it
            step = partial(steps.throw, thrown)
        try:
            waits_for = step()
        except StopIteration as ended:
            return ended.value
