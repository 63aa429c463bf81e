"""Call code of others with a limit, on what a broken node prints: what the checks of extensions share."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from reconciler.drivers.extensions.load import Offered
from reconciler.drivers.probes import WrongAnswerError, expect
from reconciler.drivers.ssh.facts.fact import excerpt

API: Final = "reconciler/drivers/extensions/api.py"
_LIMIT_S: Final = 2.0  # of one call: a pass waits for it, and so do leases and signals
# What tools print that are broken, half installed, or wrapped. None holds a measurement.
WORDS: Final = (
    "", "\n", "garbage", "command not found", "Error: unable to open device: Permission denied", "null", "{}", "[]",
    '{"error": "busy"}', "<html><body>Bad Gateway</body></html>", "\x00\ufffd\u202e", "Killed\n", "{" * 5_000,
    "a" * 100_000, " " * 100_000, "a:" * 50_000,
)  # fmt: skip
STRANGE: Final = (*WORDS, "-1", "nan", "1e999", "9" * 5_000, "1/0", "md0 : " * 20_000)


@dataclass
class Bench:
    """One extension. `facts`: names of the facts of its package. `found`: what was loaded."""

    offered: Offered
    facts: Collection[str]
    found: Any = None


def called(what: str, call: Callable[[], Any], refusal: type[Exception]) -> Any:
    """Return what the call returns, None where it refuses as it may. Raise WrongAnswerError for any other error."""
    try:
        with _in_time(what):
            return call()
    except WrongAnswerError:
        raise
    except refusal:
        return None
    except Exception as error:  # code of others may raise anything
        raise WrongAnswerError(f"{what} raises {type(error).__name__}: {excerpt(str(error))}") from error


async def parsed_by_shell(line: str) -> None:
    """Have the shell read a line. It runs nothing of it."""
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("sh", "-n", "-c", line, stdin=null, stdout=null, stderr=pipe)
    _, said = await process.communicate()
    expect(process.returncode == 0, f"the shell can't read {line[:80]!r}: {excerpt(said.decode(errors='replace'))}")


@contextmanager
def _in_time(what: str) -> Iterator[None]:
    """End a call that computes for too long. A regular expression lets no other thread run, but handlers of signals."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise WrongAnswerError(f"{what} takes longer than {_LIMIT_S:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S, _LIMIT_S)  # again, for code that goes on after an exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
