"""Durations summed up: how many, their mean, their median, and what nine of ten stay within."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from reconciler.model.reliability import Times


def times(seconds: Iterable[float]) -> Times:
    found = sorted(seconds)
    if not found:
        return Times()
    nine_of_ten = found[math.ceil(0.9 * len(found)) - 1]
    return Times(len(found), statistics.fmean(found), statistics.median(found), nine_of_ten)
