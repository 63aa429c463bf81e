"""The limits that bars set for a value, its unit, and the distribution of the values of many nodes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from reconciler.gate.cohort import LEAST_PEERS, NORMAL, distribution, limit
from reconciler.model.bars import Histogram, Limits
from reconciler.model.desired import Cohort, Peers, Threshold
from reconciler.model.gate_tools import measured

FAR_BELOW: Final = 0.03  # of a value that stands out where no bar by peers says how far is far
FAR_Z: Final = 3.5
_BINS: Final = 20  # about so many for the values that are no outliers
_FAR: Final = 3.0  # interquartile ranges beyond which a value is in the first or last bin, with all others there
_NEAR: Final = 0.1  # of the median: values and bars this near are never far, as bars are within some per cent of it
_FINE: Final = 0.001  # of the median: no bin is narrower, as a smaller difference tells nothing of a node
_AXIS: Final = 2.0  # widths of the axis by which a bar may widen it


def unit_of(tool: str, metric: str) -> str:
    """Return the unit of a metric, also of a part's; "" for counts, ratios and what is not known."""
    unit = measured(tool, metric, (metric, metric.partition(".")[0]))[2]
    return "" if unit == "%" else unit


def limits_of(bars: Iterable[Threshold], tool_version: str) -> Limits:
    """Return the strictest limits that bars of one metric set for values of this version of the tool."""
    least, most = list[float](), list[float]()
    for bar in bars:
        least += [low for low in (bar.min, limit(bar.cohort, tool_version)) if low is not None]
        most += [bar.max] if bar.max is not None else []
    return Limits(max(least, default=None), min(most, default=None))


def beyond(limits: Limits, value: float) -> tuple[float, float]:
    """Return the limit that counts for a value, and by what share of it the value is on its bad side.

    (0, 0) where there is no limit.
    """
    found = [(least, least - value) for least in (limits.least,) if least is not None]
    found += [(most, value - most) for most in (limits.most,) if most is not None]
    return max([(at, by / (abs(at) or 1.0)) for at, by in found], key=lambda pair: pair[1], default=(0.0, 0.0))


def far_off(values: Sequence[float], limits: Limits) -> Callable[[float], str]:
    """Return what says how far a value is from these values on the bad side of their limits; "" when it is not.

    Both figures have to hold, as where peers judge: FAR_BELOW of the median, and a modified z-score of FAR_Z.
    """
    sign = -1.0 if limits.least is None else 1.0
    found = distribution([sign * value for value in values]) if values else None
    if found is None or found.n < LEAST_PEERS:
        return lambda _: ""
    peers = Cohort(FAR_BELOW, FAR_Z, (Peers("", found.n, found.median, found.mad),))
    least = limit(peers, "")
    side = "below" if sign > 0 else "above"

    def said(value: float) -> str:
        if least is None or sign * value >= least:
            return ""
        share = (found.median - sign * value) / (abs(found.median) or 1.0)
        score = f", modified z {NORMAL * (found.median - sign * value) / found.mad:.1f}" if found.mad else ""
        return f"{share:.1%} {side} the median of these nodes{score}"

    return said


def histogram(values: Sequence[float], marks: Iterable[float] = ()) -> Histogram:
    """Count finite values in bins of a round width. `marks`: the axis reaches them unless they are far away.

    Values far from the middle half are in the first or the last bin, or one outlier would leave all others in one bin.
    """
    ordered = sorted(values)
    at = sorted(marks)
    edges = _edges(*_axis(ordered, at), _FINE * abs(ordered[len(ordered) // 2])) if ordered else []
    counts = [0] * (len(edges) + 1)
    for value in ordered:
        counts[bisect_right(edges, value)] += 1
    used = [n for n, number in enumerate(counts) if number] + [bisect_right(edges, mark) for mark in at]
    first, last = max(min(used, default=0), 1), min(max(used, default=0), len(edges) - 1)
    if first > last:
        return Histogram(tuple(edges), tuple(counts))
    kept = edges[first - 1 : last + 1]
    return Histogram(tuple(kept), (sum(counts[:first]), *counts[first : last + 1], sum(counts[last + 1 :])))


def _axis(ordered: Sequence[float], marks: Sequence[float]) -> tuple[float, float]:
    q1, q3 = ordered[len(ordered) // 4], ordered[(3 * len(ordered) - 1) // 4]
    near = _NEAR * abs(ordered[len(ordered) // 2])
    fence = max(_FAR * (q3 - q1), near)
    low = ordered[bisect_left(ordered, q1 - fence)]  # the last value that is not far away
    high = ordered[bisect_right(ordered, q3 + fence) - 1]
    if not low < high:
        half = abs(low) * 0.01 or 1.0
        low, high = low - half, high + half
    reach = max(_AXIS * (high - low), near)
    found = [mark for mark in marks if low - reach <= mark <= high + reach]
    return min([low, *found]), max([high, *found])


def _edges(low: float, high: float, finest: float) -> list[float]:
    """Return round numbers of equal distance around an axis; one edge where no such numbers can be told apart."""
    step = _round_up(max((high - low) / _BINS, finest))
    if not 4 * math.ulp(max(abs(low), abs(high))) < step < math.inf:
        return [low]
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return [round(at * step, digits) for at in range(first, last + 1)]


def _round_up(width: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 and so on."""
    if not 1e-300 < width < 1e300:
        return 0.0
    power = math.floor(math.log10(width))
    return next(found for found in (float(f"{digit}e{power}") for digit in (1, 2, 5, 10, 20)) if found >= width)
