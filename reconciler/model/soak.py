"""A soak as one test of an acceptance: its loads, its time, and its limits (docs/how-to/soak.md)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from reconciler.model.acceptance import GatePhase, GateTest, Threshold
from reconciler.model.gate_tools import TOOLS, measured

NAME: Final = "soak"  # of the phase, the test and its tool
HOURS: Final = "hours"
DECLINE: Final = "decline"  # <load>.decline: by how many percent the last hour was below the first
_SECONDS, _LOAD = "seconds", "load."
_NO_LOADS: Final = ("inventory", "xid", "clock", "pcie", "extension")  # of an extension, nothing says that it loads


def is_load(tool: str) -> bool:
    """Return whether a tool loads a node, and was tried on what real ones printed."""
    return tool in TOOLS and tool not in _NO_LOADS and not TOOLS[tool].experimental


def phase(seconds: float, decline_percent: float, loads: Sequence[GateTest]) -> GatePhase:
    """Return the last phase of an acceptance: one test, which has all loads as arguments.

    Limits of a load become limits of this test, on `<load>.<metric>`, and its throughput may not decline. So the
    certificate's digest has the loads and the time, and limits can be changed without another soak.
    """
    args: dict[str, str | int | bool] = {_SECONDS: round(seconds)}
    bars = [Threshold(HOURS, round(seconds) / 3600, None)]
    for at, load in enumerate(loads):
        cells = [load.name, load.tool, dict(load.args), load.timeout_s, load.versions, load.allow_skip]
        args[f"{_LOAD}{at:03}"] = json.dumps(cells)
        bars += [replace(bar, metric=f"{load.name}.{bar.metric}") for bar in load.thresholds]
        if any(map(_is_rate, TOOLS[load.tool].units.values())) or any(bar.min is not None for bar in load.thresholds):
            bars.append(Threshold(f"{load.name}.{DECLINE}", None, decline_percent))
    longest = max(load.timeout_s for load in loads)
    test = GateTest(NAME, NAME, dict(sorted(args.items())), tuple(bars), seconds + longest)
    return GatePhase(NAME, (test,))


def seconds_of(test: GateTest) -> int:
    return int(test.args[_SECONDS])


def loads_of(test: GateTest) -> tuple[GateTest, ...]:
    """Return the loads, with the limits that are on their own metrics."""
    found = []
    for name, value in sorted(test.args.items()):
        if name.startswith(_LOAD):
            load, tool, args, timeout_s, versions, allow_skip = json.loads(str(value))
            bars = _own_bars(load, test.thresholds)
            found.append(GateTest(load, tool, args, bars, timeout_s, tuple(versions), tuple(allow_skip)))
    return tuple(found)


def _own_bars(load: str, thresholds: Sequence[Threshold]) -> tuple[Threshold, ...]:
    prefix = f"{load}."
    return tuple(
        replace(bar, metric=bar.metric.removeprefix(prefix))
        for bar in thresholds
        if bar.metric.startswith(prefix) and bar.metric != prefix + DECLINE
    )


def throughput(load: GateTest, names: Collection[str]) -> tuple[str, ...]:
    """Return the metrics among `names` of which more is better: done in a second, or with a lower limit."""
    limited = {bar.metric for bar in load.thresholds if bar.min is not None}
    return tuple(name for name in names if name in limited or _is_rate(measured(load.tool, name, names)[2]))


def _is_rate(unit: str) -> bool:
    return unit.endswith(("/s", "FLOPS"))
