"""Ranges in names and addresses: `gpu-a[001-008]`, `10.20.0.[11-14,21]`.

One pair of brackets with numbers, or spans of numbers, between commas. A leading zero fixes the width. Brackets that
hold anything else are plain text, so that IPv6 addresses need no escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_NODES = 100_000

_RANGE = re.compile(r"\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]")


def is_range(text: str) -> bool:
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """What the range stands for, in order; [text] when it has none. ValueError for a bad one."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    if is_range(after):
        raise ValueError(f"{text!r} has two ranges; one is allowed")
    numbers: list[str] = []
    for part in match[1].split(","):
        numbers += _span(part, text)
        if len(numbers) > MAX_NODES:
            raise ValueError(f"{text!r} stands for more than {MAX_NODES} nodes")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"{text!r} names a number twice")
    return [f"{before}{number}{after}" for number in numbers]


def _span(part: str, text: str) -> list[str]:
    first, dash, last = part.partition("-")
    if not dash:
        return [first]
    if max(len(first), len(last)) > 9:
        raise ValueError(f"{text!r} stands for more than {MAX_NODES} nodes")
    width = len(first) if first.startswith("0") and first != "0" else 0
    if width and len(last) != width:
        raise ValueError(f"{text!r} counts from {first} to {last}, which differ in width")
    low, high = int(first), int(last)
    if high < low:
        raise ValueError(f"{text!r} counts from {first} down to {last}")
    if high - low >= MAX_NODES:
        raise ValueError(f"{text!r} stands for more than {MAX_NODES} nodes")
    return [f"{number:0{width}d}" if width else str(number) for number in range(low, high + 1)]


def contract(values: Sequence[str]) -> str:
    """One text that stands for these in this order: what `expand` undoes. ValueError when they differ in more."""
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
    """How all of them begin."""
    low, high = min(values), max(values)
    return low[: next((at for at, char in enumerate(low) if high[at : at + 1] != char), len(low))]


def _follows(last: str, number: str) -> bool:
    width = len(last) if last.startswith("0") and last != "0" else 0
    return number == f"{int(last) + 1:0{width}d}" or (len(number) == len(last) and int(number) == int(last) + 1)
