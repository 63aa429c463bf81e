"""Run one cell of the matrix: a node drifts, a run starts, and a fault is injected when an action begins.

The end is read from the lab's state: the node is as specified, or out of service under the mark, or in service as
before. When the fault is over, the node must recover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from reconciler.app.apply import outcome_document
from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.ports import Partners, SoakRun
from reconciler.converge.run import Ended, NodeResult
from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.machine import Machine
from reconciler.model import desired as d
from reconciler.model.backup import DesiredBackup
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.observed import Observed
from reconciler.model.outcome import Done, outcome_word
from reconciler.model.ports import Clock, Host
from reconciler.model.vocab import Activation, NodeState
from reconciler.render import outcome as render_outcome
from tests.converge.test_ac_cycle import outlets
from tests.soak import plans
from tests.soak.invariant_checker import unfit
from tests.soak.spec import Spec
from tests.soak.world import Gate, SmallFleet

NODE, NEIGHBOUR = "n0", "n3"  # of one rack
HOUR, DAY = 3600.0, 86400.0
CLUSTER_DOWN = "API server down"  # a fault of the cluster, not of a machine
ACCEPTANCE = d.Acceptance(
    "measured",
    (
        d.GatePhase("inventory", (d.GateTest("xids", "xid", {}, (), 60.0),)),
        d.GatePhase(
            "burn",
            (
                d.GateTest(
                    "nccl", "nccl-tests", {"collective": "all_reduce", "minBytes": "8G", "maxBytes": "16G"},
                    (d.Threshold("busbw_peak", min=440.0),), 600.0,
                ),
                d.GateTest("storage", "fio", {"runtime": 10}, (d.Threshold("read_mbps", min=5000.0),), 300.0),
            ),
        ),
    ),
    20 * DAY,
)  # fmt: skip

# The longest time of one attempt in seconds of fleet time: the sum of its deadlines, and of the reads around it.
DEADLINES: Mapping[str, float] = {
    "mark": 300.0, "drain": 900.0, "set_bios": 300.0, "set_boot": 300.0, "update_firmware": 4800.0,
    "reset_bmc": 2400.0, "soft_restart": 3000.0, "power_cycle": 3300.0, "power_on": 2400.0, "reimage": 7200.0,
    "configure_host": 900.0, "join": 2400.0, "check_trust": 60.0, "run_gate": 1800.0, "set_gpu_mode": 3300.0,
    "set_labels": 300.0, "admit": 300.0, "restart_service": 300.0, "gpu_reset": 900.0, "ac_cycle": 3600.0,
    "back_up": 22000.0, "restore_backup": 22000.0,
}  # fmt: skip
DATA = {"/srv/models/a": "weights", "/srv/models/b/c": "more weights"}
BACKUP = DesiredBackup(("/srv/models",), "rest:https://backup.example/", {"RESTIC_PASSWORD": "restic"})
RUN_S = 12 * HOUR  # of all attempts of a run on one node


@dataclass(frozen=True)
class Scene:
    """A cause of an action. `action`: the fault is injected when it begins, or with `after` when it ends.

    `ill`: the fault that the action is to heal. `ladder`: the rungs, where they are not the usual ones. `saved`: the
    spec declares a backup, and the node has data.
    """

    action: str
    drift: tuple[str, ...] = ()
    mig: bool = False
    after: bool = False
    nic: Activation = Activation.POWER_CYCLE  # of its firmware
    ill: Fault | None = None
    ladder: tuple[str, ...] = ()
    saved: bool = False


@dataclass(frozen=True)
class Fault:
    """A fault to inject. `prepare`: sets the machine up so that the fault has an effect."""

    kind: str
    parameters: Mapping[str, FaultValue] = field(default_factory=dict)
    prepare: Callable[[Machine], None] | None = None


@dataclass(frozen=True)
class CellResult:
    """`end`: one of `matrix.LETTERS`. `says`: the run's report of the node. `wrong`: violations."""

    end: str
    says: str
    wrong: tuple[str, ...]
    log: tuple[str, ...]


@dataclass
class MeasuredSpec(Spec):
    """A spec whose acceptance tests really run."""

    nic: Activation = Activation.POWER_CYCLE
    ladder: tuple[str, ...] = ()
    backup: DesiredBackup | None = None

    def fleet(self) -> d.Fleet:
        fleet = super().fleet()
        return replace(fleet, nodes={name: self._measured(node) for name, node in fleet.nodes.items()})

    def _measured(self, node: d.Desired) -> d.Desired:
        firmware = tuple(
            replace(item, activation=self.nic) if item.component == "nic0" else item for item in node.profile.firmware
        )
        policy = node.profile.remediation
        if self.ladder and policy is not None:
            policy = replace(policy, ladder=tuple(d.Rung(rung) for rung in self.ladder))
        profile = replace(
            node.profile, acceptance=ACCEPTANCE, firmware=firmware, remediation=policy, backup=self.backup
        )
        return replace(node, profile=profile, outlets=outlets(int(node.node[1:])))


class MeasuringGate(Gate):
    """The real gate, without image keys."""

    def __init__(self, other: Gate) -> None:
        super().__init__(other._machine)
        self.passed = other.passed
        self._real = AcceptanceGate(lambda _: None)

    async def run(
        self,
        desired: d.Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,  # noqa: ARG002 - the port's signature
    ) -> Certificate:
        certificate = await self._real.run(desired, host, observed, clock, left_out, soak)
        judgement = self._real.judge(certificate, desired, observed, clock)
        if judgement.verdict is Verdict.PASS:
            self.passed[desired.node] = self.history(desired.node)
        return certificate


def play(scene: Scene, fault: Fault) -> CellResult:
    cell = _Cell(scene, fault)
    try:
        return cell.play()
    finally:
        cell.world.raw_ledger.close()


def interrupted(scene: Scene, calls: int, *, hard: bool) -> tuple[bool, list[str]]:
    """Interrupt a run at its `calls`-th call of those at which a crash is not one just before, and go on.

    Return whether it got there, and what is wrong.
    """
    cell = _Cell(scene, Fault(""))
    cell.injected = True  # nothing else strikes: the fault would crash the run that goes on
    world = cell.world
    try:
        cell.fall_ill()
        for kind in scene.drift:
            world.spoil(NODE, kind)
        world.wait(60.0)
        if not world.crash(calls, hard=hard, alike=True, wait_s=0.0):
            return False, []
        lost = cell.lost_data()
        for _ in range(2):
            world.apply(wait_s=2 * HOUR)
            world.wait(HOUR)
        lost += cell.lost_data(back=True)
        tried = sum(one.action == scene.action for one in world.raw_ledger.node(NODE).attempts)
        twice = [f"{scene.action} was begun {tried} times"] if tried > 1 and scene.ladder else []
        return True, [*lost, *twice, *plans.left(world), *cell.wrong, *world.checker.found]
    finally:
        world.raw_ledger.close()


class _Cell:
    def __init__(self, scene: Scene, fault: Fault) -> None:
        self.scene, self.fault = scene, fault
        spec = MeasuredSpec(
            states={NODE: NodeState.ACTIVE, NEIGHBOUR: NodeState.ACTIVE},
            budgets="all",
            nic=scene.nic,
            ladder=scene.ladder,
            backup=BACKUP if scene.saved else None,
        )
        spec.pools["train"].rollout, spec.pools["train"].mig = "at once", scene.mig
        self.world = SmallFleet(spec=spec, names=(NODE, NEIGHBOUR))
        self.machine.state.firmware["NIC0"].activation = scene.nic.value
        self.world.gate = MeasuringGate(self.world.gate)
        if scene.saved:
            self.machine.disk().files |= DATA
        self.world.checker.listener = self.on_event
        self.log: list[str] = []
        self.wrong: list[str] = []
        self.injected = False
        self._began = 0.0

    @property
    def machine(self) -> Machine:
        return self.world.machine(NODE)

    def play(self) -> CellResult:
        if self.fault.prepare is not None:
            self.fault.prepare(self.machine)
        self.fall_ill()
        for kind in self.scene.drift:
            self.world.spoil(NODE, kind)
        self.world.wait(60.0)
        began = self.world.seconds()
        report = self.world.apply(wait_s=0.0)
        if not self.injected:
            self.wrong.append(f"{self.scene.action} was never begun")
        if self.world.seconds() - began > RUN_S:
            self.wrong.append(f"the run took {self.world.seconds() - began:.0f} s")
        result = report.results[NODE]
        end, says = self._end(result), self._reported_reason(report, result)
        self._neighbour(report)
        later = self._afterwards()
        end = {"": end, "p": "P" if end == "o" else f"{end} and a person"}.get(later, later)
        return CellResult(end, says, tuple(self.wrong + self.world.checker.found), tuple(self.log))

    def fall_ill(self) -> None:
        if self.scene.ill is not None:
            self.world.checker.disturbed(NODE)
            self.machine.inject(self.scene.ill.kind, **self.scene.ill.parameters)

    def lost_data(self, *, back: bool = False) -> list[str]:
        """Return what is wrong with the data: it must be on the disk or in the repository, and serves from the disk."""
        if not self.scene.saved:
            return []
        disks = self.machine.state.disks.values()
        here = any(DATA.items() <= disk.files.items() for disk in disks)
        snapshots = self.machine.state.repositories.get(BACKUP.repository, {}).values()
        if not here and (back or not any(DATA.items() <= files.items() for files in snapshots)):
            return ["its data is lost"]
        return [] if here or not self.world.is_serving(NODE) else ["it serves without its data"]

    # --- the end ---

    def _end(self, result: NodeResult) -> str:
        """Return the end by the lab's state, and compare it with the run's report."""
        world, serves, ours = self.world, self.world.is_serving(NODE), self.world.is_marked(NODE)
        well = result.state in (Ended.DONE, Ended.CONVERGED)
        if serves and ours:
            self.wrong.append("own_mark_is_not_leaked: it serves under our mark")
        if well:
            if why := unfit(world, NODE) or ("" if serves else "it does not serve"):
                self.wrong.append(f"it is {result.state}, but {why}")
            return "."
        if not result.detail:
            self.wrong.append("it says nothing")
        return "o" if ours else "s" if serves else "x"

    def _reported_reason(self, report: ApplyReport, result: NodeResult) -> str:
        if result.state in (Ended.DONE, Ended.CONVERGED):
            return ""
        text = render_outcome.human(outcome_document(report))
        told = " ".join(text.split())
        if NODE not in text or " ".join(result.detail.split())[:60] not in told:
            self.wrong.append(f"the report does not say of {NODE}: {result.detail}")
        return result.detail

    def _neighbour(self, report: ApplyReport) -> None:
        if report.results[NEIGHBOUR].state is not Ended.CONVERGED and self.fault.kind != CLUSTER_DOWN:
            self.wrong.append(f"its neighbour: {report.results[NEIGHBOUR]}")

    def _afterwards(self) -> str:
        """Return "" when the node recovers once the fault is over, "p" when it needs an operator."""
        self.write("** over")
        self.world.kube.down = False
        self.machine.clear(None if self.fault.kind == CLUSTER_DOWN else self.fault.kind)
        self.world.checker.disturbed(NODE)
        for person in ("", "p"):
            if person:
                self.write("** a person has seen to it")
                self.world.acknowledge([NODE])
            for _ in range(2):
                self.world.apply(wait_s=2 * HOUR)
                if not (left := plans.left(self.world)):
                    return person
                self.world.wait(1.05 * DAY)
        self.wrong += left
        return "!"

    # --- events of the run ---

    def on_event(self, event: Event) -> None:
        match event:
            case ActionStarted(node, action):
                self.write(f"{node}: {action.id} begins, because {', '.join(action.because)}")
                self._began = self.world.seconds()
                if not self.scene.after:
                    self._inject(node, action.name)
            case ActionFinished(node, action, outcome, seconds):
                self.write(f"{node}: {action.id} {outcome_word(outcome)}: {outcome.detail}")
                if seconds > DEADLINES[action.name]:
                    self.wrong.append(f"no_hang: {action.id} took {seconds:.0f} s")
                if self.scene.after and isinstance(outcome, Done):
                    self._inject(node, action.name)
            case _:
                pass

    def _inject(self, node: str, action: str) -> None:
        if self.injected or node != NODE or action != self.scene.action:
            return
        self.injected = True
        self.write(f"** {self.fault.kind} {dict(self.fault.parameters) or ''}")
        self.world.checker.disturbed(NODE)
        if self.fault.kind == CLUSTER_DOWN:
            self.world.kube.down = True
        else:
            self.machine.inject(self.fault.kind, **self.fault.parameters)

    def write(self, line: str) -> None:
        self.log.append(f"{timedelta(seconds=round(self.world.seconds()))!s:>16}  {line}")
