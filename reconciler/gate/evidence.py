"""Name the metrics that a pass of each tool must have.

They are not in the tools' modules, as certificates are also read where no tool runs.
"""

from __future__ import annotations

from functools import lru_cache

from reconciler.model.desired import GateTest
from reconciler.model.gate_tools import TOOLS

_ADDED = {  # tests that `dcgmi diag -r N` adds to those of the levels below N
    1: ("software",),
    2: ("memory", "pcie"),
    3: ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power"),
    4: ("memtest", "pulse_test"),
}
DIAG_LEVELS = {level: frozenset().union(*(_ADDED[below] for below in _ADDED if below <= level)) for level in _ADDED}
DIAG_LEVEL = 2
TEST_CASES = "host_to_device_memcpy_ce,device_to_host_memcpy_ce"
GPU_COUNT = ".gpus"  # suffix of the metrics that count the GPUs which passed a test


def requested_cases(test: GateTest) -> tuple[str, ...]:
    """Return the test cases that nvbandwidth is to run."""
    return _cases(str(test.args.get("testcases", TEST_CASES)))


@lru_cache(maxsize=64)
def _cases(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def required_metrics(test: GateTest) -> tuple[str, ...]:
    """Return the names of the metrics that a pass of this test must have, without those that it may skip."""
    if test.tool == "dcgmi-diag":
        return _counts(test.args.get("level", DIAG_LEVEL), test.allow_skip)
    if test.tool == "nvbandwidth":
        return _speeds(requested_cases(test), test.allow_skip)
    required = TOOLS[test.tool].required if test.tool in TOOLS else ()
    return required(test.args) if callable(required) else required


@lru_cache(maxsize=64)
def _counts(level: object, allow_skip: tuple[str, ...]) -> tuple[str, ...]:
    names = DIAG_LEVELS[level] if isinstance(level, int) and level in DIAG_LEVELS else frozenset[str]()
    return tuple(f"{name}{GPU_COUNT}" for name in sorted(names.difference(allow_skip)))


@lru_cache(maxsize=64)
def _speeds(cases: tuple[str, ...], allow_skip: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}.{part}" for name in cases if name not in allow_skip for part in ("min", "max", "average"))


def experimental(tool: str) -> str:
    """Return why this tool reports and never passes; "" for one that was tried on what real ones printed."""
    return TOOLS[tool].experimental if tool in TOOLS else ""
