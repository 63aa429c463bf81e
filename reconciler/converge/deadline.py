"""Calls that must end."""

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
    """As under `asyncio.timeout`: TimeoutError when it takes longer, in wall-clock seconds.

    What ends without ever waiting needs no timer and gets none: in virtual time that is nearly every call, and a
    rehearsal of thousands of nodes makes a hundred of them a node.
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
    """`yield from steps`, of which the first step has been taken (PEP 380)."""
    waits_for = first
    while True:
        step: Callable[[], object]
        try:
            step = partial(steps.send, (yield waits_for))
        except BaseException as thrown:  # noqa: BLE001 - a cancellation, which is the call's own to deal with
            step = partial(steps.throw, thrown)
        try:
            waits_for = step()
        except StopIteration as ended:
            return ended.value
