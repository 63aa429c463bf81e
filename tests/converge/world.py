"""A lab fleet under virtual time, with all that apply needs, and its true state to compare with."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.components import measure_components
from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.converge.guarded_ports import GuardedBmc, TimedBmc, TimedCluster, TimedHost, TimedPdu
from reconciler.converge.lease import HeldLease
from reconciler.converge.observe import observe, observe_node
from reconciler.converge.ports import Partners, SoakRun
from reconciler.converge.serving_group import serving_group
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate.certificate import binding_of, judge, tests_digest
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.scenario import Scenario
from reconciler.model import desired as d
from reconciler.model.access import ClusterAccess, InstallerPolicy
from reconciler.model.gate import Binding, BootProof, Certificate, ComponentsProof, GateJudgement, TestResult, Verdict
from reconciler.model.limits import Guards
from reconciler.model.observed import Answered, Observation, Observed, Taint
from reconciler.model.outcome import Outcome, outcome_word
from reconciler.model.plan import Plan, PlannedAction
from reconciler.model.ports import Bmc, Clock, Host
from reconciler.model.records import COUNTED, LOG_READ, MARK_TAINT, OWNER_ANNOTATION, SHARED, WAS_SHARED, NodeRecord
from reconciler.model.vocab import Activation, Certainty, Concern, Disruption, DrainProvider
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from tests import builders as b

T = TypeVar("T")

IMAGE = d.DesiredImage(
    "ubuntu-gpu", "2026.11.1", "https://images/x.raw", b.SHA, "sig", "release",
    {"kernel": "6.8.0-48-generic", "driver": "570.124.06"}, d.RootDisk(max_bytes=10**12),
)  # fmt: skip
FIRMWARE = (
    b.firmware("bmc", 1, Activation.BMC_RESET),
    b.firmware("bios", 2, Activation.REBOOT),
    b.firmware("nic0", 3, Activation.POWER_CYCLE),
)
PROFILE = replace(
    b.PROFILE,
    digest="world",
    image=IMAGE,
    inventory=d.DesiredInventory(gpus=4, nvlinks_per_gpu=18, drives=3),
    firmware=FIRMWARE,
    host=d.DesiredHost({"vm.swappiness": "1"}, {"containerd": "running", "kubelet": "running"}),
    membership=d.DesiredMembership(
        {"workload": "training"},
        (Taint("nvidia.com/gpu", "present", "NoSchedule"),),
        ("systemctl", "enable", "--now", "kubelet"),
    ),
    drain=d.DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0),
)
SIGNATURES = {(IMAGE.name, IMAGE.version): True}


class QuickGate:
    """A gate of one test that always measures well. What it is asked and what it issues is real."""

    def __init__(self, **verdicts: Verdict) -> None:
        self.verdicts = verdicts  # by node, where it is not PASS
        self.runs: list[str] = []
        self.tested: list[tuple[str, tuple[str, ...]]] = []  # (node, the tests that were run)
        self.attested: list[str] = []
        self.boots: dict[str, Verdict] = {}  # verdict of what was booted, by node, where it is not PASS
        self.tpms: dict[str, str] = {}  # endorsement key, by node, where it is not the node's own

    async def run(
        self,
        desired: d.Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,  # noqa: ARG002 - the port's signature
        partners: Partners | None = None,  # noqa: ARG002 - the port's signature
    ) -> Certificate:
        self.runs.append(desired.node)
        await host.run(("true",), timeout=10)
        await clock.sleep(60)
        acceptance = desired.tests
        assert acceptance is not None
        binding = binding_of(desired, observed, tests_digest(acceptance))
        assert isinstance(binding, Binding), binding
        verdict = self.verdicts.get(desired.node.replace("-", "_"), Verdict.PASS)
        tests = [test for test in acceptance.tests if test.name not in left_out]
        self.tested.append((desired.node, tuple([test.name for test in tests])))
        results = tuple(
            TestResult(
                test.name, test.tool, verdict, (),
                b.carried_by(test, binding) | {t.metric: 2.0 for t in test.thresholds},
            )
            for test in tests
        )  # fmt: skip
        return Certificate("1.0", desired.node, clock.now(), binding, results)

    def judge(self, certificate: Certificate, desired: d.Desired, observed: Observed, clock: Clock) -> GateJudgement:
        acceptance = desired.profile.acceptance
        assert acceptance is not None
        binding = binding_of(desired, observed, tests_digest(acceptance))
        assert isinstance(binding, Binding), binding
        return judge(certificate, acceptance, binding, clock.now())

    async def attest(self, desired: d.Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:  # noqa: ARG002
        self.attested.append(desired.node)
        await host.run(("true",), timeout=10)
        await clock.sleep(10)
        verdict = self.boots.get(desired.node, Verdict.PASS)
        why = () if verdict is Verdict.PASS else ("an EFI program was started that is not declared",)
        return BootProof(GateJudgement(not why, verdict, why), self.tpms.get(desired.node, desired.node), "start")

    async def measure(
        self, desired: d.Desired, bmc: Bmc, observed: Observed, clock: Clock, step: Callable[[str], None]
    ) -> ComponentsProof:
        return await measure_components(desired, bmc, observed, clock, step)

    def trust(self, desired: d.Desired, observed: Observed) -> GateJudgement:
        same = desired.node == observed.node
        return GateJudgement(same, Verdict.PASS if same else Verdict.FAIL)


def silences(record: NodeRecord) -> Mapping[str, datetime]:
    """Return since when sources are silent, without what the planner keeps beside that for itself."""
    kept = (COUNTED, SHARED, WAS_SHARED, LOG_READ)
    return {key: at for key, at in record.silent_since.items() if not key.startswith(kept)}


def desired_node(name: str, number: int, **changes: Any) -> d.Desired:
    fields: dict[str, Any] = {
        "endpoints": d.Endpoints(f"https://bmc-{number}", f"host-{number}:22"), "domains": {"rack": f"r{number % 2}"},
        "profile": PROFILE,
    }  # fmt: skip
    return b.node(name, **(fields | changes))


def fleet_of(nodes: Sequence[d.Desired], *, cluster: bool = True, **settings: Any) -> d.Fleet:
    access = ClusterAccess("main", None) if cluster else None
    installer = InstallerPolicy("127.0.0.1:0", None, "http://x/i.iso")
    chosen = {"installer": installer, "budgets": ALL, "guards": OPEN, **settings}
    return d.Fleet(
        replace(b.SETTINGS, cluster=access, **chosen),
        d.SpecSource("spec", "c0ffee"),
        {n.node: n for n in nodes},
        "digest",
    )


ALL = (d.BudgetLimit("fleet", "100%"),)
OPEN = Guards("100%", "100%", "100%")


@dataclass
class World:
    """`drift`: node pattern -> drifts of lab/drifts.py, as a scenario says them; `faults` alike."""

    where: Path
    nodes: int = 3
    racks: int = 2
    drift: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    faults: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    profile: d.Profile = PROFILE
    cluster: bool = True
    node: Mapping[str, Any] = field(default_factory=dict)
    each: Callable[[d.Desired], d.Desired] = lambda node: node  # changes every node of the spec
    gate: QuickGate = field(default_factory=QuickGate)
    signatures: Mapping[tuple[str, str], bool | None] = field(default_factory=lambda: SIGNATURES)
    store: Callable[[Path], Any] = lambda where: SqlLedger(where / "ledger.sqlite")

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        desired = []
        for at in range(self.nodes):
            own = {"profile": self.profile, "domains": {"rack": f"r{at % self.racks}"}, **self.node}
            desired.append(self.each(desired_node(f"n{at}", at, **own)))
        self.fleet = fleet_of(desired, cluster=self.cluster, **self.settings)
        plays: dict[str, dict[str, Any]] = {}
        for pattern in {*self.drift, *self.faults}:
            plays[pattern] = {
                "drift": list(self.drift.get(pattern, ())),
                "faults": dict(self.faults.get(pattern, {})),
            }
        scenario = Scenario.model_validate({"nodes": plays})
        self.lab: Lab = build_lab(self.fleet, scenario, self.clock.seconds)
        self.clock.elapsed = 3600.0  # everything has been up for a while
        self.fabric = LabFabric(self.lab, self.clock)
        self.ledger: SqlLedger = self.store(self.where)
        weakref.finalize(self, self.ledger.close)
        self.events: list[Event] = []
        self._runs = 0

    # --- doing ---

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return run_virtual(work, self.clock)

    def observe(self, **options: Any) -> Observation:
        return self.run(observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock, **options))

    def adopt(self) -> None:
        """Certificates for all nodes as they are, so that only drift leads to work."""

        async def issue() -> None:
            seen = await observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock)
            for name, desired in self.fleet.nodes.items():
                digest = tests_digest(desired.profile.acceptance or b.ACCEPTANCE)
                binding = binding_of(desired, seen.nodes[name], digest)
                if isinstance(binding, Binding):
                    found = Certificate("1.0", name, self.clock.now(), binding, (), adopted=True)
                    self.ledger.save_certificate(found)

        self.run(issue())

    def apply(self, **changes: Any) -> ApplyReport:
        return self.run(self.applying(**changes))

    async def applying(self, **changes: Any) -> ApplyReport:
        self._runs += 1
        run = self._runs
        values: dict[str, Any] = {
            "fleet": self.fleet, "run": f"run-{run}", "plan_id": f"plan-{run}", "holder": f"runner-{run}",
            "signatures": self.signatures, "wait_s": 7200.0,
        }  # fmt: skip
        request = ApplyRequest(**(values | changes))
        return await apply(
            request,
            fabric=self.fabric,
            ledger=self.ledger,
            clock=self.clock,
            gate=self.gate,
            progress=self.events.append,
        )

    def act(self, action: str, node: str = "n0", target: str = "", **context: Any) -> Outcome:
        """Run one action on a node as it is, without a plan. `context`: `because`, and fields of ActionContext."""
        return self.run(self.acting(action, node, target, **context))

    async def acting(self, action: str, node: str = "n0", target: str = "", **context: Any) -> Outcome:
        now, settings, desired = self.clock.now(), self.fleet.settings, self.fleet.nodes[node]
        observed = await observe_node(desired, self.fabric, self.clock, settings)
        record = self.ledger.node(node)
        comparer = Comparer(IgnoreRules(settings.ignore, now))
        host, cluster = self.fabric.host(desired), self.fabric.cluster()
        bmc = self.fabric.bmc(desired)
        assert bmc is not None
        facts = observed.host.value if isinstance(observed.host, Answered) else None
        lease = self.lease()
        intent = {"at": now.isoformat(), "boot_id": facts.boot_id if facts else None, **context.get("resumed", {})}
        planned = PlannedAction(
            action, target, Concern.HOST, context.pop("because", ("a test",)), Disruption.NONE, 1.0, Certainty.EXACT,
            (), (),
        )  # fmt: skip
        values: dict[str, Any] = {
            "action": planned, "desired": desired, "observed": observed, "record": record,
            "drift": comparer.compare(desired, observed, record), "comparer": comparer, "settings": settings,
            "bmc_port": GuardedBmc(bmc, desired, facts, record, self.clock, settings, lease),
            "host_port": None if host is None else TimedHost(host, self.clock, settings, lease),
            "cluster_port": None if cluster is None else TimedCluster(cluster, self.clock, settings, lease),
            "pdus": {
                outlet.pdu: TimedPdu(self.fabric.pdu(outlet.pdu or ""), self.clock, settings, lease)
                for outlet in desired.outlets
            },
            "bystanders": tuple(
                (other.node, TimedBmc(near, self.clock, settings))
                for other in self.fleet.nodes.values()
                if other.node != node and (near := self.fabric.bmc(other)) is not None
            ),
            "installer_port": self.fabric.installer(), "firmware_files": self.fabric.firmware_files(),
            "gate": self.gate, "ledger": self.ledger, "clock": self.clock,
            "attempt": self.ledger.begin("test", node, action, target, "", intent, lease.token(), now),
            "intent": intent, "resumed": {}, "plan": "plan", "step": lambda _: None,
            "group": serving_group(self.fleet, desired, self.out(desired), self.fabric, self.clock, lease),
            "secret": lambda name, server: self.fabric.host_secret(name, desired, server),
        }  # fmt: skip
        ctx = ActionContext(**(values | context))
        outcome = await carry_out(FUNCTIONS[action], ctx)
        self.ledger.finish(ctx.attempt, outcome_word(outcome), outcome.detail, self.clock.now())
        return outcome

    def out(self, desired: d.Desired) -> list[str]:
        """Return the other nodes of its serving group that are out of service."""
        others = () if desired.serving is None else desired.serving.others(desired.node)
        return [name for name in others if name in self.fleet.nodes and not self.serves(name)]

    def lease(self) -> HeldLease:
        """Acquire a lease for single actions, apart from the leases of runs."""
        held = self.ledger.acquire("single actions", "test", 36000.0, self.clock.now())
        return HeldLease(held, self.ledger, self.clock, 36000.0, self.clock.monotonic() + 36000.0)

    async def started(self, action: str) -> None:
        """Wait until some node has started `action`."""
        while not any(isinstance(event, ActionStarted) and event.action.name == action for event in self.events):
            await self.clock.sleep(0.5)

    def plan(self, **changes: Any) -> Plan:
        snapshot = replace(take_snapshot(self.ledger, self.fleet, list(self.fleet.nodes)), known=())
        request = PlanRequest("approved", self.signatures, **changes)
        return plan_fleet(self.fleet, self.observe(), snapshot, self.clock.now(), request)

    # --- the truth ---

    def machine(self, name: str) -> Machine:
        return self.lab.machines[name]

    def serves(self, name: str) -> bool:
        assert self.lab.cluster is not None
        node = self.lab.cluster.node(name)
        return node.ready == "True" and not node.unschedulable and not self.tainted(name)

    def tainted(self, name: str) -> bool:
        assert self.lab.cluster is not None
        return any(taint.key == MARK_TAINT for taint in self.lab.cluster.node(name).taints)

    def marked(self, name: str) -> bool:
        assert self.lab.cluster is not None
        return self.tainted(name) or OWNER_ANNOTATION in self.lab.cluster.node(name).annotations

    def did(self, node: str) -> list[str]:
        """Actions and how they ended: "mark", "drain!transient"."""
        ended = [event for event in self.events if isinstance(event, ActionFinished) and event.node == node]
        words = [(event.action.id, outcome_word(event.outcome)) for event in ended]
        return [name if word == "done" else f"{name}!{word}" for name, word in words]
