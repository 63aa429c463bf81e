"""A gate over SSH, on a machine with a fault of a GPU, link or leaf: it names the part, and passes without it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from reconciler.converge.gate import AcceptanceGate
from reconciler.drivers.ssh import SshHost
from reconciler.gate.certificate import judge_test
from reconciler.gate.fabric.diagnose import Diagnosis, diagnose
from reconciler.gate.fabric.results import Bar, Leg, LoopbackRun, PairRun
from reconciler.gate.fabric.topology import Fabric, Part, PartKind
from reconciler.gate.tools import TOOLS
from reconciler.lab.hardware.commands import run
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Acceptance, Desired, DesiredInventory, GatePhase, GateTest, Threshold
from reconciler.model.gate import Certificate, CommandResult, Verdict
from reconciler.model.observed import Answered
from tests import builders as b
from tests.lab.ssh_bench import Bench, Clock, make_machine
from tests.lab.test_wire_ssh_end_to_end import with_host

pytestmark = pytest.mark.wire

RAILS = ", ".join(f"mlx5_{port}" for port in range(8))
FAST = (Threshold("gbps", min=360.0),)
TESTS = (
    GateTest("dcgm", "dcgmi-diag", {"level": 3}, (), 3600.0),
    GateTest("nvbandwidth", "nvbandwidth", {}, (), 600.0),
    GateTest("nccl", "nccl-tests", {"collective": "all_reduce"}, (Threshold("busbw_peak", min=440.0),), 600.0),
    GateTest(
        "burn",
        "gpu-burn",
        {"directory": "/opt/gpu-burn", "seconds": 60},
        (
            Threshold("gflops", min=48_000.0),
            Threshold("clock_mhz", min=1600.0),
            Threshold("temperature_c", max=85.0),
        ),
        600.0,
    ),
    GateTest(
        "links",
        "mlxlink",
        {"rails": RAILS},
        (Threshold("effective_ber", max=1e-12), Threshold("link_downs", max=0.0)),
        60.0,
    ),
    GateTest("counters", "link-counters", {"seconds": 60}, (), 120.0),
    GateTest("alone", "perftest", {"rails": RAILS}, FAST, 600.0),
    GateTest("to a server", "perftest", {"rails": RAILS, "server": "10.0.0.9"}, FAST, 600.0),
)
ONLY_REPORTS = "counters"  # no public recording shows two readings under load, so that it can't pass
PROFILE = b.profile(
    inventory=DesiredInventory(gpus=8, drives=5, rdma_ports=8),
    acceptance=Acceptance("all", (GatePhase("burn", TESTS),), None),
)
NODE = b.node(profile=PROFILE)

Run = Callable[[], Awaitable[Certificate]]


def play(scenario: Callable[[Bench, Run], Awaitable[None]]) -> None:
    async def with_gate(bench: Bench, host: SshHost) -> None:
        gate = AcceptanceGate(lambda _: None)
        await scenario(bench, lambda: gate.run(NODE, host, b.observed(), VirtualClock()))

    with_host(with_gate)


def blamed(certificate: Certificate) -> dict[str, str]:
    """Return the reasons of each test that did not pass, those of the tool that only reports left out."""
    results = {result.test: result for result in certificate.results}
    assert set(results) == {test.name for test in TESTS}
    judged = {test.name: judge_test(test, results[test.name]) for test in TESTS if test.name != ONLY_REPORTS}
    return {name: "; ".join(why) for name, (verdict, why) in judged.items() if verdict is not Verdict.PASS}


@pytest.mark.parametrize(
    ("fault", "parameters", "says"),
    [
        ("slow_gpu", {"gpu": 5}, {"dcgm": r"stress level of 42000.0 .* GPU 5", "burn": r"gflops .* \(gflops\.5\)$"}),
        (
            "throttle",
            {"gpu": 2},
            {
                "dcgm": "thermal violation in GPU 2",
                "burn": r"\(gflops\.2\).*\(clock_mhz\.2\).*\(temperature_c\.2\)",
            },
        ),
        ("throttle", {"by": "power_brake"}, {"dcgm": "power violation in GPU 0", "burn": "clock_mhz 1110 < 1600$"}),
        (
            "cable",
            {"port": 6},
            {"links": r"effective_ber \de-11 .*\(effective_ber\.mlx5_6\)$", "to a server": r"\(gbps\.mlx5_6\)$"},
        ),
        (
            "flap",
            {"port": 1},
            {"links": r"link_downs .* > 0 \(link_downs\.mlx5_1\)$", "to a server": "mlx5_1: Completion with error"},
        ),
        ("leaf", {}, {"to a server": r"gbps 196.* < 360 \(gbps\.mlx5_3\)$"}),
        ("low_nccl", {}, {"nccl": "busbw_peak 211.* < 440"}),
    ],
    ids=["slow_gpu", "throttle", "power_brake", "cable", "flap", "leaf", "low_nccl"],
)
def test_the_part_is_named_and_the_gate_passes_without_the_fault(
    fault: str, parameters: Mapping[str, Any], says: Mapping[str, str]
) -> None:
    async def scenario(bench: Bench, run: Run) -> None:
        bench.machine.inject(fault, **parameters)
        bench.clock.seconds += 612  # errors take time to be counted; the link of `flap` is lost 3 s later
        found = blamed(await run())
        assert set(found) == set(says), found
        for test, pattern in says.items():
            assert re.search(pattern, found[test]), found[test]
        bench.machine.clear(fault)
        assert blamed(await run()) == {}

    play(scenario)


@pytest.mark.parametrize(("fault", "counter"), [("cable", "symbol_error"), ("flap", "link_downed"), ("leaf", "")])
def test_counters_grow_over_an_interval_on_the_port_whose_link_is_bad(fault: str, counter: str) -> None:
    async def scenario(bench: Bench, run: Run) -> None:
        async def counted() -> dict[str, float]:
            (result,) = [result for result in (await run()).results if result.test == ONLY_REPORTS]
            assert result.verdict is Verdict.PASS, result.reasons
            return {name: value for name, value in result.metrics.items() if value and name != "ports"}

        assert await counted() == {}
        bench.machine.inject(fault)
        found = await counted()
        assert (counter in found) == bool(counter)
        assert found.get("link_downed", 4) == 4, "one in 15 s, for a minute"
        bench.machine.clear(fault)
        assert await counted() == {}

    play(scenario)


def test_nvidia_smi_shows_a_power_brake_and_no_heat_that_comes_with_load_alone() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        async def read() -> list[tuple[bool | None, bool | None]]:
            facts = await host.facts((), ())
            assert isinstance(facts, Answered)
            return [(gpu.cells.power_brake, gpu.cells.thermal_slowdown) for gpu in facts.value.gpus or ()]

        bench.machine.inject("throttle", by="power_brake")
        assert await read() == [(True, False)] * 8
        bench.machine.inject("throttle", by="thermal")
        assert await read() == [(False, False)] * 8
        bench.machine.clear()
        assert await read() == [(False, False)] * 8

    with_host(scenario)


def test_an_unknown_cause_of_a_throttle_is_refused() -> None:
    with pytest.raises(ValueError, match="has no by 'dust'; there are thermal, power_brake"):
        make_machine(Clock()).inject("throttle", by="dust")


# --- a leaf ------------------------------------------------------------------------------------------------------


def test_a_gate_without_a_partner_does_not_see_a_leaf_and_convicts_nobody() -> None:
    """Nothing that a node measures alone passes the leaf. With a server it is low, which does not tell whose fault."""

    async def scenario(bench: Bench, run: Run) -> None:
        bench.machine.inject("leaf")
        assert set(blamed(await run())) == {"to a server"}

    play(scenario)


def measured(machine: Machine, desired: Desired, **server: str) -> tuple[float, ...]:
    """Run perftest on each rail, as the gate does, and return what its judge read."""
    test = GateTest("rails", "perftest", {"rails": RAILS, **server}, (), 600.0)
    tool = TOOLS["perftest"]
    commands = tool.commands(test, desired, b.observed())
    assert not isinstance(commands, str)
    outputs: list[CommandResult] = [run(machine, argv).result for argv in commands]
    result = tool.judge(test, desired, b.observed(), outputs)
    assert result.verdict is Verdict.PASS, result.reasons
    return tuple(float(result.metrics[f"gbps.mlx5_{port}"]) for port in range(8))


def diagnosed(machines: Mapping[str, Machine]) -> Diagnosis:
    fabric = Fabric({name: f"g{at // 4}" for at, name in enumerate(machines)}, 8, {})
    bar = Bar(360.0)
    runs: list[PairRun] = []
    loopbacks: list[LoopbackRun] = []
    number = 0
    while (found := diagnose(fabric, runs, loopbacks, bar)).next is not None:
        for one, other, times, control in found.next.matches:
            crosses = fabric.groups[one] != fabric.groups[other]
            spines = tuple(f"s{rail % 4}" for rail in range(8)) if crosses else ()
            there, back = (Leg(measured(machines[name], NODE, server="10.0.0.9"), spines) for name in (one, other))
            runs += [PairRun(number, one, other, there, back, control)] * times
        for node, times in found.next.loopbacks:
            loopbacks += [LoopbackRun(number, node, measured(machines[node], NODE))] * times
        number += 1
    return found


def test_tests_in_pairs_name_the_leaf_and_no_node_behind_it() -> None:
    machines = {f"n{at}": make_machine(Clock()) for at in range(8)}
    for name in ("n4", "n5", "n6", "n7"):
        machines[name].inject("leaf", port=3)
    found = diagnosed(machines)
    assert [one.part for one in found.convicted] == [Part(PartKind.LEAF, "g1", 3)]
    assert found.acquitted == {"n0", "n1", "n2", "n3"}
    assert set(found.undecided) == {"n4", "n5", "n6", "n7"}
    for machine in machines.values():
        machine.clear()
    healed = diagnosed(machines)
    assert healed.convicted == ()
    assert healed.acquitted == set(machines)


def test_tests_in_pairs_name_the_link_of_the_one_node_with_a_bad_cable() -> None:
    """The lab's perftest slows what leaves the node alone, so that the port at its other end may be it, too."""
    machines = {f"n{at}": make_machine(Clock()) for at in range(8)}
    machines["n6"].inject("cable", port=2)
    found = diagnosed(machines)
    assert [(one.part.name, one.part.rail) for one in found.convicted] == [("n6", 2)]
    assert found.acquitted == set(machines) - {"n6"}
