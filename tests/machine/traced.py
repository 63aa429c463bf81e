"""`python -m tests.machine.traced WORDS`: our command line, which notes when it waits for an answer of another machine.

Each call to a BMC or a host has a deadline, and that is where calls are noted: one line in the file that MACHINE_CALLS
names, when the answer is there, with both times of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reconciler.cli.main import main
from reconciler.converge import deadline

CALLS = "MACHINE_CALLS"


def noted(call: Callable[..., Coroutine[Any, Any, Any]], file: Path) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a call that notes in a file from when to when it waited."""

    async def awaited(*arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return await call(*arguments)
        finally:
            with file.open("a") as lines:
                lines.write(f"{began} {time.monotonic()}\n")

    return awaited


def calls_in(file: Path) -> list[tuple[float, float]]:
    """Return from when to when each call of the commands that wrote this file waited."""
    spans = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(float(began), float(ended)) for began, ended in spans]


if __name__ == "__main__":
    deadline._timed = noted(deadline._timed, Path(os.environ[CALLS]))
    main()
