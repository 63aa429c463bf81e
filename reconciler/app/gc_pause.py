"""When to look for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Not inside: a fleet that is loaded or planned is values by the million, which all stay and make no cycles.

    To look through them again and again, as they become more, takes up to a seventh of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
