"""The gate judges measurements of lab machines: a healthy one passes every test, a broken one never does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconciler.converge.observe import observe_node
from reconciler.gate.certificate import judge_test
from reconciler.gate.evidence import required_metrics
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gate_arguments import COLLECTIVES
from tests.lab.test_inprocess import NODE, World

Judged = tuple[Verdict, tuple[str, ...]]


async def measure(world: World, name: str = NODE) -> dict[str, Judged]:
    """Run every test of the profile and judge it by its thresholds."""
    desired = world.lab.fleet.nodes[name]
    observed = await observe_node(desired, world.fabric, world.clock, world.lab.fleet.settings)
    host = world.fabric.host(desired)
    assert host is not None
    assert desired.profile.acceptance is not None
    results: dict[str, Judged] = {}
    for phase in desired.profile.acceptance.phases:
        for test in phase.tests:
            tool = TOOLS[test.tool]
            commands = tool.commands(test, desired, observed)
            outputs: list[CommandResult] = []
            if not isinstance(commands, str):
                outputs = [await host.run(argv, timeout=test.timeout_s) for argv in commands]
            results[test.name] = judge_test(test, tool.judge(test, desired, observed, outputs))
    return results


def verdicts(world: World, name: str = NODE) -> dict[str, Verdict]:
    return {test: verdict for test, (verdict, _) in world.run(measure(world, name)).items()}


def test_a_healthy_machine_passes_everything() -> None:
    world = World()
    results = world.run(measure(world))
    assert {name: judged for name, judged in results.items() if judged != (Verdict.PASS, ())} == {}
    assert set(results) == {"inventory", "xids", "dcgm", "pcie", "nccl", "storage"}


@pytest.mark.parametrize(
    ("fault", "parameters", "failing"),
    [
        ("xid_79", {"gpu": 1}, {"inventory", "xids", "dcgm", "nccl", "pcie"}),
        ("ecc_errors", {}, {"xids", "dcgm"}),
        ("nvlink_down", {"links": 6}, {"inventory", "xids", "dcgm", "nccl"}),
        ("slow_storage", {}, {"storage"}),
        ("low_nccl", {}, {"nccl"}),
    ],
)
def test_a_broken_machine_fails_where_it_is_broken(fault: str, parameters: dict[str, Any], failing: set[str]) -> None:
    world = World()
    world.machine.inject(fault, **parameters)
    found = verdicts(world)
    assert {name for name, verdict in found.items() if verdict is not Verdict.PASS} == failing


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_each_collective_passes_on_a_healthy_machine(collective: str) -> None:
    world = World()
    desired = world.lab.fleet.nodes[NODE]
    test = GateTest("nccl", "nccl-tests", {"collective": collective}, (), 600.0)
    tool = TOOLS["nccl-tests"]

    async def main() -> TestResult:
        observed = await observe_node(desired, world.fabric, world.clock, world.lab.fleet.settings)
        commands = tool.commands(test, desired, observed)
        assert not isinstance(commands, str)
        return tool.judge(test, desired, observed, [await world.host.run(argv, timeout=600) for argv in commands])

    result = world.run(main())
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())


def test_diagnostics_of_divided_gpus_are_no_pass() -> None:
    assert verdicts(World(), "gpu-b001")["dcgm"] is not Verdict.PASS


def test_without_the_fabric_manager_nothing_counts_against_the_hardware() -> None:
    world = World()

    async def main() -> dict[str, Judged]:
        assert (await world.host.run(["systemctl", "stop", "nvidia-fabricmanager"], timeout=30)).exit_status == 0
        await asyncio.sleep(1)
        return await measure(world)

    results = world.run(main())
    assert {results[name][0] for name in ("dcgm", "nccl", "pcie")} <= {Verdict.ERROR, Verdict.UNJUDGED}


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("stress-ng", {"seconds": 20}),
        ("memtester", {"loops": 2}),
        ("hpcc", {"rows": 2, "columns": 4}),
        ("iperf3", {"streams": 4}),
        ("iperf3", {"server": "10.0.0.9", "reverse": True}),
        ("fio-verify", {"directory": "/data"}),
        ("fio", {"random": True, "floors": "SAMSUNG MZQL2960=900000, SAMSUNG MZQL23T8HCLS-00A07=900000"}),
        ("clock", {}),
        ("clock", {"source": "timesyncd"}),
        ("perftest", {"rails": "mlx5_0, mlx5_1"}),
        ("perftest", {"rails": "mlx5_0, mlx5_1", "gpudirect": True}),
        ("perftest", {"rails": "mlx5_0", "way": "read", "bidirectional": True, "server": "10.0.0.9"}),
        ("pcie", {"load": "gpu_burn 30"}),
        ("pcie", {"parts": "nics, drives"}),
        ("gpu-burn", {"directory": "/opt/gpu-burn", "seconds": 60, "tensor": True}),
        ("dcgmproftester", {"seconds": 30}),
        ("link-counters", {"seconds": 20}),
        ("mlxlink", {"rails": "mlx5_0, mlx5_7", "eye": True}),
        ("mlxlink", {"rails": "mlx5_0, mlx5_7", "seconds": 600, "load": "ib_write_bw"}),
        ("command", {"run": "reference-train --steps 20", "metrics": "mfu, step_ms", "repeat": 2, "same": "hash"}),
    ],
)
def test_each_tool_passes_on_a_healthy_machine(tool: str, args: dict[str, Any]) -> None:
    world = World()
    desired = world.lab.fleet.nodes[NODE]
    test = GateTest("test", tool, args, (), 600.0)

    async def main() -> TestResult:
        observed = await observe_node(desired, world.fabric, world.clock, world.lab.fleet.settings)
        commands = TOOLS[tool].commands(test, desired, observed)
        assert not isinstance(commands, str)
        outputs = [await world.host.run(argv, timeout=600) for argv in commands]
        return TOOLS[tool].judge(test, desired, observed, outputs)

    result = world.run(main())
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert set(required_metrics(test)) <= set(result.metrics)


def test_a_gpu_with_half_of_its_lanes_is_named() -> None:
    world = World()
    world.machine.inject("gpu_cell", gpu=2, cell="pcie_width", text="8x")
    result = world.run(judged(world, GateTest("test", "pcie", {}, (), 60.0)))
    assert result.verdict is Verdict.FAIL
    assert "width x8 of x16" in result.reasons[0]
    assert result.metrics["width"] == 8


def of_amd(world: World) -> None:
    for gpu in world.machine.state.gpus:
        gpu.name = "AMD Instinct MI300X"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("rccl-tests", {}),
        ("rccl-tests", {"collective": "alltoall"}),
        ("amd-smi", {}),
        ("rvs", {"config": "/opt/rocm/share/rocm-validation-suite/conf/MI300X/gst_single.conf"}),
    ],
)
def test_each_tool_of_amd_passes_on_a_healthy_machine_with_its_gpus(tool: str, args: dict[str, Any]) -> None:
    world = World()
    of_amd(world)
    result = world.run(judged(world, GateTest("test", tool, args, (), 3600.0)))
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert set(required_metrics(GateTest("test", tool, args, (), 60.0))) <= set(result.metrics)


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("gpu-burn", {"directory": "/opt/gpu-burn", "seconds": 60}),
        ("dcgmproftester", {"seconds": 30}),
        ("amd-smi", {}),
        ("rvs", {"config": "/opt/gst.conf"}),
        ("rccl-tests", {}),
    ],
)
def test_a_gpu_that_is_lost_is_no_pass_of_any_tool(tool: str, args: dict[str, Any]) -> None:
    world = World()
    if tool in ("amd-smi", "rvs", "rccl-tests"):
        of_amd(world)
    world.machine.inject("xid_79", gpu=1)
    assert world.run(judged(world, GateTest("test", tool, args, (), 3600.0))).verdict is not Verdict.PASS


@pytest.mark.parametrize(
    ("fault", "says"),
    [("cable", "> 0 (effective_errors.mlx5_3)"), ("flap", "mlx5_3: the link was lost in the interval")],
)
def test_a_bad_link_shows_over_an_interval_and_a_healed_one_no_more(fault: str, says: str) -> None:
    """What was counted before does not count: the errors of a cable that was exchanged are no longer there."""
    world = World()
    bars = (Threshold("effective_errors", max=0.0), Threshold("link_downs", max=0.0))
    test = GateTest("ber", "mlxlink", {"rails": "mlx5_0, mlx5_3", "seconds": 600}, bars, 3600.0)
    world.machine.inject(fault, port=3)
    verdict, why = judge_test(test, world.run(judged(world, test)))
    assert verdict is Verdict.FAIL
    assert says in "; ".join(why)
    world.machine.clear(fault)
    assert judge_test(test, world.run(judged(world, test))) == (Verdict.PASS, ())


def test_slow_links_slow_the_reference_training() -> None:
    test = GateTest("test", "command", {"run": "reference-train", "metrics": "mfu"}, (), 600.0)
    healthy, slow = World(), World()
    slow.machine.inject("low_nccl")
    before, after = (world.run(judged(world, test)).metrics["mfu"] for world in (healthy, slow))
    assert after < 0.9 * before


@pytest.mark.parametrize(
    ("tool", "args", "metric"),
    [
        ("dcgmproftester", {"seconds": 30}, "gflops.3"),
        ("command", {"run": "reference-train --steps 20", "metrics": "mfu"}, "mfu"),
    ],
)
@pytest.mark.parametrize("fault", ["slow_gpu", "throttle"])
def test_one_slow_gpu_slows_loads_and_the_training(fault: str, tool: str, args: dict[str, Any], metric: str) -> None:
    world, test = World(), GateTest("test", tool, args, (), 600.0)
    healthy = world.run(judged(world, test)).metrics
    world.machine.inject(fault)
    found = world.run(judged(world, test)).metrics
    assert found[metric] < 0.8 * healthy[metric]
    assert {name: found[name] for name in found if name.endswith(".4")} == {
        name: healthy[name] for name in found if name.endswith(".4")
    }


async def judged(world: World, test: GateTest) -> TestResult:
    desired = world.lab.fleet.nodes[NODE]
    observed = await observe_node(desired, world.fabric, world.clock, world.lab.fleet.settings)
    commands = TOOLS[test.tool].commands(test, desired, observed)
    assert not isinstance(commands, str)
    outputs = [await world.host.run(argv, timeout=test.timeout_s) for argv in commands]
    return TOOLS[test.tool].judge(test, desired, observed, outputs)
