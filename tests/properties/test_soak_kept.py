"""A soak that was kept and restored at any moment measures what one does that nobody ever interrupted."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from reconciler.gate.soak.verdict import Soak
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict

TRAIN = GateTest("train", "command", {"run": "x", "metrics": "speed"}, (Threshold("speed", 0.0),), 60.0)
HEAT = GateTest("heat", "command", {"run": "y", "metrics": "degrees"}, (Threshold("degrees", None, 1e9),), 60.0)

Run = tuple[float, bool]  # its value; whether the soak is handed over after it


def measured(load: GateTest, value: float) -> TestResult:
    return TestResult(load.name, load.tool, Verdict.PASS, (), {load.args["metrics"]: value})  # type: ignore[dict-item]


def decline(values: Sequence[float], step: int) -> float:
    """Return the decline in percent as the documentation defines it, of all runs there were."""
    lasted = 2 * step * len(values)
    hour = min(3600, lasted / 2)
    began = [2 * step * at for at in range(len(values))]
    first = [value for at, value in zip(began, values, strict=True) if at < hour] or [values[0]]
    last = [value for at, value in zip(began, values, strict=True) if at >= lasted - hour] or [values[-1]]
    before = statistics.fmean(first)
    return 100 * (before - statistics.fmean(last)) / before


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.booleans()), min_size=2, max_size=30),
    st.sampled_from([10, 700, 2500, 9000]),
)
def test_handing_over_changes_no_figure(runs: list[Run], step: int) -> None:
    soak = Soak((TRAIN, HEAT), 10)
    for at, (value, handed_over) in enumerate(runs):
        began = 2 * step * at
        soak.add(TRAIN, began, began + step, measured(TRAIN, value))
        soak.add(HEAT, began + step, began + 2 * step, measured(HEAT, value))
        if handed_over:
            kept, soak = soak.kept(), Soak((TRAIN, HEAT), 10)
            soak.restore(kept)
    values = [value for value, _ in runs]
    lasted = 2 * step * len(runs)
    assert soak.metrics(lasted) == {
        "hours": lasted / 3600, "train.speed": min(values), "train.decline": decline(values, step),
        "heat.degrees": max(values),
    }  # fmt: skip
    assert len(soak.found["train"]) <= 2 * 3600 // (2 * step) + 4, "of the first and the last hour alone"
