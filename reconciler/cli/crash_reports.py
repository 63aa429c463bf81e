"""Reports of bugs that showed in the work on single nodes: each on stderr as it occurs, and all in the exit code.

A traceback is printed once per place in the code, since a bug that shows on ten thousand equal nodes is one bug.
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


def print_crash(node: str, sentence: str, trace: str) -> None:
    lines = [f"{node}: {sentence}", *(f"  {line}" for line in trace.splitlines())]
    say(*(plain(line, _LONGEST) for line in lines), err=True)


class CrashReporter:
    """Counts crashes and hands each to `sink` as node, sentence and traceback.

    `terse` leaves out every text that a machine may have reported, for logs that others read.
    """

    def __init__(self) -> None:
        self.sink: Callable[[str, str, str], None] = print_crash
        self.terse = False
        self.count = 0
        self._places: set[tuple[str, str]] = set()

    @property
    def code(self) -> ExitCode:
        return ExitCode.INTERNAL_ERROR if self.count else ExitCode.DONE

    def reset(self) -> None:
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


CRASHES: Final = CrashReporter()  # one per process, which runs one command


@contextmanager
def reported_crashes() -> Iterator[CrashReporter]:
    """Report the crashes of one command, counted from zero."""
    CRASHES.reset()
    with told_to(CRASHES):
        yield CRASHES
