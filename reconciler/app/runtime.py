"""The process that a use case runs in: its event loop, its signals, its garbage collector and its name."""

from __future__ import annotations

import asyncio
import gc
import getpass
import multiprocessing
import os
import secrets
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from reconciler.model.errors import first_of_ours

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop and return its result.

    SIGINT and SIGTERM cancel `work` each time they arrive, so that a second one cuts its cleanup short; the
    cancellation is raised as KeyboardInterrupt. asyncio's own handler would raise a KeyboardInterrupt at any line for
    the second signal, for instance while the journal is written. The result is not that of the main task, because
    asyncio formats the result of a finished main task twice. A group of our own errors is raised as its first.
    """
    found: list[T] = []

    async def keep() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        found.append(await work)

    try:
        asyncio.run(keep())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except ExceptionGroup as group:
        if (error := first_of_ours(group)) is None:
            raise
        raise error from None
    return found[0]


def end_with_parent() -> None:
    """End this child process when its parent dies: a pool of processes would be left behind by SIGKILL."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Collect no garbage while a fleet is loaded or planned, or a report is made.

    That makes millions of values that all stay and form no cycles. Scanning them again and again as they grow takes up
    to a seventh of the time of a plan, and two fifths of that of a report.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def new_id(prefix: str, now: datetime) -> str:
    """Return a readable, sortable ID that no other run has: the prefix, the time and 24 random bits."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def whoami() -> str:
    """Return the name under which others see our leases and holds: RECONCILER_ACTOR, or user, host and process."""
    return os.environ.get("RECONCILER_ACTOR") or f"{_user()}@{socket.gethostname()} pid {os.getpid()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a passwd entry, as containers have
        return f"uid {os.getuid()}"
