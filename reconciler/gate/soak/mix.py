"""The loads of a soak: how the spec's tests become the one test that a certificate binds, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from reconciler.gate.evidence import required_metrics
from reconciler.gate.soak.on_node import Step
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Desired, GatePhase, GateTest, Threshold
from reconciler.model.gate_tools import TOOLS as ROWS
from reconciler.model.gate_tools import measured
from reconciler.model.observed import Observed

NAME: Final = "soak"  # of the phase, the test and its tool
HOURS: Final = "hours"
DRIFT: Final = "decline"  # suffix of the metric that says by how many percent the last hour was below the first
_SECONDS, _LOAD = "seconds", "load."


def phase(seconds: float, decline_percent: float, loads: Sequence[GateTest]) -> GatePhase:
    """Return the last phase of an acceptance: one test, which has all loads as arguments.

    Limits of a load become limits of this test, on `<load>.<metric>`, and its throughput may not decline. So the
    certificate's digest has the loads and the time, and limits can be changed without another soak.
    """
    args: dict[str, str | int | bool] = {_SECONDS: round(seconds)}
    bars = [Threshold(HOURS, round(seconds) / 3600, None)]
    for at, load in enumerate(loads):
        args[f"{_LOAD}{at:03}"] = json.dumps(
            [load.name, load.tool, dict(load.args), load.timeout_s, load.versions, load.allow_skip]
        )
        bars += [replace(bar, metric=f"{load.name}.{bar.metric}") for bar in load.thresholds]
        bars += [Threshold(f"{load.name}.{metric}.{DRIFT}", None, decline_percent) for metric in throughput(load)]
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
        if bar.metric.startswith(prefix) and not bar.metric.endswith(f".{DRIFT}")
    )


def throughput(load: GateTest) -> tuple[str, ...]:
    """Return the metrics of a load of which more is better: what it gets done in a second, or has a lower limit."""
    names = required_metrics(load)
    rates = [name for name in names if measured(load.tool, name, names)[2].endswith(("/s", "FLOPS"))]
    return tuple(dict.fromkeys((*rates, *(bar.metric for bar in load.thresholds if bar.min is not None))))


def steps_of(loads: Sequence[GateTest], desired: Desired, observed: Observed) -> Mapping[str, tuple[Step, ...]] | str:
    """Return the commands of each load, by its name; a sentence where one can't run on this node."""
    found: dict[str, tuple[Step, ...]] = {}
    for load in loads:
        commands = TOOLS[load.tool].commands(load, desired, observed)
        if isinstance(commands, str):
            return f"{load.name}: {commands}"
        if not commands:
            return f"{load.name}: {load.tool} loads nothing"
        found[load.name] = tuple(Step(argv, load.timeout_s) for argv in commands)
    return found


def is_load(tool: str) -> bool:
    """Return whether a tool of the table may be a load: one that was tried on what real ones printed."""
    return tool in ROWS and not ROWS[tool].experimental
