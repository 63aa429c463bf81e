"""Exact limits of a Poisson count, and how many spares cover a binomial number of nodes that are out.

A library for statistics (SciPy) would be a hundred megabytes for two sums.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, log1p
from statistics import NormalDist
from typing import Final

CONFIDENCE: Final = 0.95
_STEPS: Final = 60  # halvings: the interval is then as exact as a float
_MOST: Final = 5_000  # failures, above which the sum of a distribution takes long, and a normal one is as good


def poisson_limits(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the limits of the expected count when `count` was counted (Garwood 1936): (0, 3.69) for none at 95 %.

    The lower one is the mean at which `count` or more are as likely as half of the rest; the upper one that at which
    `count` or fewer are.
    """
    tail = (1 - confidence) / 2
    if count > _MOST:
        width = NormalDist().inv_cdf(1 - tail) * count**0.5
        return count - width, count + width
    far = count + 10.0 * (count + 10) ** 0.5
    low = 0.0 if count == 0 else _root(lambda mean: 1 - _poisson(count - 1, mean) - tail, 0.0, far)
    return low, _root(lambda mean: tail - _poisson(count, mean), 0.0, far)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _poisson(most: int, mean: float) -> float:
    """Return the probability of at most `most`."""
    if mean <= 0:
        return 1.0
    return min(1.0, sum(exp(at * log(mean) - mean - lgamma(at + 1)) for at in range(most + 1)))


def spares_for(nodes: int, out_share: float, target: float) -> int:
    """Return the fewest spares that are enough with probability `target`, when each node is out with `out_share`.

    Spares are taken to be well: they were certified, and a spare that fails is one more node to be repaired.
    """
    if nodes == 0 or out_share <= 0:
        return 0
    if out_share >= 1:
        return nodes
    covered = 0.0
    for out in range(nodes + 1):
        ways = lgamma(nodes + 1) - lgamma(out + 1) - lgamma(nodes - out + 1)
        covered += exp(ways + out * log(out_share) + (nodes - out) * log1p(-out_share))
        if covered >= target:
            return out
    return nodes
