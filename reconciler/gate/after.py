"""Tell which tests what was done to a node costs: the row of the profile's `after` table, else the minimum set for it.

Whatever no row is known for costs all tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reconciler.gate.evidence import DIAG_LEVEL, experimental
from reconciler.model.after import (
    BIOS,
    DRIVER,
    EXCHANGED,
    FABRIC,
    IDLE,
    PASSIVE,
    Done,
    Exchanged,
    Kind,
    Noticed,
    firmware_kinds,
)
from reconciler.model.desired import Acceptance, GateTest

Reasons = Mapping[str, tuple[str, ...]]  # by test: why it has no valid result


def tests_after(acceptance: Acceptance, done: str, kinds: tuple[Kind, ...] | None) -> frozenset[str]:
    """Return the names of the tests that must be run after an action. `kinds`: the default row; None = all tests."""
    row = acceptance.after.get(done)
    return _of_kinds(acceptance, kinds) if row is None else _with_passive(acceptance, row)


def tests_after_firmware(acceptance: Acceptance, component: str) -> frozenset[str]:
    """Return the names of the tests that must be run after new firmware of a component."""
    row = acceptance.after.get(component, acceptance.after.get(Done.UPDATE_FIRMWARE))
    return _of_kinds(acceptance, firmware_kinds(component)) if row is None else _with_passive(acceptance, row)


def tests_after_bios(acceptance: Acceptance) -> frozenset[str]:
    """Return the names of the tests that must be run after a change of BIOS settings."""
    return tests_after(acceptance, Done.SET_BIOS, BIOS)


def tests_after_exchange(acceptance: Acceptance, part: Exchanged) -> frozenset[str]:
    """Return the names of the tests that must be run after a part was exchanged."""
    return tests_after(acceptance, part, EXCHANGED[part])


def tests_after_driver(acceptance: Acceptance) -> frozenset[str]:
    """Return the names of the tests that must be run with another driver, CUDA or NCCL in the same image."""
    return tests_after(acceptance, Noticed.DRIVER, DRIVER)


def tests_after_fabric(acceptance: Acceptance) -> frozenset[str]:
    """Return the names of the tests that must be run behind another leaf or spine: none where none is between nodes."""
    return _those_there_are(acceptance, Noticed.FABRIC, FABRIC)


def tests_after_idle(acceptance: Acceptance) -> frozenset[str]:
    """Return the names of the tests to run when a node has done nothing for long: none where none is of its kinds."""
    return _those_there_are(acceptance, Noticed.IDLE, IDLE)


def _those_there_are(acceptance: Acceptance, cause: Noticed, kinds: tuple[Kind, ...]) -> frozenset[str]:
    """Return the tests for what nobody did: unlike what was done, it is no reason for tests of other kinds."""
    row = acceptance.after.get(cause)
    return _with_passive(acceptance, _named(acceptance, kinds) if row is None else row)


def _of_kinds(acceptance: Acceptance, kinds: tuple[Kind, ...] | None) -> frozenset[str]:
    if kinds == ():
        return frozenset()
    return _with_passive(acceptance, _named(acceptance, kinds or ())) or every_test(acceptance)


def _named(acceptance: Acceptance, kinds: tuple[Kind, ...]) -> frozenset[str]:
    """Return the names of the tests of these kinds; none where all of them only report."""
    found = {test.name: test for kind in kinds for test in _inherited(acceptance, kind)}
    return frozenset(found) if any(not experimental(test.tool) for test in found.values()) else frozenset()


def every_test(acceptance: Acceptance) -> frozenset[str]:
    return frozenset([test.name for test in acceptance.tests])


def _with_passive(acceptance: Acceptance, names: Iterable[str]) -> frozenset[str]:
    """Add the tests that only look: whatever is worth a test is worth a look. Nothing stays nothing."""
    found = frozenset(names)
    return found.union(test.name for test in acceptance.tests if test.tool in PASSIVE) if found else found


def _inherited(acceptance: Acceptance, kind: Kind) -> Iterator[GateTest]:
    tool, needs = kind
    tests = [test for test in acceptance.tests if test.tool == tool]
    least = needs.get("level")
    if least is not None and tests:
        enough = sorted(level for test in tests if (level := _level(test)) >= least)
        level = enough[0] if enough else max(map(_level, tests))
        yield from (test for test in tests if _level(test) == level)
    elif least is None:
        yield from (
            test for test in tests if all((name in test.args) == (given is None) for name, given in needs.items())
        )


def _level(test: GateTest) -> int:
    level = test.args.get("level", DIAG_LEVEL)
    return level if isinstance(level, int) else DIAG_LEVEL


def sentences(reasons: Reasons, acceptance: Acceptance) -> tuple[str, ...]:
    """Return the reasons in words, each once, with the tests that it asks for unless that is all of them."""
    asked: dict[str, list[str]] = {}
    for test, found in reasons.items():
        for why in found:
            asked.setdefault(why, []).append(test)
    every = every_test(acceptance)
    return tuple([
        why if every.issubset(tests) or why.startswith(f"{tests[0]}: ") else f"{why}: {', '.join(tests)}"
        for why, tests in asked.items()
    ])  # fmt: skip


def whole_reasons(reasons: Reasons, acceptance: Acceptance) -> frozenset[str]:
    """Return the reasons that void every test, such as another image, and are no test's own."""
    if len(reasons) < len(acceptance.tests):
        return frozenset()
    common = frozenset.intersection(*(frozenset(found) for found in reasons.values()))
    return frozenset(why for why in common if not any(why.startswith(f"{name}: ") for name in reasons))
