"""The small fleet itself: eight machines under virtual time, whatever the spec says, and all that happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import Event
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
from tests.soak.referee import Fuse, Referee, WiredFabric, WiredLedger
from tests.soak.spec import BIOS, FIRMWARE_IMAGES, NAMES, SIGNATURES, SUBJECTS, UNSIGNED, Spec, sha

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
    """Remembers how often each machine had been installed and flashed when it passed, and its BIOS settings then."""

    def __init__(self, machine: Callable[[str], Machine]) -> None:
        super().__init__()
        self._machine = machine
        self.passed: dict[str, tuple[Any, ...]] = {}
        self.failing: set[str] = set()  # nodes that fail it once more
        self.failed: set[str] = set()  # nodes that failed it last

    def history(self, node: str) -> tuple[Any, ...]:
        state = self._machine(node).state
        return state.counters.installs, state.counters.flashes, *(state.bios[name] for name in BIOS)

    async def run(self, desired: d.Desired, host: Host, observed: Observed, clock: Clock) -> Certificate:
        name = desired.node
        self.verdicts = {failing.replace("-", "_"): Verdict.FAIL for failing in self.failing}  # of all under way
        certificate = await super().run(desired, host, observed, clock)
        if all(result.verdict is Verdict.PASS for result in certificate.results):
            self.passed[name] = self.history(name)
            self.failed.discard(name)
        else:
            self.failing.discard(name)
            self.failed.add(name)
        return certificate


@dataclass(frozen=True)
class Disturbance:
    """What somebody or something does while a run works."""

    after_s: float
    what: Callable[[], None]


class SmallFleet(World):
    """`spec` is edited in place; `edited` makes it the one in force."""

    def __init__(self, where: Path | None = None, spec: Spec | None = None, names: Sequence[str] = NAMES) -> None:
        """`where`: a folder for a ledger as runs have it; None: one in memory, which is three times as fast.

        `names`: of the machines that there are, whether the spec names them or not.
        """
        self.clock = VirtualClock()
        self.spec = spec or Spec()
        self.names = names
        everything = Spec(states=dict.fromkeys(names, NodeState.ACTIVE)).fleet()
        scenario = Scenario.model_validate({"nodes": {"n7": {"drift": ["blank"]}} if "n7" in names else {}})
        self.lab = build_lab(everything, scenario, self.clock.seconds)
        for machine in self.lab.machines.values():
            machine.firmware_images = FIRMWARE_IMAGES
        self.clock.elapsed = 3600.0  # everything has been up for a while
        self.book: Ledger = MemoryLedger("memory") if where is None else SqlLedger(where / "ledger.sqlite")
        self.ledger = self.book  # type: ignore[assignment]  # either is a Ledger
        self.gate: Gate = Gate(self.machine)
        self.referee = Referee(self)
        self.fabric = WiredFabric(LabFabric(self.lab, self.clock), self.referee)  # type: ignore[assignment]  # by structure
        self.signatures = SIGNATURES
        self.events = []
        self.plans = self._runs = 0
        self.edited()
        self.adopt()
        self.gate.passed = {name: self.gate.history(name) for name in self.fleet.nodes}
        self.apply(wait_s=0.0)  # from here on the ledger knows what everything was converged to

    def edited(self) -> None:
        self.fleet = self.spec.fleet()
        self.referee.declared = {
            hold.subject: self.referee.declared.get(hold.subject, self.seconds()) for hold in self.fleet.holds
        }

    def seconds(self) -> float:
        return self.clock.elapsed

    # --- runs ---

    async def applying(self, **changes: Any) -> ApplyReport:
        """`events` are of this run alone; the ledger is reached as the ports are."""
        self.events = _Told(self.referee)
        self.ledger = WiredLedger(self.book, self.referee)  # type: ignore[assignment]  # a Ledger by structure
        try:
            return await super().applying(**({"signatures": SIGNATURES} | changes))
        finally:
            self.ledger = self.book  # type: ignore[assignment]

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

    def crash(self, calls: int, *, hard: bool, **changes: Any) -> bool:
        """Ends a run at its `calls`-th call; `hard`: as a power cut does, otherwise as Ctrl-C. Whether it got there."""

        async def killed() -> None:
            work = asyncio.create_task(self.applying(**changes))
            self.referee.fuse = Fuse(calls, None if hard else work.cancel)
            await asyncio.wait([work])
            fuse, self.referee.fuse = self.referee.fuse, Fuse()
            self.died = fuse.blown
            if not work.cancelled() and (error := work.exception()) is not None and not fuse.blown:
                raise error

        self.run(killed())
        if self.died:
            self.lab.documents.clear()  # the process that served them is gone
            self.wait(61.0)  # until its lease has run out
        return self.died

    def plan(self, **changes: Any) -> Plan:
        return self.plan_of(self.fleet, self.observe(), **changes)

    def plan_of(self, fleet: d.Fleet, observation: Observation, **changes: Any) -> Plan:
        self.plans += 1
        snapshot = replace(take_snapshot(self.book, fleet, list(fleet.nodes)), known=())
        now = changes.pop("now", self.clock.now())
        request = PlanRequest(f"approved-{self.plans}", SIGNATURES, **changes)
        return plan_fleet(fleet, observation, snapshot, now, request)

    def wait(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    # --- what happens to nodes ---

    def spoil(self, name: str, kind: str) -> None:
        machine = self.machine(name)
        machine.catch_up()
        self.referee.disturbed(name)
        _DRIFTS[kind](self, machine)
        machine.state.etag += 1

    def fault(self, name: str, kind: str) -> None:
        self.referee.disturbed(name)
        fault, parameters = FAULTS[kind]
        self.machine(name).inject(fault, **parameters)

    def repair(self, name: str) -> None:
        self.referee.disturbed(name)
        self.machine(name).clear()

    def cordon(self, name: str) -> None:
        """By somebody else. One that is cordoned already stays as it is: nobody can tell whose cordon it is then."""
        node = self.member(name)
        if node is not None and not node.unschedulable:
            self.referee.disturbed(name)
            self.referee.foreign[name] = self.seconds()
            self.kube.update_node(name, unschedulable=True)

    def uncordon(self, name: str) -> None:
        if self.referee.foreign.pop(name, None) is not None:
            self.referee.disturbed(name)
            self.kube.update_node(name, unschedulable=False)

    def hold(self, subject: str, hours: float | None) -> None:
        until = None if hours is None else self.clock.now() + timedelta(hours=hours)
        self.book.hold(subject, "looking at it", "ops", until, self.clock.now())
        self.referee.held[subject] = (self.seconds(), until)

    def release(self, subject: str) -> None:
        self.book.release(subject, "ops", self.clock.now())
        self.referee.held.pop(subject, None)

    def calm_down(self) -> None:
        """Nobody interferes any more; what is broken is repaired, what is held let go; nothing stands in the way."""
        self.all_is_over()
        self.see_to(self.names)

    def see_to(self, names: Iterable[str]) -> None:
        """As a person does: that somebody has is on record when a node is let go."""
        for name in names:
            self.hold(name, None)
            self.release(name)
        self.resume()

    def resume(self) -> bool:
        """After a storm; False: there was none."""
        return bool(self.book.release(STORM, "ops", self.clock.now()))

    def all_is_over(self) -> None:
        """As `calm_down`, and nobody has seen to any node."""
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

    # --- the truth ---

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

    def is_ours(self, name: str) -> bool:
        """Whether it carries our mark."""
        node = self.member(name)
        mark = None if node is None else read_mark(node.annotations.get(OWNER_ANNOTATION))
        return mark is not None and mark.ledger == self.book.id

    def active(self) -> list[str]:
        return [name for name, node in self.fleet.nodes.items() if node.state is NodeState.ACTIVE]


class _Told(list[Event]):
    """The events of a run, each shown to the referee at its moment."""

    def __init__(self, referee: Referee) -> None:
        super().__init__()
        self._referee = referee

    def append(self, event: Event) -> None:
        super().append(event)
        self._referee.told(event)


# --- drift: what others do to a node behind our back ------------------------------------------------------------------


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
    """`kubectl delete node`: with it goes whatever was marked or cordoned."""
    if world.member(machine.name) is not None:
        world.kube.remove_node(machine.name)
        world.referee.foreign.pop(machine.name, None)


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
