"""Where the time of a step went: each part ends when a line is printed, by the machine or by our command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Lines = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Part:
    """A part of a step. It ends with the first line, on the console or of the command, that holds one of `words`."""

    name: str
    words: tuple[str, ...]


# An installation, in the order of its parts. A part whose words are not printed is added to the next one.
INSTALL = (
    Part("observe", ("reimage ...",)),
    Part("medium", ("reimage: powering on",)),
    Part("POST", ("BdsDxe: starting",)),
    Part("boot of the installer", ("[installer ",)),
    Part("fetch", ("] writing:",)),
    Part("write", ("] written:",)),
    Part("finish", ("] installed:",)),
    Part("POST of the image", ("BdsDxe: starting",)),
    Part("boot of the image", ("reimage: done",)),
    Part("gate", ("run_gate: done",)),
    Part("rest", ("Apply run-",)),
)


def parts_of(began: float, lines: Lines, parts: Sequence[Part]) -> list[tuple[str, float]]:
    """Return the seconds of each part. Lines are of one clock, in any order."""
    found, since, at, waiting = [], began, 0, ""
    ordered = sorted(line for line in lines if line[0] >= began)
    for part in parts:
        name = f"{waiting} and {part.name}" if waiting else part.name
        match = next((i for i in range(at, len(ordered)) if any(words in ordered[i][1] for words in part.words)), None)
        if match is None:
            waiting = name
            continue
        ended = ordered[match][0]
        found.append((name, ended - since))
        since, at, waiting = ended, match + 1, ""
    return found


def shown(step: str, parts: Sequence[tuple[str, float]]) -> str:
    """Return one line: the step, its time, and where it went."""
    total = sum(seconds for _, seconds in parts)
    return f"{step}: {total:.0f} s = " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in parts)
