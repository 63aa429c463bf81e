"""Check before each write of a run, by the lab's state, whether the write breaks an invariant.

The checker knows the spec, the machines, the cluster and the disturbances, but not the plans, conditions or budgets of
the code under test. A run need not know yet what happened in the last `SEEN_S` seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from reconciler.converge.events import ActionStarted, Event
from reconciler.lab.hardware.state import GpuState, MachineState
from reconciler.model.desired import BudgetLimit, Desired, RolloutPolicy, Window
from reconciler.model.gate import Verdict
from reconciler.model.ports import Fabric, Ledger, PowerAction
from reconciler.model.records import FLEET, Rollout, isolated_for
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption, NodeState, WindowKind
from tests.properties.test_permit import within

if TYPE_CHECKING:
    from tests.soak.world import SmallFleet

SEEN_S = 15.0  # reservations of one moment share a read of the cluster
DECIDED_S = 60.0  # an action decided before a disturbance may still begin
JOINS_S = 900.0
RESUMED_S = 2 * 3600.0  # a later run continues the actions of a dead run; no BMC shows staged values
ROLLBACK = ("1", "100%")
_STAGING = frozenset({"stage_bios", "set_secure_boot", "set_boot_order", "boot_once", "insert_media", "eject_media"})
_WRITES = _STAGING | {"power", "clear_bios", "update_firmware", "reset"}
_RESTARTS = (("systemctl", "reboot"), ("nvidia-smi", "-mig"))
_CLUSTER = frozenset({"mark", "unmark", "set_labels", "evict", "delete"})


class PowerCut(BaseException):
    """The reconciler's machine lost power: no later call of the run has any effect."""


# What a run calls without writing anything that another run would find, but a longer lease.
READS = frozenset({
    "facts", "holder", "holds", "hot", "inventory", "known", "media", "member", "node", "nodes", "progress", "prove",
    "renew", "rollouts", "state", "unfinished",
})  # fmt: skip
LONG_S = 30.0  # in which a machine that installs, boots or flashes gets on


@dataclass
class CrashTrigger:
    """Crashes a run at its `calls`-th call, by calling `signal`, or with PowerCut if that is None.

    `alike`: passes over calls at which a crash does what one just before would do. What a power cut leaves behind is
    the same until something is written, and the machine goes on by itself for that long: seconds of fleet time. What
    Ctrl-C stops differs from call to call, but for those that are repeated.
    """

    calls: int = 0  # 0 = never
    signal: Callable[[], object] | None = None
    alike: Callable[[], float] | None = None  # the fleet's clock
    fired: bool = False
    _read: set[str] = field(default_factory=set)  # since something was written
    _at: float = 0.0  # when a call was counted last

    def check(self) -> None:
        if self.fired and self.signal is None:
            raise PowerCut

    def after_call(self, name: str) -> None:
        """Count a call after its effect and before the run can record it; crash the run at the last one."""
        self.check()
        if self.calls == 0 or self.fired or self._passes(name):
            return
        self.calls -= 1
        if self.calls == 0:
            self.fired = True
            if self.signal is not None:
                self.signal()
            self.check()

    def _passes(self, name: str) -> bool:
        if self.alike is None:
            return False
        if name not in READS or self.alike() - self._at >= LONG_S:
            self._read.clear()
            self._at = self.alike()
            return False
        passes = self.signal is None or name in self._read
        self._read.add(name)
        return passes


@dataclass
class InvariantChecker:
    world: SmallFleet
    found: list[str] = field(default_factory=list)  # broken invariants with the reason
    crash_trigger: CrashTrigger = field(default_factory=CrashTrigger)
    listener: Callable[[Event], None] | None = None  # receives all events of runs
    foreign: dict[str, float] = field(default_factory=dict)  # nodes with a foreign cordon -> since
    held: dict[str, tuple[float, datetime | None]] = field(default_factory=dict)  # subject -> since, until
    declared: dict[str, float] = field(default_factory=dict)  # subjects that the spec holds -> since
    _disturbed: dict[str, float] = field(default_factory=dict)  # node -> time of the last disturbance
    _admitted: dict[str, float] = field(default_factory=dict)  # node -> when its mark was last removed
    _flashed: dict[tuple[str, str], float] = field(default_factory=dict)  # (node, item) -> when last flashed
    _touched: set[str] = field(default_factory=set)  # marked nodes that were changed since the mark
    _isolated: dict[str, float] = field(default_factory=dict)  # nodes marked on evidence and not yet drained -> when

    def broken(self, invariant: str, what: str) -> None:
        self.found.append(f"{invariant}: {what} at {self.world.clock.now():%d %H:%M:%S}")

    # --- events ---

    def disturbed(self, node: str) -> None:
        self._disturbed[node] = self.world.seconds()

    def on_event(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)
        if not isinstance(event, ActionStarted):
            return
        node, action = event.node, event.action
        if self.is_held(node):
            self.broken("held_node_is_never_disrupted", f"{action.id} begins on {node}")
        if action.name == "mark" or action.disruption >= Disruption.DRAIN:
            self._before_work(node, action.id)

    def is_held(self, node: str) -> bool:
        """Tell whether a node has been held for long enough that a run must know."""
        now, pool = self.world.seconds(), self.world.fleet.nodes[node].pool
        for subject in (node, f"pool/{pool}", FLEET):
            since, until = self.held.get(subject, (now, None))
            if now - self.declared.get(subject, now) > SEEN_S:
                return True
            if now - since > SEEN_S and (until is None or until > self.world.clock.now()):
                return True
        return False

    def quiet_s(self, node: str) -> float:
        """Return the seconds since the last disturbance of the node."""
        return self.world.seconds() - self._disturbed.get(node, -1e9)

    # --- before a write ---

    def before(self, kind: str, node: str, call: str, args: Sequence[Any], keys: dict[str, Any]) -> None:
        if kind == "bmc" and call in _WRITES:
            self._before_bmc_write(node, call, args)
        elif kind == "host" and call == "run" and tuple(args[0][:2]) in _RESTARTS:
            self._set_aside(node, " ".join(args[0]))
            self._before_disruption(node, " ".join(args[0]))
        elif kind == "host" and call == "run" and args[0][-1] == "kubelet":
            self._touched.add(node)  # a joining node has not passed its gate
        elif kind == "cluster" and call in _CLUSTER:
            name = args[0].name if call not in ("evict", "delete") else self._node_of(args[0].uid)
            if call == "unmark":
                self._isolated.pop(name, None)
                self._before_unmark(name, uncordon=keys["uncordon"])
            else:
                self._set_aside(name, call)
            if call == "mark":
                self._before_mark(name, isolated_for(args[1].reason))
            elif call in ("evict", "delete"):
                self._before_drain(name)

    def _node_of(self, uid: str) -> str:
        return next((pod.node for pod in self.world.kube.pods() if pod.uid == uid and pod.node), "")

    def _set_aside(self, node: str, call: str) -> None:
        """Check that nodes outside the spec, or set aside by it, are not changed (invariant 8)."""
        desired = self.world.fleet.nodes.get(node)
        if node in self.world.lab.machines and (desired is None or desired.state is not NodeState.ACTIVE):
            what = "forgotten" if desired is None else desired.state.value
            self.broken("forget_never_touches", f"{call} on {node}, which is {what}")

    def _before_bmc_write(self, node: str, call: str, args: Sequence[Any]) -> None:
        machine = self.world.machine(node)
        self._set_aside(node, call)
        other = machine.shown_identity != (machine.state.serial, machine.state.uuid)
        if other and self.quiet_s(node) > SEEN_S:
            self.broken("identity_before_any_bmc_write", f"{call} on {node}")
        self._touched.add(node)
        if call in ("update_firmware", "reset") or (call == "power" and args[0] is not PowerAction.ON):
            self._before_disruption(node, f"{call} {args}")
        if call == "update_firmware":
            item = machine.state.firmware[args[0]]
            wanted = {i.inventory_id: i.version for i in self.world.fleet.nodes[node].profile.firmware}[args[0]]
            lately = self.world.seconds() - self._flashed.get((node, args[0]), -1e9) < RESUMED_S
            self._flashed[node, args[0]] = self.world.seconds()
            if item.version == wanted or (item.staged == wanted and lately):
                self.broken("crash_anywhere_converges", f"{args[0]} of {node} is flashed again")
            self._in_window(node, call)
            self._before_change(node, [f"firmware.{item.component}"])
        if call == "insert_media":
            self._before_change(node, ["image.version"])
        if call == "stage_bios":
            self._before_change(node, [f"bios.{name}" for name in args[0]])
        if call == "stage_bios" and any(self.ignored(f"bios.{name}") for name in args[0]):
            self.broken("ignore_rules_same_in_drift_plan_apply", f"{call} {args} on {node}")

    def _before_change(self, node: str, paths: Sequence[str]) -> None:
        """Check before a rollout changes a node that all earlier waves are complete."""
        if self.world.machine(node).state.os is None:
            return
        pool, values = self.world.fleet.nodes[node].pool, _values(self.world, node)
        applied = self.world.raw_ledger.node(node).applied
        moved = [
            path
            for path in paths
            if path in applied and values[path][1] == applied[path].value != values[path][0] and not self.ignored(path)
        ]
        if not moved:
            return
        rollout = self.world.raw_ledger.rollouts().get(pool)
        if rollout is None:
            self.broken("waves_are_never_overtaken", f"{moved} of {node} changes, and no rollout is on record")
            return
        began = (rollout.started_at - self.world.clock.now()).total_seconds() + self.world.seconds()
        policy = self.world.fleet.rollouts.get(pool, RolloutPolicy())
        bake_s = 0.0 if rollout.rollback else policy.bake_s
        failed = self.world.gate.failed & {*rollout.members}
        for member in self._earlier(node, rollout, policy):
            if member in failed and len(failed) <= policy.max_failures:
                continue  # so few failures do not stop the rollout
            if self._disturbed.get(member, -1.0) >= began - DECIDED_S:
                continue  # a disturbance may have caused the difference
            baked_s = self.world.seconds() - self._admitted.get(member, 0.0)
            wrong = unfit(self.world, member)
            if wrong or not self.world.is_serving(member) or baked_s < bake_s - SEEN_S:
                told = wrong or f"which {'serves' if self.world.is_serving(member) else 'does not serve'}"
                self.broken("waves_are_never_overtaken", f"{moved} of {node} before {member}, {told}, for {baked_s} s")

    def _earlier(self, node: str, rollout: Rollout, policy: RolloutPolicy) -> Sequence[str]:
        """Return the members of earlier waves; if the membership changed, at most the canary."""
        fleet = self.world.fleet
        taking_part = [
            name
            for name in rollout.members
            if name in fleet.nodes
            and fleet.nodes[name].state is NodeState.ACTIVE
            and not self._has_hold(name)
            and not self._is_ill(name)
        ]
        sizes = ROLLBACK if rollout.rollback else policy.waves
        if node not in taking_part or len(taking_part) < len(rollout.members):
            return taking_part[:1] if sizes[0] == "1" and taking_part[:1] != [node] else ()
        through = [parse_nodes(size, len(taking_part)) for size in sizes]
        return taking_part[: max((count for count in through if count <= taking_part.index(node)), default=0)]

    def _is_ill(self, name: str) -> bool:
        """Tell whether the node is ill by its GPUs, or by the kernel log since its boot."""
        state = self.world.machine(name).state
        log = [] if state.os is None else state.os.kernel_log
        return any(_ill(gpu) for gpu in state.gpus) or any("Xid" in line for line in log)

    def _has_hold(self, name: str) -> bool:
        return any(s in self.held or s in self.declared for s in (name, f"pool/{self.world.fleet.nodes[name].pool}"))

    def _before_disruption(self, node: str, what: str) -> None:
        self._touched.add(node)
        self._before_drain(node)
        if self.quiet_s(node) < SEEN_S:
            return  # its node object, and with it the mark, may just have been deleted
        work = [pod.name for pod in self.world.kube.pods(node) if pod.evictable]
        if work:
            self.broken("never_disrupt_unquiesced", f"{what} on {node} with {', '.join(work)}")
        if self.world.is_serving(node):
            self.broken("never_disrupt_unquiesced", f"{what} on {node}, which is in service")

    def _before_work(self, node: str, what: str) -> None:
        """Check before an action that ends the service of a node."""
        machine = self.world.machine(node)
        if self.world.seconds() - self.foreign.get(node, self.world.seconds()) > DECIDED_S:
            self.broken("foreign_cordon_is_kept", f"{what} on {node}, which somebody else cordoned")
        if self.quiet_s(node) < DECIDED_S:
            return
        silent = [kind for kind in ("ssh_refused", "ssh_hang") if machine.fault(kind)]
        if silent and machine.kubelet_ready:
            self.broken("unknown_never_disrupts", f"{what} on {node} while {silent[0]}")

    def _before_mark(self, node: str, evidence: Sequence[str]) -> None:
        """Check before a mark. `evidence`: signals that isolate the node regardless of budget and windows."""
        found = self.world.member(node)
        if found is None or not self.world.is_serving(node):
            return
        if node in self._touched and self.world.seconds() - found.created < JOINS_S:
            return  # it has just joined and never passed its gate
        if not self.world.is_marked(node):
            self._touched.discard(node)
        if evidence:
            self._isolated[node] = self.world.seconds()
            return
        # A node that was permitted before an isolation still goes.
        new = {name for name, at in self._isolated.items() if self.world.seconds() - at < DECIDED_S}
        out = {name for name in self.world.active() if self._is_known_out(name)}
        self._within_budget(node, (out - new) | {node})
        self._in_window(node, "mark")

    def _before_drain(self, node: str) -> None:
        """Check before the drain of an isolated node, which counts against the budget."""
        if node not in self._isolated:
            return
        del self._isolated[node]
        out = {name for name in self.world.active() if self._is_known_out(name)}
        self._within_budget(node, (out - self._isolated.keys()) | {node})
        self._in_window(node, "drain")

    def _within_budget(self, node: str, out: set[str]) -> None:
        active, wanted = self.world.active(), self.world.fleet.nodes[node]
        for limit in self.world.fleet.settings.budgets or (BudgetLimit("fleet", "1"),):
            group = {name for name in active if _key(limit, self.world.fleet.nodes[name]) == _key(limit, wanted)}
            if len(out & group) > parse_nodes(limit.nodes, len(group)):
                told = f"{node} is taken out with {sorted(out & group)} of {len(group)} out"
                self.broken("budget_never_exceeded", f"{told}, {limit.nodes} per {limit.scope}")

    def _is_known_out(self, name: str) -> bool:
        """Tell whether a node is out by the reconciler, or by others for long enough to be known."""
        node = self.world.member(name)
        if node is None or self.world.is_serving(name):
            return node is None and self.quiet_s(name) > SEEN_S
        if self.world.is_marked(name):
            return True
        since = self.foreign.get(name) if node.unschedulable else node.ready_since
        return self.world.seconds() - max(since or 0.0, self._disturbed.get(name, 0.0)) > SEEN_S

    def _in_window(self, node: str, call: str) -> None:
        moments = (self.world.clock.now() - timedelta(seconds=ago) for ago in (0.0, DECIDED_S))
        if not any(self._allowed(self.world.fleet.nodes[node].pool, moment) for moment in moments):
            self.broken("windows", f"{call} on {node}")

    def _allowed(self, pool: str, at: datetime) -> bool:
        settings = self.world.fleet.settings
        if settings.break_glass is not None and at < datetime.fromisoformat(settings.break_glass.until):
            return True
        mine = [window for window in settings.windows if not window.pools or pool in window.pools]
        allow = [window for window in mine if window.kind is WindowKind.ALLOW]
        deny = [window for window in mine if window.kind is WindowKind.DENY]

        def open_at(windows: list[Window]) -> bool:
            return any(within(window.hours, at) for window in windows)

        return (open_at(allow) or not allow) and not open_at(deny)

    def _before_unmark(self, node: str, *, uncordon: bool) -> None:
        if not self.world.is_marked(node):
            self.broken("foreign_cordon_is_kept", f"a mark that is not ours is lifted from {node}")
        if uncordon and node in self.foreign:
            self.broken("foreign_cordon_is_kept", f"{node} is uncordoned")
        if node in self._touched and self.quiet_s(node) > DECIDED_S:
            if node not in self.world.fleet.nodes:
                self.broken("never_admit_without_gate_and_trust", f"{node}, which left the spec in the middle of work")
            elif wrong := unfit(self.world, node, waves=True):
                self.broken("never_admit_without_gate_and_trust", f"{node}: {wrong}")
        self._touched.discard(node)
        self._admitted[node] = self.world.seconds()

    def ignored(self, path: str) -> bool:
        rules = [rule.path for rule in self.world.fleet.settings.ignore]
        return any(path == rule or (rule.endswith("*") and path.startswith(rule[:-1])) for rule in rules)

    # --- between runs ---

    def ran(self) -> None:
        """Record that a run has read the whole fleet: what the spec holds now stays held until released."""
        for subject, since in self.declared.items():
            self.held.setdefault(subject, (since, None))

    def look(self) -> None:
        """Check the invariants that must always hold."""
        for name in self.foreign:
            node = self.world.member(name)
            if node is None or not node.unschedulable:
                self.broken("foreign_cordon_is_kept", f"{name} is no longer cordoned")


def _key(limit: BudgetLimit, node: Desired) -> str | None:
    return {"fleet": "", "pool": node.pool}.get(limit.scope, node.domains.get(limit.scope))


def unfit(world: SmallFleet, name: str, *, waves: bool = False) -> str:
    """Return why this machine must not be in service, by its own state and the ledger's certificate.

    `waves`: the machine may still have its former values, because its wave has not begun.
    """
    machine, desired = world.machine(name), world.fleet.nodes[name]
    machine.catch_up()
    if machine.state.os is None or machine.state.booted_disk is None:
        return "no system runs"
    values = _values(world, name)
    applied = world.raw_ledger.node(name).applied if waves else {}
    wrong = [
        f"{path}={now}"
        for path, (wanted, now) in values.items()
        if now != wanted and not world.checker.ignored(path) and not (path in applied and applied[path].value == now)
    ]
    wrong += [f"GPU {gpu.index} is ill" for gpu in machine.state.gpus if _ill(gpu)]
    acceptance = desired.profile.acceptance
    assert acceptance is not None
    return ", ".join([*wrong, *_unproven(world, name)])


def _ill(gpu: GpuState) -> bool:
    return bool(gpu.lost or gpu.ecc_uncorrectable or gpu.nvlinks_down)


def _values(world: SmallFleet, name: str) -> dict[str, tuple[Any, Any]]:
    """Return managed path -> (desired, actual) of a running machine."""
    state, desired, node = world.machine(name).state, world.fleet.nodes[name], world.member(name)
    profile = desired.profile
    assert state.os is not None
    assert state.booted_disk is not None
    assert profile.image is not None
    assert profile.membership is not None
    disk, labels = state.disks[state.booted_disk], {} if node is None else node.labels
    found: dict[str, tuple[Any, Any]] = {
        "image.version": (profile.image.version, disk.version),
        "image.sha256": (profile.image.sha256, disk.sha256),
        "boot.secure_boot": (profile.secure_boot, state.secure_boot),
        "boot.order": (list(profile.boot_order or ()), state.boot_order),
        "host.hostname": (desired.hostname, state.os.hostname),
        "gpu.mig": (_layout(profile.gpu.mig if profile.gpu else None), _mig(state)),
    }
    found |= {f"firmware.{i.component}": (i.version, state.firmware[i.inventory_id].version) for i in profile.firmware}
    found |= {f"bios.{key}": (value, state.bios[key]) for key, value in profile.bios.items()}
    found |= {f"host.sysctls.{k}": (value, state.os.sysctls.get(k)) for k, value in profile.host.sysctls.items()}
    found |= {f"host.services.{k}": (True, state.os.services_active.get(k)) for k in profile.host.services}
    found |= {f"cluster.labels.{k}": (value, labels.get(k)) for k, value in profile.membership.labels.items()}
    return found


def _layout(mig: Mapping[str, int] | None) -> str:
    return "off" if mig is None else ", ".join(f"{name} x{count}" for name, count in sorted(mig.items()))


def _mig(state: MachineState) -> str:
    """Return the MIG layout of all GPUs if they agree."""
    layouts = {
        _layout(Counter(profile for profile, _ in gpu.mig_instances)) if gpu.mig_enabled else "off"
        for gpu in state.gpus
        if not gpu.lost
    }
    return layouts.pop() if len(layouts) == 1 else f"{sorted(layouts)}"


def _unproven(world: SmallFleet, name: str) -> list[str]:
    state, certificate = world.machine(name).state, world.raw_ledger.node(name).certificate
    acceptance = world.fleet.nodes[name].profile.acceptance
    if certificate is None:
        return ["no certificate"]
    wrong = []
    if any(result.verdict is not Verdict.PASS for result in certificate.results):
        wrong.append("the gate did not pass")
    valid_s = None if acceptance is None else acceptance.validity_s
    if valid_s is not None and certificate.issued_at + timedelta(seconds=valid_s) < world.clock.now():
        wrong.append("the certificate has expired")
    if certificate.binding.firmware != {item.component: item.version for item in state.firmware.values()}:
        wrong.append("certificate of other firmware")
    if world.gate.passed.get(name) != world.gate.history(name):
        wrong.append("installed, flashed or set otherwise since the gate")
    return wrong


# --- checked ports ----------------------------------------------------------------------------------------------


class CheckedFabric:
    """A Fabric whose ports call the checker before each call, and the crash trigger after it."""

    def __init__(self, fabric: Fabric, checker: InvariantChecker) -> None:
        self._fabric = fabric
        self._checker = checker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def bmc(self, desired: Desired) -> Any:
        return _Port(self._fabric.bmc(desired), self._checker, "bmc", desired.node)

    def host(self, desired: Desired) -> Any:
        return _Port(self._fabric.host(desired), self._checker, "host", desired.node)

    def cluster(self) -> Any:
        return _Port(self._fabric.cluster(), self._checker, "cluster", "")

    def installer(self) -> Any:
        return _Port(self._fabric.installer(), self._checker, "installer", "")


class _Port:
    def __init__(self, port: Any, checker: InvariantChecker, kind: str, node: str) -> None:
        self._port = port
        self._checker = checker
        self._about = (kind, node)

    def __getattr__(self, name: str) -> Any:
        call, checker = getattr(self._port, name), self._checker
        if name == "adjustments":  # a port of the port
            return lambda: _Port(call(), checker, *self._about) if call() is not None else None

        async def watched(*args: Any, **keys: Any) -> Any:
            checker.crash_trigger.check()
            checker.before(*self._about, name, args, keys)
            result = await call(*args, **keys)
            checker.crash_trigger.after_call(name)
            return result

        return watched


class CheckedLedger:
    """A ledger that a crashed run can no longer write."""

    def __init__(self, ledger: Ledger, checker: InvariantChecker) -> None:
        self._ledger = ledger
        self._checker = checker

    def __getattr__(self, name: str) -> Any:
        call, checker = getattr(self._ledger, name), self._checker
        if not callable(call):
            return call

        def watched(*args: Any, **keys: Any) -> Any:
            checker.crash_trigger.check()
            result = call(*args, **keys)
            if name != "batch":  # a crash here would leave nothing to roll back
                checker.crash_trigger.after_call(name)
            return result

        return watched
