"""One question to one source: what it answers within its deadline, or why it is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from reconciler.converge.deadline import within
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.errors import SILENT_BECAUSE, DriverError
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import Clock
from reconciler.model.units import format_duration
from reconciler.model.vocab import UnknownReason

T = TypeVar("T")

LEAST_REAL_S = 5.0  # a scaled clock shortens deadlines; loopback servers, kubectl and threads stay as slow as they are


def io_seconds(clock: Clock, seconds: float) -> float:
    """Return the wall-clock seconds of an I/O deadline that is given in fleet time."""
    return max(LEAST_REAL_S, clock.real_seconds(seconds))


def crashed(clock: Clock, crash: Crash) -> Silent:
    return Silent(clock.now(), UnknownReason.CRASHED, crash.sentence)


async def answer(
    read: Callable[[], Awaitable[Answered[T] | Silent]], deadline_s: float, clock: Clock, *, node: str = "the cluster"
) -> Answered[T] | Silent:
    """Return what one source answers within its deadline, or Silent with the reason.

    A read that somebody else cancels is silence too, and so is one that crashes in our own code: the other sources are
    read all the same (invariant 22).
    """

    async def told() -> Answered[T] | Silent:
        try:
            return await read()
        except DriverError as error:
            return Silent(clock.now(), SILENT_BECAUSE[error.kind], error.detail)
        except TimeoutError:
            return late()

    def late() -> Silent:
        return Silent(clock.now(), UnknownReason.TIMEOUT, f"no answer within {format_duration(deadline_s)}")

    understood = of_its_own_async(node, "reading it", told, lambda crash: crashed(clock, crash))
    try:
        return await within(io_seconds(clock, deadline_s), understood)
    except TimeoutError:
        return late()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Silent(clock.now(), UnknownReason.UNREACHABLE, "the read was cut off")
