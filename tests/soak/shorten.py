"""Shorten a failing example: drop steps as long as the same invariant breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.soak.machine import BrokenInvariant, FleetMachine, Step

S = TypeVar("S")


def replay(steps: Sequence[Step], kind: type[FleetMachine] = FleetMachine) -> str:
    """Replay exactly these steps; return the broken invariant, or ""."""
    machine = kind()
    machine.scheduled = False
    try:
        for name, arguments in steps:
            getattr(machine, name)(**arguments)
            machine.holds_true()
    except BrokenInvariant as broken:
        return str(broken)
    finally:
        told = _end(machine)
    return told


def _end(machine: FleetMachine) -> str:
    try:
        machine.teardown()
    except BrokenInvariant as broken:
        return str(broken)
    return ""


def shorten(steps: Sequence[Step], kind: type[FleetMachine] = FleetMachine) -> tuple[list[Step], str]:
    """Shorten `steps`, the steps of the failing run."""
    return shortest(steps, lambda fewer: replay(fewer, kind))


def shortest(steps: Sequence[S], play: Callable[[Sequence[S]], str]) -> tuple[list[S], str]:
    """Return (a list from which no single step can be dropped, the invariant that it breaks as "invariant: ...")."""
    left, told = list(steps), play(steps)
    if not told:
        return left, ""
    invariant, size = told.partition(":")[0], max(len(left) // 2, 1)
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            found = play(fewer)
            if found.startswith(invariant):
                left, told = fewer, found
            else:
                at += size
        size //= 2
    return left, told
