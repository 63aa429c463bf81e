"""Estimate how long a gate takes: the declared time of its soak, and its other tests' share of a whole gate's time.

A soak takes the time that the spec declares, whatever earlier ones took. How long each other test takes is not known,
so their share goes by their timeouts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from reconciler.gate.after import every_test
from reconciler.model.after import PASSIVE
from reconciler.model.desired import Acceptance, GateTest
from reconciler.model.plan import PlannedAction
from reconciler.model.soak import NAME as SOAK
from reconciler.model.soak import seconds_of

_LOOK_S: Final = 30.0  # that a test takes at most which only looks, whatever its timeout


def soak_s(acceptance: Acceptance | None, names: Collection[str] | None = None) -> float:
    """Return the declared time of the soaks among the tests with these names, or among all tests."""
    tests = () if acceptance is None else acceptance.tests
    return float(sum(seconds_of(test) for test in tests if test.tool == SOAK and (names is None or test.name in names)))


def share(acceptance: Acceptance, names: Collection[str]) -> float:
    """Return the part of a whole gate's time, less its soak, that the tests with these names take."""
    weights = {test.name: _weight(test) for test in acceptance.tests if test.tool != SOAK}
    whole = sum(weights.values())
    return sum(weight for name, weight in weights.items() if name in names) / whole if whole else 0.0


def _weight(test: GateTest) -> float:
    return min(test.timeout_s, _LOOK_S) if test.tool in PASSIVE else test.timeout_s


def timed(gate: PlannedAction, acceptance: Acceptance, asked: Collection[str]) -> PlannedAction:
    """Return a gate with the time of the tests that it runs: those that are `asked` for, and those that only look.

    Where it isn't known which are asked for, all of them are.
    """
    looks = {test.name for test in acceptance.tests if test.tool in PASSIVE}
    names = looks.union(asked) if asked else every_test(acceptance)
    part, soak = share(acceptance, names), soak_s(acceptance, names)
    if part == 1 and not soak:
        return gate
    most = None if gate.p90_s is None else round(gate.p90_s * part + soak, 1)
    return replace(gate, estimate_s=round(gate.estimate_s * part + soak, 1), p90_s=most)
