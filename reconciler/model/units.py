"""Durations, sizes and shares as people write them."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

MAX_DURATION_S: Final = 3650 * 86400.0  # ten years: no certificate, window or hold is longer, and dates stay dates
MAX_SIZE: Final = 2**60  # bytes; of one machine
MAX_COUNT: Final = 1_000_000  # nodes

_DURATION = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]+)?)s)?(?:([0-9]+)ms)?")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_FACTORS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NODES = re.compile(r"([0-9]+)(%?)")
_LONGEST: Final = 40  # characters that a number with a unit takes; more would be too long for int() to read


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> float:
    """Seconds of "90s", "10m", "1h30m", "7d", "250ms". ValueError otherwise: a bare number has no unit."""
    match = _DURATION.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if not text.strip() or match is None:
        raise ValueError(f"{_shown(text)} is not a duration; write it like 30s, 10m, 1h30m or 7d")
    days, hours, minutes, seconds, millis = (float(part or 0) for part in match.groups())
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds + millis / 1000
    if total > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than {MAX_DURATION_S / 86400:g}d, the longest that a duration may be")
    return total


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}..."


def format_duration(seconds: float) -> str:
    """The shortest exact-enough form: 45s, 12m, 1h05m, 3d04h."""
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s" if total % 60 else f"{total // 60}m"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def parse_size(text: str) -> int:
    """Bytes of "480GB" or "2TiB"."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{_shown(text)} is not a size; write it like 480GB or 2TiB")
    size = float(match[1]) * _FACTORS[match[2]]
    if size > MAX_SIZE:
        raise ValueError(f"{text!r} is more than {MAX_SIZE // 2**40}TiB, which no machine has")
    return int(size)


def parse_nodes(text: str, total: int) -> int:
    """Nodes of "3" or "10%" of `total`. A share is rounded up, as Kubernetes does (conventions Y6)."""
    match = _NODES.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or (match[2] and int(match[1]) > 100):
        raise ValueError(f"{_shown(text)} is not a number of nodes; write a count like 3 or a share like 10%")
    count = int(match[1])
    if count > MAX_COUNT:
        raise ValueError(f"{text!r} is more nodes than any fleet has; write {MAX_COUNT} at most")
    return math.ceil(total * count / 100) if match[2] else count


def format_size(count: int) -> str:
    """The shortest text that `parse_size` reads as exactly so many bytes."""
    fitting = [f"{count // factor}{unit}" for unit, factor in _FACTORS.items() if count % factor == 0]
    return min(fitting, key=len)
