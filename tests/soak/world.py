"""The small fleet: eight machines under virtual time, and the events that can happen to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import Event
from reconciler.converge.ports import Partners, SoakRun
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.fleet import build_lab
from reconciler.lab.hardware.control_plane import ClusterTruth, NodeObject, NotFound
from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess import LabFabric, VirtualClock
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.scenario import Scenario
from reconciler.model import desired as d
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.observed import Observation, Observed
from reconciler.model.plan import Plan
from reconciler.model.ports import Clock, Host, Ledger
from reconciler.model.records import OWNER_ANNOTATION, STORM, read_mark
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from tests.converge.world import QuickGate, World
from tests.soak.invariant_checker import CheckedFabric, CheckedLedger, CrashTrigger, InvariantChecker
from tests.soak.spec import BIOS, FIRMWARE_IMAGES, NAMES, NEW, SIGNATURES, SUBJECTS, UNSIGNED, Spec, sha

FAULTS: Mapping[str, tuple[str, Mapping[str, FaultValue]]] = {
    "GPU lost": ("xid_79", {"gpu": 1}),
    "GPU lost for good": ("xid_79", {"gpu": 0, "persistent": True}),
    "ECC errors": ("ecc_errors", {"gpu": 0}),
    "NVLink down": ("nvlink_down", {"gpu": 1, "persistent": False}),
    "host hangs": ("host_hung", {}),
    "SSH refused": ("ssh_refused", {}),
    "SSH hangs": ("ssh_hang", {}),
    "not Ready": ("kubelet_not_ready", {}),
    "BMC dead": ("bmc_unreachable", {}),
    "BMC busy": ("bmc_503", {"times": 9}),
    "BMC talks garbage": ("bmc_garbage", {"times": 4}),
    "BMC refuses us": ("bmc_wrong_password", {}),
    "another machine's BMC": ("wrong_machine", {}),
    "hangs in POST": ("post_hang", {"times": 1}),
    "power orders lost": ("power_ignored", {"times": 2}),
    "power shown late": ("stale_power", {"times": 2}),
    "BIOS writes lost": ("bios_write_ignored", {"times": 4}),
    "boot override lost": ("boot_override_ignored", {"times": 4}),
    "boot override unused": ("boot_override_ignored", {"when": "boot", "times": 2}),
    "flashes fail": ("firmware_fails", {"times": 4}),
    "flash task forgotten": ("firmware_task_lost", {"times": 1}),
    "flash resets BIOS": ("bios_flash_resets", {}),
    "power-on conflicts": ("power_on_conflict", {"seconds": 25.0}),
    "medium stays": ("stale_media", {}),
    "installer fails": ("installer_fails", {"times": 2}),
    "MIG lost on boot": ("mig_lost_on_boot", {"times": 1}),
    "evictions refused": ("pdb_never_yields", {}),
}


class Gate(QuickGate):
    """A gate that records the installs, flashes and BIOS settings of each machine when it passed."""

    def __init__(self, machine: Callable[[str], Machine]) -> None:
        super().__init__()
        self._machine = machine
        self.passed: dict[str, tuple[Any, ...]] = {}
        self.failing: set[str] = set()  # nodes that must fail it the next time
        self.failed: set[str] = set()  # nodes that failed it the last time

    def history(self, node: str) -> tuple[Any, ...]:
        state = self._machine(node).state
        return state.counters.installs, state.counters.flashes, *(state.bios[name] for name in BIOS)

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
        name = desired.node
        self.verdicts = {failing.replace("-", "_"): Verdict.FAIL for failing in self.failing}  # of all current gates
        certificate = await super().run(desired, host, observed, clock, left_out, soak)
        if all(result.verdict is Verdict.PASS for result in certificate.results):
            self.passed[name] = self.history(name)
            self.failed.discard(name)
        else:
            self.failing.discard(name)
            self.failed.add(name)
        return certificate


@dataclass(frozen=True)
class Disturbance:
    """An event during a run, after so many seconds."""

    after_s: float
    what: Callable[[], None]


class SmallFleet(World):
    """The fleet. `spec` is edited in place; `edited` makes the edits effective."""

    def __init__(self, where: Path | None = None, spec: Spec | None = None, names: Sequence[str] = NAMES) -> None:
        """`where`: a folder for an SQLite ledger; None: one in memory, which is three times as fast.

        `names`: all machines, whether the spec names them or not.
        """
        self.clock = VirtualClock()
        self.spec = spec or Spec()
        self.names = names
        everything = type(self.spec)(states=dict.fromkeys(names, NodeState.ACTIVE)).fleet()
        scenario = Scenario.model_validate({"nodes": {NEW: {"drift": ["blank"]}} if NEW in names else {}})
        self.lab = build_lab(everything, scenario, self.clock.seconds)
        for machine in self.lab.machines.values():
            machine.firmware_images = FIRMWARE_IMAGES
        self.clock.elapsed = 3600.0  # all machines have been up for an hour
        self.raw_ledger: Ledger = MemoryLedger("memory") if where is None else SqlLedger(where / "ledger.sqlite")
        self.ledger = self.raw_ledger  # type: ignore[assignment]  # either is a Ledger
        self.gate: Gate = Gate(self.machine)
        self.checker = InvariantChecker(self)
        self.fabric = CheckedFabric(LabFabric(self.lab, self.clock), self.checker)  # type: ignore[assignment]  # by structure
        self.signatures = SIGNATURES
        self.events = []
        self.plans = self._runs = 0
        self.edited()
        self.adopt()
        self.gate.passed = {name: self.gate.history(name) for name in self.fleet.nodes}
        self.apply(wait_s=0.0)  # records in the ledger what every node was converged to

    def edited(self) -> None:
        self.fleet = self.spec.fleet()
        self.checker.declared = {
            hold.subject: self.checker.declared.get(hold.subject, self.seconds()) for hold in self.fleet.holds
        }

    def seconds(self) -> float:
        return self.clock.elapsed

    # --- runs ---

    async def applying(self, **changes: Any) -> ApplyReport:
        """Apply. `events` holds only this run's; the ledger is checked like the ports."""
        self.events = _CheckedEvents(self.checker)
        self.ledger = CheckedLedger(self.raw_ledger, self.checker)  # type: ignore[assignment]  # a Ledger by structure
        try:
            return await super().applying(**({"signatures": SIGNATURES} | changes))
        finally:
            self.ledger = self.raw_ledger  # type: ignore[assignment]

    def apply_disturbed(self, disturbances: list[Disturbance], **changes: Any) -> ApplyReport:
        async def happen(one: Disturbance) -> None:
            await self.clock.sleep(one.after_s)
            one.what()

        async def both() -> ApplyReport:
            others = [asyncio.create_task(happen(one)) for one in disturbances]
            try:
                return await self.applying(**changes)
            finally:
                for task in others:
                    task.cancel()

        return self.run(both())

    def crash(self, calls: int, *, hard: bool, alike: bool = False, **changes: Any) -> bool:
        """End a run at its `calls`-th call, by a power cut if `hard`, else by Ctrl-C. Return whether it got there.

        `alike`: as of CrashTrigger.
        """

        async def killed() -> None:
            work = asyncio.create_task(self.applying(**changes))
            self.checker.crash_trigger = CrashTrigger(
                calls, None if hard else work.cancel, self.seconds if alike else None
            )
            await asyncio.wait([work])
            crash_trigger, self.checker.crash_trigger = self.checker.crash_trigger, CrashTrigger()
            self.died = crash_trigger.fired
            if not work.cancelled() and (error := work.exception()) is not None and not crash_trigger.fired:
                raise error

        self.run(killed())
        if self.died:
            self.lab.installs.dies(self.clock.elapsed)  # the process that served them is dead
            self.wait(61.0)  # until its lease has expired
        return self.died

    def plan(self, **changes: Any) -> Plan:
        return self.plan_of(self.fleet, self.observe(), **changes)

    def plan_of(self, fleet: d.Fleet, observation: Observation, **changes: Any) -> Plan:
        self.plans += 1
        snapshot = replace(take_snapshot(self.raw_ledger, fleet, list(fleet.nodes)), known=())
        now = changes.pop("now", self.clock.now())
        request = PlanRequest(f"approved-{self.plans}", SIGNATURES, **changes)
        return plan_fleet(fleet, observation, snapshot, now, request)

    def wait(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    # --- events on nodes ---

    def spoil(self, name: str, kind: str) -> None:
        machine = self.machine(name)
        machine.catch_up()
        self.checker.disturbed(name)
        _DRIFTS[kind](self, machine)
        machine.state.etag += 1

    def fault(self, name: str, kind: str) -> None:
        self.checker.disturbed(name)
        fault, parameters = FAULTS[kind]
        self.machine(name).inject(fault, **parameters)

    def repair(self, name: str) -> None:
        self.checker.disturbed(name)
        self.machine(name).clear()

    def cordon(self, name: str) -> None:
        """Cordon a node as another user. Skip one that is cordoned, because its cordon would become ambiguous."""
        node = self.member(name)
        if node is not None and not node.unschedulable:
            self.checker.disturbed(name)
            self.checker.foreign[name] = self.seconds()
            self.kube.update_node(name, unschedulable=True)

    def uncordon(self, name: str) -> None:
        if self.checker.foreign.pop(name, None) is not None:
            self.checker.disturbed(name)
            self.kube.update_node(name, unschedulable=False)

    def hold(self, subject: str, hours: float | None) -> None:
        until = None if hours is None else self.clock.now() + timedelta(hours=hours)
        self.raw_ledger.hold(subject, "looking at it", "ops", until, self.clock.now())
        self.checker.held[subject] = (self.seconds(), until)

    def release(self, subject: str) -> None:
        self.raw_ledger.release(subject, "ops", self.clock.now())
        self.checker.held.pop(subject, None)

    def end_all(self) -> None:
        """End all disturbances, repair all machines, release all holds, and acknowledge all nodes."""
        self.end_disturbances()
        self.acknowledge(self.names)

    def acknowledge(self, names: Iterable[str]) -> None:
        """Acknowledge nodes as an operator does: a released hold records it."""
        for name in names:
            self.hold(name, None)
            self.release(name)
        self.resume()

    def resume(self) -> bool:
        """Release the storm brake. Return False when it was not on."""
        return bool(self.raw_ledger.release(STORM, "ops", self.clock.now()))

    def end_disturbances(self) -> None:
        """End all disturbances, without acknowledging any node."""
        for name in self.names:
            self.repair(name)
            self.uncordon(name)
        self.spec.holds.clear()
        for subject in SUBJECTS:
            self.release(subject)
        self.kube.down = False
        self.gate.failing.clear()
        self.spec.states = dict.fromkeys(self.spec.states, NodeState.ACTIVE)
        for pool in self.spec.pools.values():
            pool.image = "1" if pool.image == UNSIGNED else pool.image
            pool.rollout = "at once"
        self.spec.budgets, self.spec.windows, self.spec.ignored = "half", "none", "nothing"
        self.edited()

    # --- the lab's state ---

    @property
    def kube(self) -> ClusterTruth:
        assert self.lab.cluster is not None
        return self.lab.cluster

    def member(self, name: str) -> NodeObject | None:
        try:
            found: NodeObject = self.kube.node(name)
        except NotFound:
            return None
        return found

    def is_serving(self, name: str) -> bool:
        return self.member(name) is not None and self.serves(name)

    def is_marked(self, name: str) -> bool:
        """Tell whether the node has this ledger's mark."""
        node = self.member(name)
        mark = None if node is None else read_mark(node.annotations.get(OWNER_ANNOTATION))
        return mark is not None and mark.ledger == self.raw_ledger.id

    def active(self) -> list[str]:
        return [name for name, node in self.fleet.nodes.items() if node.state is NodeState.ACTIVE]


class _CheckedEvents(list[Event]):
    """The events of a run, each passed to the checker at once."""

    def __init__(self, checker: InvariantChecker) -> None:
        super().__init__()
        self._checker = checker

    def append(self, event: Event) -> None:
        super().append(event)
        self._checker.on_event(event)


# --- drift: changes of a node by others ------------------------------------------------------------------


def _old_image(_: SmallFleet, machine: Machine) -> None:
    for disk in machine.state.disks.values():
        disk.version, disk.sha256 = "0", sha("0")


def _bios_off(_: SmallFleet, machine: Machine) -> None:
    machine.state.bios["SriovGlobalEnable"] = "Disabled"


def _bios_pending(_: SmallFleet, machine: Machine) -> None:
    machine.state.pending_bios["SriovGlobalEnable"] = "Disabled"


def _older(component: str) -> Callable[[SmallFleet, Machine], None]:
    def change(_: SmallFleet, machine: Machine) -> None:
        machine.state.firmware[component].version = "1.0"

    return change


def _sysctl_off(_: SmallFleet, machine: Machine) -> None:
    if machine.state.os is not None:
        machine.state.os.sysctls["vm.swappiness"] = "60"


def _service_stopped(_: SmallFleet, machine: Machine) -> None:
    _stop(machine, "containerd")


def _kubelet_stopped(_: SmallFleet, machine: Machine) -> None:
    _stop(machine, "kubelet")


def _stop(machine: Machine, service: str) -> None:
    if machine.state.os is not None:
        machine.service_set(service, active=False, enabled=False)


def _renamed(_: SmallFleet, machine: Machine) -> None:
    if machine.state.os is not None:
        machine.set_hostname("localhost")


def _secure_boot_off(_: SmallFleet, machine: Machine) -> None:
    machine.state.secure_boot = False


def _boot_order(_: SmallFleet, machine: Machine) -> None:
    machine.state.boot_order = ["Pxe", "Hdd"]


def _switched_off(_: SmallFleet, machine: Machine) -> None:
    if machine.state.power == "on":
        machine.power("force_off")


def _rebooted(_: SmallFleet, machine: Machine) -> None:
    if machine.state.os is not None:
        machine.reboot()


def _mig(_: SmallFleet, machine: Machine) -> None:
    for gpu in machine.state.gpus:
        gpu.mig_enabled = gpu.mig_pending = not gpu.mig_enabled
        gpu.mig_instances = []


def _unlabelled(world: SmallFleet, machine: Machine) -> None:
    node = world.member(machine.name)
    if node is not None:
        labels = {key: value for key, value in node.labels.items() if key != "workload"}
        world.kube.update_node(machine.name, labels=labels)


def _deleted(world: SmallFleet, machine: Machine) -> None:
    """Delete the node object as `kubectl delete node` does, with its mark and cordon."""
    if world.member(machine.name) is not None:
        world.kube.remove_node(machine.name)
        world.checker.foreign.pop(machine.name, None)


_DRIFTS: Mapping[str, Callable[[SmallFleet, Machine], None]] = {
    "old image": _old_image,
    "BIOS off": _bios_off,
    "BIOS change pending": _bios_pending,
    "old BMC firmware": _older("BMC"),
    "old BIOS firmware": _older("BIOS"),
    "old NIC firmware": _older("NIC0"),
    "sysctl off": _sysctl_off,
    "service stopped": _service_stopped,
    "kubelet stopped": _kubelet_stopped,
    "renamed": _renamed,
    "Secure Boot off": _secure_boot_off,
    "boot order": _boot_order,
    "switched off": _switched_off,
    "rebooted": _rebooted,
    "MIG changed": _mig,
    "label gone": _unlabelled,
    "deleted from the cluster": _deleted,
}
DRIFTS = tuple(_DRIFTS)
