"""Expand Slurm's hostlist expressions, as in `n[01-03,7],login` (slurm.conf(5), NodeName). Pure."""

from __future__ import annotations

import itertools
import re
from typing import Final

_MOST: Final = 200_000
_OUTSIDE: Final = re.compile(r",(?![^\[]*\])")  # a comma that is in no brackets
_BRACKETS: Final = re.compile(r"\[([0-9,-]*)\]")


def expand(text: str) -> list[str]:
    """Return the names, in order; [] for "". Raise ValueError for what is no expression, or names too many."""
    return [name for part in _OUTSIDE.split(text) if part for name in _part(part)]


def _part(part: str) -> list[str]:
    texts = _BRACKETS.split(part)  # every other one stood in brackets
    if any("[" in text or "]" in text for text in texts):
        raise ValueError(f"{part[:80]!r} is no hostlist expression")
    choices = [[text] if at % 2 == 0 else _numbers(text) for at, text in enumerate(texts)]
    names = ["".join(chosen) for chosen in itertools.islice(itertools.product(*choices), _MOST + 1)]
    if len(names) > _MOST:
        raise ValueError(f"{part[:80]!r} names more than {_MOST} nodes")
    return names


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for span in text.split(","):
        first, dash, last = span.partition("-")
        if not first or (dash and (not last or int(last) - int(first) >= _MOST)):
            raise ValueError(f"[{text[:80]}] is no range")
        found += [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)] if dash else [first]
    return found
