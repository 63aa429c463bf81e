"""Texts about nodes that differ in what was measured only: they are told once, with the range of each measurement.

A verdict of ours on health or on a test has the measured values in its sentence. A number, or a duration, is one of
them unless the word before it begins with a capital letter: GPU 3 and XID 79 are names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from reconciler.model.drift import DriftItem
from reconciler.model.units import parse_duration
from reconciler.model.vocab import Concern

_JUDGED: Final = frozenset({Concern.GATE, Concern.HEALTH})
_NUMBER: Final = r"(?<![\w.:/-])(?P<number>-?\d+(?:\.\d+)?|(?:\d+[dhms])+)(?![\w:/-]|\.\d)"
_TOKEN: Final = re.compile(rf"(?P<word>[A-Z][^\s:;,]* )?{_NUMBER}")
_PLACE: Final = "\0"


def _unmeasured(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with its measurements left out, and these."""
    found: list[str] = []

    def blank(match: re.Match[str]) -> str:
        if match["word"] is not None:
            return match[0]
        found.append(match["number"])
        return _PLACE

    return _TOKEN.sub(blank, text.replace(_PLACE, " ")), tuple(found)


def wording(text: str) -> str:
    """Return what texts have in common that differ in what was measured only."""
    return _unmeasured(text)[0]


def wording_of(item: DriftItem) -> Any:
    """Return the same of what was found, where that is a verdict of ours; else the value itself."""
    judged = item.concern in _JUDGED and isinstance(item.observed, str)
    return wording(item.observed) if judged else item.observed


def range_of(texts: Sequence[str]) -> str:
    """Return one text for texts of the same wording, such as "link errors 3 to 17 in an hour"."""
    if len(set(texts)) == 1:
        return texts[0]
    common, _ = _unmeasured(texts[0])
    parts = [common.split(_PLACE)[0]]
    columns = zip(*(_unmeasured(text)[1] for text in texts), strict=True)
    for values, after in zip(columns, common.split(_PLACE)[1:], strict=True):
        ordered = sorted(values, key=_size)
        parts += [" to ".join(dict.fromkeys((ordered[0], ordered[-1]))), after]
    return "".join(parts)


def range_of_values(values: Sequence[Any]) -> Any:
    """Return the same for values, of which those of one wording are texts, and all others are equal."""
    return range_of(values) if all(isinstance(value, str) for value in values) else values[0]


def _size(value: str) -> float:
    return parse_duration(value) if value[-1].isalpha() else float(value)
