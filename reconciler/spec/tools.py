"""Check the acceptance tests of a spec: the arguments that each tool takes, and the metrics that it measures.

A threshold on a metric that nothing measures would keep every node out forever, so it is an error of the spec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reconciler.model.after import AlwaysAll, Done, Exchanged, Noticed
from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.gate_arguments import (
    GROUP,
    INTERFACE,
    ONE_WAY,
    PARTNERS,
    RAIL_BY_RAIL,
    RAILS,
    SCOPE,
    SERVE,
    TOGETHER,
    between_nodes,
    listed,
)
from reconciler.model.gate_tools import TOOLS
from reconciler.model.soak import NAME as SOAK
from reconciler.model.soak import is_load
from reconciler.model.units import format_duration, parse_duration
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec, Soak, Test
from reconciler.spec.parse import DeclaredResource
from reconciler.strict_yaml.parse import Steps

LONG_LEVELS = {"3": "30m", "4": "1h to 2h"}  # of dcgmi diag, by NVIDIA's documentation; fewer GPUs take less


def check_tests(
    profile: DeclaredResource[AcceptanceProfileSpec], components: Collection[str] | None
) -> Iterator[Diagnostic]:
    """Yield the problems of a profile. `components`: those whose firmware some HardwareProfile has; None: not known."""
    for at, phase in enumerate(profile.spec.phases):
        for index, test in enumerate(phase.tests):
            yield from _check_test(profile, test, ("phases", at, "tests", index))
    if profile.spec.soak is not None:
        yield from _check_soak(profile, profile.spec.soak)
    if all(TOOLS[test.tool].experimental for phase in profile.spec.phases for test in phase.tests):
        yield profile.problem(("phases",), "every tool is experimental, so nothing in it can pass", "add another test")

    yield from _check_after(profile, components)


def _check_after(
    profile: DeclaredResource[AcceptanceProfileSpec], components: Collection[str] | None
) -> Iterator[Diagnostic]:
    tests = [test.name for phase in profile.spec.phases for test in phase.tests]
    tests += [] if profile.spec.soak is None else [SOAK]
    for done, names in profile.spec.after.items():
        if done in AlwaysAll.__members__.values():
            yield profile.problem(("after", done), f"{done} always costs all tests", "leave the row out")
        elif done not in [*Done, *Exchanged, *Noticed] and components is not None and done not in components:
            known = [*Exchanged, *Noticed] if "change" in done else [*Done, *Noticed, *sorted(components)]
            yield profile.problem(
                ("after", done), f"there is no action or component of firmware {done!r}", did_you_mean(done, known)
            )
        for index, name in enumerate(names):
            if name not in tests:
                problem = f"the profile has no test {name!r}"
                yield profile.problem(("after", done, index), problem, did_you_mean(name, tests))


def _check_soak(profile: DeclaredResource[AcceptanceProfileSpec], soak: Soak) -> Iterator[Diagnostic]:
    for index, load in enumerate(soak.loads):
        steps: Steps = ("soak", "loads", index)
        yield from _check_test(profile, load, steps)
        if load.validity is not None:
            yield profile.problem(
                (*steps, "validity"), "a load has no validity of its own", "the soak has the profile's"
            )
        if between_nodes(load.args):
            problem = "a load of a soak takes no other nodes: they would be held for all of it"
            name = PARTNERS if PARTNERS in load.args else GROUP
            yield profile.problem((*steps, "args", name), problem, "make it a test of a phase")
        if not is_load(load.tool.value):
            why = TOOLS[load.tool].experimental or "it loads nothing, or nothing says that it does"
            yield profile.problem((*steps, "tool"), f"{load.tool} can't be a load of a soak: {why}")
    for at, phase in enumerate(profile.spec.phases):
        for index, test in enumerate(phase.tests):
            if test.name == SOAK:
                yield profile.problem(
                    ("phases", at, "tests", index, "name"), f"{SOAK!r} is the name of the soak itself"
                )
    loads = profile.spec.loads()
    if not loads:
        hint = "name loads under soak.loads, such as stress-ng"
        yield profile.problem(("soak",), "no test of the phases loads the node", hint)
    round_s = sum(parse_duration(load.timeout) for load in loads)
    if 2 * round_s > parse_duration(soak.duration):
        problem = f"{soak.duration} may be over before each load ran twice: their timeouts add up to "
        hint = "the first and the last hour are compared: give it more time, or its loads less"
        yield profile.problem(("soak",), problem + format_duration(round_s), hint)


def _check_test(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    row = TOOLS[test.tool]
    for name, value in test.args.items():
        if name not in row.arguments:
            hint = did_you_mean(name, row.arguments) or "it takes no arguments"
            yield profile.problem((*steps, "args", name), f"{test.tool} takes no argument {name!r}", hint)
        elif problem := row.arguments[name].check(value):
            yield profile.problem((*steps, "args", name), problem)
        elif (other := row.arguments[name].needs) and other not in test.args:
            yield profile.problem((*steps, "args", name), f"{name} needs args.{other}", row.arguments[other].about)
    yield from _check_partners(profile, test, (*steps, "args"))
    for name, argument in row.arguments.items():
        if argument.needed and name not in test.args:
            yield profile.problem(steps, f"{test.tool} needs args.{name}", argument.about)
    yield from _check_timeout(profile, test, steps)
    for index, threshold in enumerate(test.thresholds):
        if not row.measures(threshold.metric):
            problem = f"{test.tool} measures no {threshold.metric!r}"
            yield profile.problem((*steps, "thresholds", index, "metric"), problem, f"it measures {row.metrics}")


def _check_timeout(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    """Yield that a test is always killed at its timeout, which would keep every node out."""
    row = TOOLS[test.tool]
    level = str(test.args.get("level", "")) if test.tool == "dcgmi-diag" else ""
    if level in LONG_LEVELS and "timeout" not in test.model_fields_set:
        problem = f"level {level} takes {LONG_LEVELS[level]} on eight GPUs, and is killed after {test.timeout}"
        yield profile.problem(steps, problem, "give it a timeout that is longer than it takes on such a node")
    seconds = row.arguments.get("seconds")
    if seconds is None or ("seconds" in test.args and seconds.check(test.args["seconds"])):
        return
    runs_s = int(test.args.get("seconds", row.seconds))
    if parse_duration(test.timeout) <= runs_s:
        problem = f"{test.tool} runs for {format_duration(runs_s)}, and is killed after {test.timeout}"
        place = (*steps, "timeout") if "timeout" in test.model_fields_set else steps
        yield profile.problem(place, problem, "give it a timeout that is longer by a minute, or fewer args.seconds")


def _check_partners(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    row = TOOLS[test.tool]
    if PARTNERS in test.args:
        for name in ONE_WAY:
            if name in test.args:
                problem = (
                    f"{name} is for a test without partners: with them, a partner serves, and both ways are tested"
                )
                yield profile.problem((*steps, name), problem, f"leave {name} or {PARTNERS} out")
    if SERVE in row.arguments and (PARTNERS in test.args) is not (SERVE in test.args):
        lacking, there = (SERVE, PARTNERS) if PARTNERS in test.args else (PARTNERS, SERVE)
        yield profile.problem((*steps, there), f"{there} needs args.{lacking}", row.arguments[lacking].about)
    if GROUP in row.arguments:
        yield from _check_group(profile, test, steps)
    elif PARTNERS not in test.args and INTERFACE in test.args and INTERFACE in row.arguments:
        yield profile.problem((*steps, INTERFACE), f"{INTERFACE} is of a partner, and there is none")


def _check_group(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    """Yield what is wrong with a program that runs over several nodes at once: in pairs, or as a group."""
    if PARTNERS in test.args and GROUP in test.args:
        problem = f"{PARTNERS} are for pairs, {GROUP} is for more nodes at once"
        yield profile.problem((*steps, PARTNERS), problem, f"leave {PARTNERS} or {GROUP} out")
    if between_nodes(test.args) and INTERFACE not in test.args:
        yield profile.problem(
            steps, f"{test.tool} over several nodes needs args.{INTERFACE}", TOGETHER[INTERFACE].about
        )
    for name in TOGETHER:
        if name not in test.args or name == GROUP:
            continue
        if not between_nodes(test.args):
            yield profile.problem((*steps, name), f"{name} is for several nodes", f"say {PARTNERS} or {GROUP}, too")
        elif name == RAIL_BY_RAIL and test.args[RAIL_BY_RAIL] and len(listed(test.args.get(RAILS, ""))) < 2:
            problem = f"{RAIL_BY_RAIL} needs args.{RAILS} with two rails or more"
            yield profile.problem((*steps, name), problem, TOGETHER[RAILS].about)
        elif name == SCOPE and GROUP not in test.args:
            hint = "in pairs, there is one partner on each side of the leaf"
            yield profile.problem((*steps, name), f"{SCOPE} is of a group", hint)
