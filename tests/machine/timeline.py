"""Where the time of a step went: each part ends when a line is printed, by the machine or by our command.

Ours is the time in which the machine had nothing to do: no call to it or to its BMC was under way, and it did not boot,
fetch or write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Lines = Sequence[tuple[float, str]]
Span = tuple[float, float]  # from, to


@dataclass(frozen=True)
class Part:
    """A part of a step. It ends with the first line, on the console or of the command, that holds one of `words`."""

    name: str
    words: tuple[str, ...]
    machine: bool = False  # the machine is at work in it, and we wait for it


@dataclass(frozen=True)
class Took:
    """How long a part took, and how much of that was ours, in seconds."""

    name: str
    seconds: float
    ours: float


# An installation, in the order of its parts. A part whose words are not printed is added to the next one.
INSTALL = (
    Part("observe", ("reimage ...",)),
    Part("medium", ("reimage: powering on",)),
    Part("POST", ("BdsDxe: starting",), machine=True),
    Part("boot of the installer", ("[installer ",), machine=True),
    Part("fetch", ("] writing:",), machine=True),
    Part("write", ("] written:",), machine=True),
    Part("finish", ("] installed:",), machine=True),
    Part("off and disk next", ("reimage: powering on",)),
    Part("POST of the image", ("BdsDxe: starting",), machine=True),
    Part("boot of the image", ("reimage: done",), machine=True),
    Part("gate", ("run_gate: done",)),
    Part("rest", ("Apply run-",)),
)


def parts_of(began: float, lines: Lines, parts: Sequence[Part], calls: Sequence[Span] = ()) -> list[Took]:
    """Return what each part took. `lines`, `calls`: of one clock, in any order."""
    found, since, at, waiting, machine = [], began, 0, "", False
    ordered = sorted(line for line in lines if line[0] >= began)
    for part in parts:
        name, machine = f"{waiting} and {part.name}" if waiting else part.name, machine or part.machine
        match = next((i for i in range(at, len(ordered)) if any(words in ordered[i][1] for words in part.words)), None)
        if match is None:
            waiting = name
            continue
        ended = ordered[match][0]
        found.append(Took(name, ended - since, 0.0 if machine else ended - since - covered((since, ended), calls)))
        since, at, waiting, machine = ended, match + 1, "", False
    return found


def covered(span: Span, calls: Sequence[Span]) -> float:
    """Return in how many seconds of a span at least one call was under way."""
    total, at = 0.0, span[0]
    for began, ended in sorted(calls):
        first, last = max(began, at), min(ended, span[1])
        if last > first:
            total, at = total + last - first, last
    return total


def shown(step: str, parts: Sequence[Took]) -> str:
    """Return one line: the step, its time, where it went, and how much of it was ours."""
    total, ours = sum(part.seconds for part in parts), sum(part.ours for part in parts)
    spent = ", ".join(f"{part.name} {part.seconds:.0f}" for part in parts)
    return f"{step}: {total:.0f} s = {spent}; ours {ours:.1f} s"
