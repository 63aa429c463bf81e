"""Ranges in names and addresses: `gpu-a[001-008]`, `10.20.0.[11-14,21]`.

One pair of brackets with numbers, or spans of numbers, between commas. A leading zero fixes the width. Brackets that
hold anything else are plain text, so that IPv6 addresses need no escape.
"""

from __future__ import annotations

import re

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
