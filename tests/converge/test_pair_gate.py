"""A gate with partners on a lab fleet: who is held, charged, convicted and given back."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import ActionStep
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.observe import observe
from reconciler.converge.pair_test import PairTest, composed
from reconciler.converge.partner_pool import PartnerPool
from reconciler.converge.ports import Partners, SoakRun, TakenPartner
from reconciler.converge.run import Ended
from reconciler.gate import certificate as c
from reconciler.gate.fabric.pair_steps import Ended as Decided
from reconciler.gate.fabric.partners import NoPartner
from reconciler.lab.hardware.cluster_objects import PodObject
from reconciler.lab.leaf_spine import Broken, FabricFault
from reconciler.lab.pair_network import PairNetwork
from reconciler.model.desired import Acceptance, AskedGate, BudgetLimit, Desired, GatePhase, GateTest, Threshold
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Observed
from reconciler.model.ports import Clock, Host
from reconciler.model.records import Mark
from tests.converge.world import PROFILE, QuickGate, World

WIRE = GateTest("wire", "iperf3", {"partners": 2, "seconds": 5}, (Threshold("gbps", min=20.0),), 60.0)
RAILS = GateTest(
    "rails", "perftest", {"partners": 2, "rails": "mlx5_0, mlx5_1", "seconds": 5}, (Threshold("gbps", min=360.0),), 60.0
)
NCCL = GateTest(
    "nccl", "nccl-tests", {"group": 4, "scope": "fabric", "interface": "ib0", "minBytes": "1G", "maxBytes": "1G"},
    (Threshold("busbw_peak", min=300.0),), 120.0,
)  # fmt: skip
SITE = GateTest(
    "site", "command",
    {
        "partners": 2, "metrics": "busbw", "repeat": 2,
        "run": "torchrun --nnodes=2 --node-rank=1 --master-addr=$PARTNER --master-port=29500 all_reduce.py",
        "serve": "torchrun --nnodes=2 --node-rank=0 --master-addr=$PARTNER --master-port=29500 all_reduce.py",
    },
    (Threshold("busbw", min=350.0),), 120.0,
)  # fmt: skip
MEASURED = {
    "site": {"busbw": 380.0, "busbw.spread": 1.0},
    "nccl": {"busbw_peak": 370.0} | {f"busbw_peak.mlx5_{rail}": 370.0 for rail in range(3)},
    "wire": {"gbps": 23.0, "retransmits": 3.0},
    "rails": {"gbps": 390.0, "gbps.spread": 1.0} | {f"gbps.mlx5_{at}": 390.0 for at in range(2)},
}


class WireGate(QuickGate):
    """The real gate for what it runs, which remembers who served meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._real = AcceptanceGate(lambda _: None)

    async def run(
        self,
        desired: Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,
    ) -> Certificate:
        self.runs.append(desired.node)
        return await self._real.run(desired, host, observed, clock, left_out, soak, partners)


@dataclass
class Wired(World):
    """Six nodes in service behind two leaves, each with a certificate that was measured."""

    nodes: int = 6
    busy: bool = False  # whether the nodes have work
    working: tuple[str, ...] = ()  # nodes that have, though the others don't
    gate: QuickGate = field(default_factory=WireGate)
    test_of_pairs: GateTest = WIRE

    def __post_init__(self) -> None:
        self.pairs = Acceptance("pairs", (GatePhase("network", (self.test_of_pairs,)),), None)
        self.profile = replace(PROFILE, digest="wired", acceptance=self.pairs)
        super().__post_init__()
        nodes = {
            name: replace(node, domains={"rack": f"r{at}", "leaf": f"l{at // 3}"})
            for at, (name, node) in enumerate(self.fleet.nodes.items())
        }
        self.fleet = replace(self.fleet, nodes=nodes)
        self.network = self.lab.network
        self.network.fabric.groups = {name: node.domains["leaf"] for name, node in nodes.items()}
        for pod in self.cluster_pods():
            if not self.busy and pod.node not in self.working:
                pod.phase = "Succeeded"
        self.run(self._certify())
        self.clock.elapsed += 60.0

    def cluster_pods(self) -> list[PodObject]:
        assert self.lab.cluster is not None
        return self.lab.cluster.pods()

    async def _certify(self) -> None:
        seen = await observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock)
        for name, desired in self.fleet.nodes.items():
            binding = c.binding_of(desired, seen.nodes[name], c.tests_digest(self.pairs))
            assert isinstance(binding, Binding)
            test = self.test_of_pairs
            result = TestResult(test.name, test.tool, Verdict.PASS, (), MEASURED[test.name], "3.12")
            self.ledger.save_certificate(Certificate("1.0", name, self.clock.now(), binding, (result,)))

    def ask_also(self, test: GateTest, *, instead: bool = False) -> None:
        """Add a test to the profile of the fleet, as a change of the spec does, or put it in the place of the first."""
        tests = (test,) if instead else (self.test_of_pairs, test)
        self.pairs = replace(self.pairs, phases=(GatePhase("network", tests),))
        profile = replace(self.profile, digest="asked also", acceptance=self.pairs)
        nodes = {name: replace(node, profile=profile) for name, node in self.fleet.nodes.items()}
        self.fleet = replace(self.fleet, nodes=nodes)

    def break_part(self, kind: FabricFault, name: str, rail: int | None = None, **more: Any) -> None:
        self.network.fabric.faults.append(Broken(kind, name, rail, **more))

    def test(self, *names: str, **changes: Any) -> ApplyReport:
        """Run the gate of nodes as a person asks for it."""
        own = self.fleet
        asked = AskedGate(self.clock.now(), "ops", None)
        nodes = {name: replace(node, asked=asked if name in names else None) for name, node in own.nodes.items()}
        self.fleet = replace(own, nodes=nodes)
        try:
            return self.apply(selected=names, **changes)
        finally:
            self.fleet = own

    def told(self) -> list[str]:
        return [event.step for event in self.events if isinstance(event, ActionStep)]

    def others_serve(self, *but: str) -> bool:
        return all(self.serves(name) and not self.marked(name) for name in self.fleet.nodes if name not in but)

    def verdicts(self, name: str) -> dict[str, str]:
        return {run.test: run.verdict for run in self.ledger.last_gate(name)}

    def verdict(self, name: str) -> tuple[str, str]:
        (run,) = self.ledger.last_gate(name)
        return run.verdict, "; ".join(run.reasons)


@pytest.fixture
def world(tmp_path: Path) -> Wired:
    return Wired(tmp_path)


def test_a_good_node_passes_with_a_partner_on_each_side_and_they_serve_again(world: Wired) -> None:
    report = world.test("n0")
    assert report.results["n0"].state is Ended.DONE, report.results
    assert world.gate.runs == ["n0"]
    certificate = world.ledger.node("n0").certificate
    assert certificate is not None
    (result,) = certificate.results
    with_whom = {metric.split(".")[1] for metric in result.metrics if metric.count(".") == 2}
    assert len(with_whom) == 2
    assert {world.fleet.nodes[name].domains["leaf"] for name in with_whom} == {"l0", "l1"}
    assert result.metrics["gbps"] > 20
    assert world.others_serve()
    assert world.network.serving == frozenset()
    assert any("behind another leaf" in text for text in world.told())
    attempt = [one for one in world.ledger.node("n0").attempts if one.action == "run_gate"]
    assert attempt
    assert world.plan().nodes["n1"].actions == (), "a partner keeps its certificate and is not tested for that"


def test_a_bad_nic_is_convicted_after_two_partners(world: Wired) -> None:
    world.break_part(FabricFault.NIC, "n0")
    report = world.test("n0")
    assert report.results["n0"].state is Ended.FAILED, report.results
    verdict, why = world.verdict("n0")
    assert verdict == "fail", why
    assert "which pass with each other" in why
    assert not world.serves("n0")
    assert world.others_serve("n0")
    assert world.network.serving == frozenset()


@pytest.mark.parametrize("inbound", [True, False], ids=["to the node", "from the node"])
def test_a_rail_that_is_slow_one_way_is_named_by_partners_over_rdma(tmp_path: Path, inbound: bool) -> None:
    world = Wired(tmp_path, test_of_pairs=RAILS)
    assert world.test("n0").results["n0"].state is Ended.DONE
    assert world.verdict("n0")[0] == "pass"
    world.break_part(FabricFault.LEAF_PORT, "n0", rail=1, inbound=inbound)
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "fail", why
    assert "which pass with each other" in why
    way = "back" if inbound else "there"
    assert len(re.findall(rf"gbps 19\S+ < 360 \(gbps\.mlx5_1\.{way}\)", why)) == 2, why
    assert world.others_serve("n0")


def test_a_bad_leaf_convicts_nobody(world: Wired) -> None:
    world.break_part(FabricFault.LEAF, "l0")
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "unjudged", why
    assert "a common cause" in why
    assert world.others_serve("n0")


def test_a_bad_partner_convicts_nobody(world: Wired) -> None:
    world.break_part(FabricFault.NIC, "n1")
    report = world.test("n0")
    assert report.results["n0"].state is Ended.DONE, (report.results, world.told())
    assert world.others_serve()


def test_without_room_in_the_budget_it_needs_partners_and_is_no_verdict(tmp_path: Path) -> None:
    world = Wired(tmp_path, settings={"budgets": (BudgetLimit("fleet", "1"),)})
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "unjudged", why
    assert "needs partners" in why
    assert any("waits for a partner" in text and "budget" in text for text in world.told())
    assert world.others_serve("n0")


@pytest.mark.parametrize("broken", [(), ("n0",)], ids=["good", "bad"])
def test_no_more_nodes_are_out_than_the_budget_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    """One partner at a time is enough to pass; two are held where they disagree, for which there is no room."""
    world = Wired(tmp_path, settings={"budgets": (BudgetLimit("fleet", "2"),)})
    for name in broken:
        world.break_part(FabricFault.NIC, name)
    out: list[int] = []
    serve = PairNetwork.serve

    def counted(network: PairNetwork, node: str, run: str) -> None:
        out.append(sum(not world.serves(name) for name in world.fleet.nodes))
        serve(network, node, run)

    monkeypatch.setattr(PairNetwork, "serve", counted)
    world.test("n0")
    assert out
    assert max(out) == 2, "the node, and one partner"
    assert world.verdict("n0")[0] == ("unjudged" if broken else "pass")
    assert world.others_serve("n0")


def test_nodes_with_work_are_never_partners(tmp_path: Path) -> None:
    world = Wired(tmp_path, busy=True)
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "unjudged"
    assert "it has work" in why
    assert world.others_serve("n0")
    assert world.lab.cluster is not None
    assert world.lab.cluster.evictions <= 2, "its own work leaves the node under test, and nobody else's does"


def test_the_mark_that_a_killed_run_left_on_a_partner_is_lifted(world: Wired) -> None:
    async def killed() -> None:
        cluster = world.fabric.cluster()
        assert cluster is not None
        member = await cluster.member("n1")
        assert member is not None
        at = world.clock.now().isoformat(timespec="seconds")
        mark = Mark(world.ledger.id, "plan-0", "partner for the gate of n0", at, cordoned=True)
        await cluster.mark(member, mark)

    world.run(killed())
    assert not world.serves("n1")
    world.apply()
    assert world.others_serve()
    assert world.gate.runs == [], "nothing was done to it, so it needs no gate"


def test_the_first_node_that_a_new_test_takes_out_finds_partners_among_those_that_still_serve(tmp_path: Path) -> None:
    """No certificate holds the new test yet: that alone must not leave a fleet without partners."""
    world = Wired(tmp_path, settings={"budgets": (BudgetLimit("fleet", "2"),)})
    world.ask_also(RAILS)
    world.test("n0")
    assert world.verdicts("n0") == {"wire": "pass", "rails": "pass"}, world.told()
    assert world.others_serve()


def test_a_node_whose_old_test_failed_is_no_partner_for_a_new_one(tmp_path: Path) -> None:
    world = Wired(tmp_path)
    for name in ("n1", "n2", "n3", "n4", "n5"):
        certificate = world.ledger.node(name).certificate
        assert certificate is not None
        (result,) = certificate.results
        world.ledger.save_certificate(replace(certificate, results=(replace(result, metrics={"gbps": 1.0}),)))
    world.ask_also(RAILS)
    world.test("n0")
    assert world.verdicts("n0")["wire"] == "unjudged"


def test_a_profile_that_is_all_new_has_no_certified_partners(tmp_path: Path) -> None:
    """A certificate says nothing of a node of which each test has changed."""
    world = Wired(tmp_path)
    world.ask_also(replace(WIRE, args={**WIRE.args, "seconds": 7}), instead=True)
    world.test("n0")
    assert world.verdict("n0")[0] == "unjudged"


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing is given back."""


def test_a_run_that_is_killed_leaves_its_partners_to_the_next(world: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run may look at the tested node alone, so the journal has to name the partners."""

    async def killed(*_: object) -> TestResult:
        raise Killed

    async def kept(*_: object) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr(PairTest, "_pair", killed)
        patch.setattr(PartnerPool, "free", kept)
        with pytest.raises(BaseException):  # noqa: B017 - an event loop may wrap what ends it
            world.test("n0")
    left = [name for name in world.fleet.nodes if name != "n0" and world.marked(name)]
    assert len(left) == 1
    world.clock.elapsed += 600.0  # the dead run's lease
    report = world.test("n0")
    assert report.results["n0"].state is Ended.DONE, (report.results, world.told())
    assert world.others_serve()


def test_a_partner_is_held_to_the_end_of_a_test_that_takes_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rail of a collective by itself may take hours together: no one takes the partner meanwhile."""
    world = Wired(tmp_path, test_of_pairs=replace(WIRE, timeout_s=6 * 3600.0))
    seen: list[tuple[str, str]] = []
    take, pair = PartnerPool.take, PairTest._pair
    pools: list[PartnerPool] = []

    async def taken(pool: PartnerPool, *args: Any, **named: Any) -> TakenPartner | NoPartner:
        pools.append(pool)
        return await take(pool, *args, **named)

    async def slow(test: PairTest, *sides: Any) -> TestResult:
        await test.clock.sleep(5 * 3600.0)
        held = [name for name in world.fleet.nodes if pools[-1].holder(name)]
        for name in held:
            with pools[-1].acting(name) as why:
                seen.append((name, why))
        return await pair(test, *sides)

    monkeypatch.setattr(PartnerPool, "take", taken)
    monkeypatch.setattr(PairTest, "_pair", slow)
    assert world.test("n0").results["n0"].state is Ended.DONE, world.told()
    assert len(seen) == 2, "one partner behind each leaf, five hours into its test"
    assert {why for _, why in seen} == {"it is held for n0"}
    assert world.others_serve()


def test_partners_that_measured_with_different_versions_are_both_told() -> None:
    """What the partners set for NCCL is in the versions: figures of one are none of peers of the other."""
    results = {
        name: TestResult("nccl", "nccl-tests", Verdict.PASS, (), {"busbw_peak": 370.0}, version)
        for name, version in (("n1", "2.17.6-conf.1a2b3c4d"), ("n2", "2.17.6"), ("n3", "2.17.6"))
    }
    passed = Decided(Verdict.PASS, "", ("n2", "n3"))
    assert composed(NCCL, passed, results, ()).tool_version == "2.17.6, 2.17.6-conf.1a2b3c4d"
    assert composed(NCCL, passed, {name: results[name] for name in passed.agree}, ()).tool_version == "2.17.6"


def test_a_program_of_the_site_runs_with_partners_and_convicts_by_them(tmp_path: Path) -> None:
    world = Wired(tmp_path, test_of_pairs=SITE)
    report = world.test("n0")
    assert report.results["n0"].state is Ended.DONE, (report.results, world.told())
    certificate = world.ledger.node("n0").certificate
    assert certificate is not None
    metrics = certificate.results[0].metrics
    assert len([name for name in metrics if name.startswith("busbw.n")]) >= 2, metrics
    assert world.network.serving == frozenset()
    world.break_part(FabricFault.CABLE, "n0", 3)
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "fail", why
    assert "which pass with each other" in why
    assert world.network.serving == frozenset()
    assert world.others_serve("n0")


def test_all_nodes_of_exchanged_leaves_prove_their_pairs_with_one_another(world: Wired) -> None:
    """No certificate is of the leaf that its node has now: each node is tested, and is a partner before it was."""
    moved = {
        name: replace(n, domains={**n.domains, "leaf": f"{n.domains['leaf']}-new"})
        for name, n in world.fleet.nodes.items()
    }
    world.fleet = replace(world.fleet, nodes=moved)
    assert all("run_gate" in [one.name for one in plan.actions] for plan in world.plan().nodes.values())
    report = world.apply()
    assert {name: result.state for name, result in report.results.items()} == dict.fromkeys(moved, Ended.DONE)
    assert sorted(world.gate.runs) == sorted(moved)
    assert world.others_serve()
    assert all(plan.actions == () for plan in world.plan().nodes.values())
