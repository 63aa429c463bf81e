"""A section of a report: a title, sentences and a table, for a terminal, Markdown and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.render.markdown import Cell


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    says: tuple[str, ...]
    head: tuple[str, ...] = ()
    rows: Sequence[Sequence[Cell]] = ()


def percent(share: float) -> str:
    """Return a percentage that is never rounded up: 99.999% is not all of the time."""
    return "100%" if share >= 1 else f"{math.floor(share * 10_000) / 100:.2f}%"
