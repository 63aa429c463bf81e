"""Check the acceptance tests of a spec: the arguments that each tool takes, and the metrics that it measures.

A threshold on a metric that nothing measures would keep every node out forever, so it is an error of the spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec, Test, Tool
from reconciler.spec.parse import DeclaredResource
from reconciler.strict_yaml.parse import Steps

Argument = str | int | bool
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
_MESSAGE_SIZE = re.compile(r"[0-9]{1,15}[KMG]?")
_TEST_CASES = re.compile(r"\w+(\s*,\s*\w+)*")


def _whole(low: int, high: int) -> Callable[[Argument], str]:
    def check(value: Argument) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return "" if fits else f"must be a whole number from {low} to {high}"

    return check


def _text(pattern: re.Pattern[str], what: str) -> Callable[[Argument], str]:
    return lambda value: "" if isinstance(value, str) and pattern.fullmatch(value) else f"{value!r} is not {what}"


def _collective(value: Argument) -> str:
    return "" if value in COLLECTIVES else f"{value!r} is not one of {', '.join(COLLECTIVES)}"


_SIZE = _text(_MESSAGE_SIZE, "a message size like 8G")
ARGUMENTS: Final[Mapping[Tool, Mapping[str, Callable[[Argument], str]]]] = {
    Tool.DCGMI_DIAG: {"level": _whole(1, 4)},
    Tool.NVBANDWIDTH: {"testcases": _text(_TEST_CASES, "a list of test cases like a,b")},
    Tool.NCCL_TESTS: {"collective": _collective, "minBytes": _SIZE, "maxBytes": _SIZE},
    Tool.FIO: {"runtime": _whole(1, 3600)},
    Tool.INVENTORY: {},
    Tool.XID: {},
}
METRICS: Final[Mapping[Tool, tuple[str, re.Pattern[str]]]] = {
    Tool.DCGMI_DIAG: ("<test>.gpus", re.compile(r"\w+\.gpus")),
    Tool.NVBANDWIDTH: ("<testcase>.min, .max or .average", re.compile(r"\w+\.(min|max|average)")),
    Tool.NCCL_TESTS: ("busbw_peak", re.compile(r"busbw_peak")),
    Tool.FIO: ("read_mbps, read_mbps.<device> or spread", re.compile(r"read_mbps(\..+)?|spread")),
    Tool.INVENTORY: ("hardware.<field>", re.compile(r"hardware\.\w+")),
    Tool.XID: ("xids", re.compile(r"xids")),
}
COUNTED_PARTS: Final[Mapping[Tool, str]] = {  # what each tool counts: it passes only if the inventory declares a number
    Tool.DCGMI_DIAG: "gpus",
    Tool.NVBANDWIDTH: "gpus",
    Tool.NCCL_TESTS: "gpus",
    Tool.FIO: "drives",
}


def check_tests(profile: DeclaredResource[AcceptanceProfileSpec]) -> Iterator[Diagnostic]:
    for at, phase in enumerate(profile.spec.phases):
        for index, test in enumerate(phase.tests):
            yield from _check_test(profile, test, ("phases", at, "tests", index))


def _check_test(profile: DeclaredResource[AcceptanceProfileSpec], test: Test, steps: Steps) -> Iterator[Diagnostic]:
    known = ARGUMENTS[test.tool]
    for name, value in test.args.items():
        if name not in known:
            hint = did_you_mean(name, known) or "it takes no arguments"
            yield profile.problem((*steps, "args", name), f"{test.tool} takes no argument {name!r}", hint)
        elif problem := known[name](value):
            yield profile.problem((*steps, "args", name), problem)
    shown, pattern = METRICS[test.tool]
    for index, threshold in enumerate(test.thresholds):
        if not pattern.fullmatch(threshold.metric):
            problem = f"{test.tool} measures no {threshold.metric!r}"
            yield profile.problem((*steps, "thresholds", index, "metric"), problem, f"it measures {shown}")
