"""Run the state machine with one seed, and shorten a failing example."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.soak.machine import BrokenInvariant, FleetMachine, Step
from tests.soak.shorten import shorten


@dataclass(frozen=True)
class Played:
    """The result of a seed. `broken`: the first broken invariant, "" if none. `left`: the shortest failing steps."""

    seed: int
    examples: int
    steps: int
    runs: int
    broken: str = ""
    left: tuple[Step, ...] = ()

    @property
    def story(self) -> str:
        lines = [self.broken, "", f"seed {self.seed}; the steps that it takes:", *(f"    {step}" for step in self.left)]
        return "\n".join([*lines, f"again: make soak ARGS='--once --seed {self.seed}'"])


def play(
    number: int, examples: int, steps: int, *, on_disk: bool = False, machine: type[FleetMachine] = FleetMachine
) -> Played:
    """Run the seed `number`. Hypothesis chooses the steps but does not shrink them: `shorten` is much faster."""
    totals = Counter[str]()
    last: list[FleetMachine] = []

    class Kind(machine):  # type: ignore[misc, valid-type]  # the base is dynamic
        pass

    Kind.on_disk = on_disk

    class Counted(Kind):
        def __init__(self) -> None:
            super().__init__()
            last[:] = [self]

        def teardown(self) -> None:
            totals.update(examples=1, steps=len(self.played))
            try:
                super().teardown()
            finally:
                totals["runs"] += self.ran

    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet, report_multiple_bugs=False,
        derandomize=False,
    )  # fmt: skip
    failed: BaseException | None = None
    try:
        run_state_machine_as_test(seed(number)(Counted), settings=chosen)
    except BrokenInvariant as broken:
        failed = broken
    counts = totals["examples"], totals["steps"], totals["runs"]
    if failed is None:
        return Played(number, *counts)
    left, told = shorten(last[0].played, Kind)
    return Played(number, *counts, told or f"{failed} (once; not when the same steps are played again)", tuple(left))
