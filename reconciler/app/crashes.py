"""Bugs that showed in the work on single nodes: told on stderr as they come; the exit code says that there were any.

Each place is told once with its traceback: a bug that ten thousand equal nodes bring to light is one bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.terminal import say
from reconciler.model.crash import Crash, told_to
from reconciler.render.text import plain

_LONGEST = 1000  # characters of a line


def to_stderr(node: str, sentence: str, trace: str) -> None:
    lines = [f"{node}: {sentence}", *(f"  {line}" for line in trace.splitlines())]
    say(*(plain(line, _LONGEST) for line in lines), err=True)


class Crashes:
    """`terse`: no word that a machine may have said, where others read them. `sink`: node, sentence and traceback."""

    def __init__(self) -> None:
        self.sink: Callable[[str, str, str], None] = to_stderr
        self.terse = False
        self.count = 0
        self._places: set[tuple[str, str]] = set()

    @property
    def code(self) -> ExitCode:
        return ExitCode.INTERNAL_ERROR if self.count else ExitCode.DONE

    def forget(self) -> None:
        self.terse, self.count = False, 0
        self._places.clear()

    def __call__(self, crash: Crash) -> None:
        self.count += 1
        place = (crash.at, crash.kind)
        sentence, trace = crash.sentence, "" if place in self._places else crash.trace
        self._places.add(place)
        if self.terse:
            sentence, trace = f"internal error while {crash.doing}: {crash.kind} at {crash.at}", ""
        self.sink(crash.node, sentence, trace)


CRASHES: Final = Crashes()  # of the command that runs


@contextmanager
def told_crashes() -> Iterator[Crashes]:
    """Collect and print the crashes of one command, which starts with a count of zero."""
    CRASHES.forget()
    with told_to(CRASHES):
        yield CRASHES
