"""Check the acceptance tests of a spec: the arguments that each tool takes, and the metrics that it measures.

A threshold on a metric that nothing measures would keep every node out forever, so it is an error of the spec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reconciler.model.after import AlwaysAll, Done
from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.gate_tools import TOOLS
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec, Test
from reconciler.spec.parse import DeclaredResource
from reconciler.strict_yaml.parse import Steps


def check_tests(
    profile: DeclaredResource[AcceptanceProfileSpec], components: Collection[str] | None
) -> Iterator[Diagnostic]:
    """Yield the problems of a profile. `components`: those whose firmware some HardwareProfile has; None: not known."""
    for at, phase in enumerate(profile.spec.phases):
        for index, test in enumerate(phase.tests):
            yield from _check_test(profile, test, ("phases", at, "tests", index))
    if all(TOOLS[test.tool].experimental for phase in profile.spec.phases for test in phase.tests):
        yield profile.problem(("phases",), "every tool is experimental, so nothing in it can pass", "add another test")

    yield from _check_after(profile, components)


def _check_after(
    profile: DeclaredResource[AcceptanceProfileSpec], components: Collection[str] | None
) -> Iterator[Diagnostic]:
    tests = [test.name for phase in profile.spec.phases for test in phase.tests]
    for done, names in profile.spec.after.items():
        if done in AlwaysAll.__members__.values():
            yield profile.problem(("after", done), f"{done} always costs all tests", "leave the row out")
        elif done not in list(Done) and components is not None and done not in components:
            hint = did_you_mean(done, [*Done, *sorted(components)])
            yield profile.problem(("after", done), f"there is no action or component of firmware {done!r}", hint)
        for index, name in enumerate(names):
            if name not in tests:
                problem = f"the profile has no test {name!r}"
                yield profile.problem(("after", done, index), problem, did_you_mean(name, tests))


def _check_test(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    row = TOOLS[test.tool]
    for name, value in test.args.items():
        if name not in row.arguments:
            hint = did_you_mean(name, row.arguments) or "it takes no arguments"
            yield profile.problem((*steps, "args", name), f"{test.tool} takes no argument {name!r}", hint)
        elif problem := row.arguments[name].check(value):
            yield profile.problem((*steps, "args", name), problem)
    for name, argument in row.arguments.items():
        if argument.needed and name not in test.args:
            yield profile.problem(steps, f"{test.tool} needs args.{name}", argument.about)
    for index, threshold in enumerate(test.thresholds):
        if not row.measures(threshold.metric):
            problem = f"{test.tool} measures no {threshold.metric!r}"
            yield profile.problem((*steps, "thresholds", index, "metric"), problem, f"it measures {row.metrics}")
