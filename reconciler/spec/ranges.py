"""Expand and contract ranges in names and addresses: `gpu-a[001-008]`, `10.20.0.[11-14,21]`.

A range is one pair of brackets around numbers or spans of numbers, separated by commas. A leading zero fixes the width.
Brackets around anything else are plain text, so IPv6 addresses need no escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

# The limit of a whole spec, and so of one range, too. 100,000 nodes are the largest fleet that was measured; twice as
# many still fit in the memory of a small runner. A larger fleet needs several specs.
MAX_NODES: Final = 200_000
_LONGEST: Final = 300  # characters around the brackets: a DNS name has 253, a scheme and a port come to it

_RANGE = re.compile(r"\[([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\]")
_DIGITS: Final = 9  # of an end of a span


def is_range(text: str) -> bool:
    return _RANGE.search(text) is not None


def count(text: str) -> int:
    """Return how many texts a range stands for, without making them; 1 for a text without a range.

    Raise ValueError for an invalid range.
    """
    return _read(text)[1]


def expand(text: str) -> list[str]:
    """Return the texts that a range stands for, in order; [text] without one. Raise ValueError for an invalid range."""
    match, size = _read(text)
    if match is None:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    numbers: list[str] = []
    for part in match[1].split(","):
        first, dash, last = part.partition("-")
        if dash:
            numbers += [f"{number:0{_width(first)}d}" for number in range(int(first), int(last) + 1)]
        else:
            numbers.append(first)
    if len(set(numbers)) != size:
        raise ValueError(f"{_shown(text)} names a number twice")
    return [f"{before}{number}{after}" for number in numbers]


def _read(text: str) -> tuple[re.Match[str] | None, int]:
    match = _RANGE.search(text)
    if match is None:
        return None, 1
    if is_range(text[match.end() :]):
        raise ValueError(f"{_shown(text)} has two ranges; one is allowed")
    if len(text) - len(match[0]) > _LONGEST:
        raise ValueError(f"{_shown(text)} has more than {_LONGEST} characters around its range")
    size = sum(_span(part, text) for part in match[1].split(","))
    if size > MAX_NODES:
        raise ValueError(f"{_shown(text)} names more than {MAX_NODES} nodes")
    return match, size


def _span(part: str, text: str) -> int:
    """Return how many numbers one part between commas stands for."""
    first, dash, last = part.partition("-")
    if not dash:
        return 1
    if max(len(first), len(last)) > _DIGITS:
        raise ValueError(f"{_shown(text)} names more than {MAX_NODES} nodes")
    if _width(first) and len(last) != len(first):
        raise ValueError(f"{_shown(text)} counts from {first} to {last}, which differ in width")
    low, high = int(first), int(last)
    if high < low:
        raise ValueError(f"{_shown(text)} counts from {first} down to {last}")
    return high - low + 1


def _width(first: str) -> int:
    """Return the number of digits that each number of a span has; 0 when it is not fixed."""
    return len(first) if first.startswith("0") and first != "0" else 0


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST else f"{text[:60]!r}..."


def contract(values: Sequence[str]) -> str:
    """Return the range that `expand` turns into these values. Raise ValueError where more than a number differs."""
    if len(values) == 1:
        return values[0]
    before, after = _shared(values), _shared([value[::-1] for value in values])[::-1]
    before = before.rstrip("0123456789")
    after = after.lstrip("0123456789")
    numbers = [value[len(before) : len(value) - len(after)] for value in values]
    if not all(number.isdecimal() and number.isascii() for number in numbers):
        raise ValueError(f"{values[0]!r} to {values[-1]!r} differ in more than a number")
    spans: list[list[str]] = []
    for number in numbers:
        if spans and _follows(spans[-1][-1], number):
            spans[-1].append(number)
        else:
            spans.append([number])
    text = ",".join(span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
    return f"{before}[{text}]{after}"


def _shared(values: Sequence[str]) -> str:
    """Return the longest common beginning."""
    low, high = min(values), max(values)
    return low[: next((at for at, char in enumerate(low) if high[at : at + 1] != char), len(low))]


def _follows(last: str, number: str) -> bool:
    return number == f"{int(last) + 1:0{_width(last)}d}" or (len(number) == len(last) and int(number) == int(last) + 1)
