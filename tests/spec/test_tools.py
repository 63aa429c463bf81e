"""What the spec says about acceptance tools agrees with the gate that runs them."""

from __future__ import annotations

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.nccl import COLLECTIVES
from reconciler.model.desired import GateTest
from reconciler.spec import tools
from reconciler.spec.kinds.acceptance_profile import Tool
from tests.spec.example import load

VALUES: dict[str, tuple[tools.Argument, ...]] = {
    "level": (1, 4),
    "testcases": ("a", "a, b_2"),
    "minBytes": ("8", "8G"),
    "maxBytes": ("16M",),
    "runtime": (1,),
}


def test_the_spec_knows_the_tools_that_the_gate_has() -> None:
    assert set(TOOLS) == set(Tool) == set(tools.ARGUMENTS) == set(tools.METRICS)
    assert COLLECTIVES == tools.COLLECTIVES


@pytest.mark.parametrize("tool", Tool)
def test_every_argument_that_the_spec_takes_makes_a_command(tool: Tool) -> None:
    desired = load().nodes["gpu-a001"]
    for name, check in tools.ARGUMENTS[tool].items():
        for value in VALUES.get(name, ("all_gather",)):
            assert check(value) == ""
            test = GateTest("t", tool.value, {name: value}, (), 60.0)
            if tool is not Tool.FIO:  # its commands depend on drives that were observed
                assert isinstance(TOOLS[tool].commands(test, desired, None), tuple)  # type: ignore[arg-type] # not read
