"""A crash in the work on one node is that node's result, and no other's (invariant 22).

`of_its_own` and `of_its_own_async` are the only places that catch unexpected errors. All work for one node after
another goes through them: reading, planning, acting, remembering, rendering. They report what they catch. Errors that
end a run by design (model/errors.py) and cancellations go through.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from reconciler.model.errors import DriverError, ReconcilerError

T = TypeVar("T")

_LONGEST: Final = 300  # characters of a message, which may quote what a machine said
_PACKAGE: Final = __file__.rpartition("model/")[0]


@dataclass(frozen=True, slots=True)
class Crash:
    """An unexpected error. `doing`: "planning it"; `error`: type and message; `at`: our innermost line of code."""

    node: str
    doing: str
    error: str
    at: str
    trace: str

    @property
    def kind(self) -> str:
        return self.error.partition(":")[0]

    @property
    def sentence(self) -> str:
        return f"internal error while {self.doing}: {self.error} at {self.at}; this is a bug of the reconciler"


_listener: ContextVar[Callable[[Crash], None] | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Callable[[Crash], None]) -> Iterator[None]:
    """Call a function with each crash as it happens, here and in tasks that begin here: no document may show it."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def of_its_own(node: str, doing: str, work: Callable[[], T], instead: Callable[[Crash], T]) -> T:
    """Return the result of `work`, or of `instead` when `work` crashes."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the boundary: see above
        return instead(_crash(error, node, doing))


async def of_its_own_async(node: str, doing: str, work: Callable[[], Awaitable[T]], instead: Callable[[Crash], T]) -> T:
    """Do as `of_its_own` does, for a coroutine."""
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - the boundary: see above
        return instead(_crash(error, node, doing))


def _crash(error: Exception, node: str, doing: str) -> Crash:
    """Return the crash, and report it to the listener. Raise the error again if it is one that ends the run."""
    met = _parts(error)
    if any(isinstance(one, ReconcilerError) and not isinstance(one, DriverError) for one in met):
        raise error
    message = " ".join(str(met[0]).split())[:_LONGEST]
    told = type(met[0]).__name__ + (f": {message}" if message else "")
    crash = Crash(node, doing, told, _place(met[0]), "".join(traceback.format_exception(error)))
    tell = _listener.get()
    if tell is not None:
        tell(crash)
    return crash


def _parts(error: BaseException) -> list[BaseException]:
    """Return the errors in a group: tasks raise theirs in groups."""
    if isinstance(error, BaseExceptionGroup):
        return [part for inner in error.exceptions for part in _parts(inner)]
    return [error]


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE) and frame.filename != __file__]
    last = (ours or frames)[-1]
    return f"{last.filename.removeprefix(_PACKAGE)}:{last.lineno}"
