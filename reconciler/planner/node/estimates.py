"""Estimate how long actions take, from the ledger's history where there is enough of it (DESIGN 7.1).

Estimates are shown to people and place a plan in time. They never choose between plans: those costs are fixed by the
catalogue and the spec, or the same fleet would be planned differently from day to day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.model.desired import DesiredInventory, Fleet
from reconciler.planner.node.gate_time import soak_s

LEAST = 3  # runs; with fewer, one outlier could be the median
MOST_S = 12 * 3600.0  # longer than any deadline of an action: the runner slept, or a clock was set


@dataclass(frozen=True, slots=True)
class Estimate:
    """The measured duration of an action.

    `same_hardware`: measured on machines with the same hardware profile; otherwise on all that this ledger served.
    """

    median_s: float
    p90_s: float
    runs: int
    same_hardware: bool


_Key = tuple[str, str]  # action, target
_GATE: _Key = ("run_gate", "")


@dataclass(frozen=True, slots=True)
class Estimates:
    """The measured durations, by hardware profile (the expected inventory, models included) and over all machines."""

    _by_hardware: Mapping[DesiredInventory, Mapping[_Key, Estimate]] = field(default_factory=dict)
    _everywhere: Mapping[_Key, Estimate] = field(default_factory=dict)

    def of(self, hardware: DesiredInventory, action: str, target: str) -> Estimate | None:
        """Return the estimate of an action; None if there is too little history, so that the fixed cost serves."""
        if not self._everywhere:
            return None
        key = (action, target)
        return self._by_hardware.get(hardware, {}).get(key) or self._everywhere.get(key)


def estimates(fleet: Fleet, durations: Iterable[tuple[str, str, str, float]]) -> Estimates:
    """Build the estimates from `Ledger.durations()`: (node, action, target, seconds).

    A node's hardware is what the spec says today, and so is the time of its soak, by which its gates count for less: a
    soak takes what the spec says, whatever it took.
    """
    alike: dict[DesiredInventory, dict[_Key, list[float]]] = {}
    everywhere: dict[_Key, list[float]] = {}
    for name, action, target, seconds in durations:
        node = fleet.nodes.get(name)
        if node is not None and (action, target) == _GATE and seconds >= (soak := soak_s(node.profile.acceptance)):
            seconds -= soak
        if not 0.0 < seconds <= MOST_S:  # NaN is neither
            continue
        everywhere.setdefault((action, target), []).append(seconds)
        if node is not None:
            alike.setdefault(node.profile.inventory, {}).setdefault((action, target), []).append(seconds)
    return Estimates(
        {hardware: _estimated(runs, same_hardware=True) for hardware, runs in alike.items()},
        _estimated(everywhere, same_hardware=False),
    )


def _estimated(runs: Mapping[_Key, list[float]], *, same_hardware: bool) -> dict[_Key, Estimate]:
    return {key: _estimate(sorted(took), same_hardware) for key, took in runs.items() if len(took) >= LEAST}


def _estimate(took: list[float], same_hardware: bool) -> Estimate:
    """Take median and 90th percentile by nearest rank, so that neither leaves the range of the measurements."""
    runs = len(took)
    median = (took[(runs - 1) // 2] + took[runs // 2]) / 2
    return Estimate(round(median, 1), round(took[(9 * runs + 9) // 10 - 1], 1), runs, same_hardware)
