"""The verdict on the runs of a soak's loads: the worst of each metric, and how far the last hour is below the first."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.gate.certificate import judge_test
from reconciler.gate.soak.look import Look
from reconciler.model.desired import GateTest
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.json_text import parse_json
from reconciler.model.soak import DECLINE, HOURS, throughput
from reconciler.model.units import format_duration

_HOUR_S: Final = 3600.0


@dataclass(slots=True)
class Soak:
    """Collects the results of the loads, run by run, and says as soon as one of them is bad.

    `found` has those of the first hour and of the last one so far, whatever the length of the soak.
    """

    loads: Sequence[GateTest]
    seconds: int
    found: dict[str, list[tuple[int, int, TestResult]]] = field(default_factory=dict)  # load -> (began, ended, result)
    extremes: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)  # load -> metric -> least, most

    def add(self, load: GateTest, began_s: int, ended_s: int, result: TestResult) -> tuple[Verdict, tuple[str, ...]]:
        """Keep what one run of a load measured, and return its verdict: anything but a pass ends the soak."""
        runs = [*self.found.get(load.name, ()), (began_s, ended_s, result)]
        last = len(runs) - 1
        self.found[load.name] = [
            run for at, run in enumerate(runs) if at in (0, last) or run[0] < _HOUR_S or run[0] >= ended_s - _HOUR_S
        ]
        extremes = self.extremes.setdefault(load.name, {})
        for metric, value in result.metrics.items():
            least, most = extremes.get(metric, (value, value))
            extremes[metric] = min(least, value), max(most, value)
        verdict, reasons = judge_test(load, result)
        return verdict, tuple(f"after {format_duration(began_s)}: {reason}" for reason in reasons)

    def metrics(self, lasted_s: int) -> dict[str, float]:
        """Return `hours`, and of each load the worst of each metric, and by how much its throughput declined."""
        found = {HOURS: lasted_s / _HOUR_S}
        for load in self.loads:
            extremes = self.extremes.get(load.name, {})
            upper = {bar.metric for bar in load.thresholds if bar.min is None}
            for metric, (least, most) in extremes.items():
                found[f"{load.name}.{metric}"] = most if metric in upper else least
            declines = [self._decline(load.name, metric, lasted_s) for metric in throughput(load, extremes)]
            if known := [decline for decline in declines if decline is not None]:
                found[f"{load.name}.{DECLINE}"] = max(known)
        return found

    def kept(self) -> str:
        """Return all that is known of the runs so far, as JSON for `restore`."""
        return json.dumps(
            {
                load: {
                    "runs": [[began, ended, dict(result.metrics)] for began, ended, result in runs],
                    "extremes": self.extremes[load],
                }
                for load, runs in self.found.items()
            }
        )

    def restore(self, kept: str) -> None:
        """Go on from what was kept. Raise ValueError where it can't be read: it was on the node."""
        document = parse_json(kept)
        tools = {load.name: load.tool for load in self.loads}
        if not isinstance(document, dict) or not document.keys() <= tools.keys():
            raise ValueError("it is not of these loads")
        for load, cells in document.items():
            match cells:
                case {"runs": [_, *_] as runs, "extremes": dict(extremes)}:
                    self.found[load] = [_run(load, tools[load], run) for run in runs]
                    self.extremes[load] = {metric: _extremes(cell) for metric, cell in extremes.items()}
                case _:
                    raise ValueError(f"it has no runs of {load}")

    def _decline(self, load: str, metric: str, lasted_s: int) -> float | None:
        """Return by how many percent the mean of the last hour is below that of the first.

        An hour in which no run began has the run that is nearest to it. A load that ran once has declined by nothing
        that anybody could have measured, so it has no decline.
        """
        runs = [
            (began, result.metrics[metric]) for began, _, result in self.found.get(load, ()) if metric in result.metrics
        ]
        if len(runs) < 2:
            return None
        hour = min(_HOUR_S, lasted_s / 2)
        first = [value for began, value in runs if began < hour] or [runs[0][1]]
        last = [value for began, value in runs if began >= lasted_s - hour] or [runs[-1][1]]
        before = statistics.fmean(first)
        return 100 * (before - statistics.fmean(last)) / before if before > 0 else None


def _run(load: str, tool: str, cells: object) -> tuple[int, int, TestResult]:
    match cells:
        case [int(began), int(ended), dict(metrics)] if all(
            isinstance(value, int | float) for value in metrics.values()
        ):
            return began, ended, TestResult(load, tool, Verdict.PASS, (), metrics)
        case _:
            raise ValueError(f"a run of {load} can't be read")


def _extremes(cells: object) -> tuple[float, float]:
    match cells:
        case [int() | float() as least, int() | float() as most]:
            return least, most
        case _:
            raise ValueError("an extreme can't be read")


def broken(look: Look) -> tuple[Verdict, str] | None:
    """Return why a soak can't go on, from what the node says; None where it goes on or has ended by itself.

    A boot in the middle speaks against the node. A unit that is gone does not: somebody may have stopped it.
    """
    if not look.began:
        return Verdict.ERROR, "its files are not on the node any more"
    if look.began != look.boot:
        return Verdict.FAIL, "the node was booted in the middle of the soak, and nobody had asked for that"
    if look.refused:
        return Verdict.ERROR, look.refused
    if look.lasted_s is not None or look.is_active:
        return None
    how = ", ".join(f"{key}={value}" for key, value in look.unit.items() if value)
    if look.unit.get("Result") == "oom-kill":
        return Verdict.ERROR, f"its unit was killed as memory ran out ({how})"
    return Verdict.ERROR, f"its unit ended before its time ({how})"
