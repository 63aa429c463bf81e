"""What the spec says about acceptance tools agrees with the gate that runs them."""

from __future__ import annotations

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model import gate_tools
from reconciler.model.desired import GateTest
from reconciler.model.gate_arguments import Value
from reconciler.spec.kinds.acceptance_profile import Share, Tool
from tests.spec.example import load

VALUES: dict[str, tuple[Value, ...]] = {
    "level": (1, 4),
    "testcases": ("a", "a, b_2"),
    "minBytes": ("8", "8G"),
    "maxBytes": ("16M",),
    "runtime": (1,),
    "collective": ("all_gather",),
    "directory": ("/data", "/var/lib/x"),
    "mebibytes": (1,),
    "server": ("10.0.0.1", "fd00::1"),
    "port": (5201,),
    "partners": (2,),
    "serve": ("torchrun --node_rank=0 bench.py",),
    "interface": ("ens1np0",),
    "group": (4, 64),
    "scope": ("leaf", "rack", "fabric"),
    "user": ("nobody", "gate_1"),
    "railByRail": (True,),
    "seconds": (1,),
    "streams": (8,),
    "reverse": (True,),
    "stressors": ("cpu", "cpu, vm"),
    "workers": (0,),
    "memory": ("80%", "16M"),
    "loops": (2,),
    "order": (300,),
    "rows": (2,),
    "columns": (2,),
    "run": ("mfu.sh | tail -1",),
    "metrics": ("mfu", "mfu, loss"),
    "exit": (0,),
    "repeat": (2,),
    "same": ("hash",),
    "tensor": (True,),
    "random": (True,),
    "floors": ("PM9A3=6000", "SAMSUNG MZQL2=6000, Micron_7450=5000"),
    "rails": ("mlx5_0", "mlx5_0, mlx5_1"),
    "way": ("write", "read"),
    "bidirectional": (True,),
    "gpudirect": (False, True, "cuda", "rocm"),
    "load": ("gpu_burn 30",),
    "parts": ("nics", "drives, nics"),
    "eye": (True,),
    "source": ("chrony", "timesyncd"),
    "cuda": (12,),
    "use": ("crypto_speed",),
    "options": ("a=1, b=x",),
    "config": ("/opt/rocm/share/rocm-validation-suite/conf/MI300X/gst_single.conf",),
}


def test_the_spec_knows_the_tools_that_the_gate_has() -> None:
    assert set(TOOLS) == set(Tool) == set(gate_tools.TOOLS)
    assert [tool.value for tool in Tool] == list(gate_tools.TOOLS)


@pytest.mark.parametrize("tool", Tool)
def test_every_argument_that_the_spec_takes_makes_a_command(tool: Tool) -> None:
    desired = load().nodes["gpu-a001"]
    arguments = gate_tools.TOOLS[tool].arguments
    needed = {name: VALUES[name][0] for name in arguments if arguments[name].needed}
    for name, argument in arguments.items():
        for value in VALUES[name]:
            assert argument.check(value) == ""
            test = GateTest("t", tool.value, {**needed, name: value}, (), 60.0)
            if tool not in ("fio", "extension"):  # they depend on drives that were observed, and on a package
                assert isinstance(TOOLS[tool].commands(test, desired, None), tuple)  # type: ignore[arg-type] # not read


@pytest.mark.parametrize("tool", gate_tools.TOOLS)
def test_every_metric_that_a_pass_must_have_is_one_that_the_tool_measures(tool: str) -> None:
    row = gate_tools.TOOLS[tool]
    required = (
        row.required({"metrics": "mfu", "stressors": "cpu,vm", "rails": "a,b"})
        if callable(row.required)
        else row.required
    )
    assert all(row.measures(name) for name in required)


def test_a_limit_is_a_share_of_a_declared_rate() -> None:
    share = Share.read("92% of lineRate")
    assert share == Share(92.0, "lineRate")
    assert share.of({"lineRate": 400.0}) == 368.0
    assert share.of({}) is None
    for wrong in ("92 % of lineRate", "92%", "-1% of lineRate", "1e3% of x", "92% of LineRate", "92% of lineRate\n"):
        assert Share.read(wrong) is None


@pytest.mark.parametrize(
    "path", ["data", "/", "/dev", "/dev/shm", "/proc/1", "/sys/x", "/data/../dev", "/a b", "/data/"]
)
def test_no_tool_writes_outside_a_declared_directory(path: str) -> None:
    assert gate_tools.TOOLS["fio-verify"].arguments["directory"].check(path) != ""
