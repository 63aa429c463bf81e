"""Random schedules of signals on the loop, as many as time allows, with seeds that nobody has played before.

Nine of ten have their ledger in memory, which tests/faults/test_signals.py compares with one on disk; one of ten is
played whole, with the hours before and after in which mostly nothing happens.
"""

from __future__ import annotations

import gc
import secrets
import sys
import time
from collections.abc import Sequence

from tests.bench.report import Table
from tests.faults.signal_schedule import draw, play

SEEDS = 1 << 40
TOLD_EACH = 100  # schedules
OBJECTS = 50_000  # made between two collections: each play leaves its cycles, and the modules' never become garbage


def quiet_collector() -> None:
    """Have the collector of garbage leave out what all plays share, and look less often for what each has left."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, 10, 10)


def section(count: int, first: int | None = None) -> Sequence[Table]:
    """Play so many schedules from a seed on, by default a drawn one. Print each that breaks a rule as it is found."""
    first = secrets.randbelow(SEEDS) if first is None else first
    print(f"{count} schedules, seeds {first} to {first + count - 1}", file=sys.stderr, flush=True)
    quiet_collector()
    began, broken, signals, isolated, rungs, messages = time.process_time(), 0, 0, 0, 0, 0
    for at in range(count):
        schedule = draw(first + at)
        played = play(schedule, on_disk=at % 10 == 0, whole=at % 10 == 5)
        if played.broken:
            broken += 1
            print(f"seed {first + at}: {'; '.join(played.broken)}", file=sys.stderr, flush=True)
        signals, isolated = signals + len(schedule), isolated + played.isolated
        rungs, messages = rungs + played.rungs, messages + played.messages
        if (at + 1) % TOLD_EACH == 0:
            print(f"{at + 1} played, {broken} broke a rule", file=sys.stderr, flush=True)
    each = (time.process_time() - began) / count
    return [
        Table(
            f"Random schedules of signals, seeds {first} to {first + count - 1}",
            ("schedules", "signals", "nodes isolated", "rungs climbed", "messages", "broke a rule", "CPU s each"),
            [(count, signals, isolated, rungs, messages, broken, each)],
        )
    ]
