"""Stands between runs and the lab. Before each write it looks at the truth, and says which invariant the write breaks.

It knows the spec, the machines, the cluster and what others did to them, and nothing of plans, conditions or budgets as
the code under test works them out. What happened a moment ago a run need not know yet: `SEEN_S`.
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
DECIDED_S = 60.0  # an action that was decided upon before something happened may still begin
JOINS_S = 900.0
RESUMED_S = 2 * 3600.0  # what a run that died had begun is gone on with; no BMC shows what is only staged
ROLLBACK = ("1", "100%")
_STAGING = frozenset({"stage_bios", "set_secure_boot", "set_boot_order", "boot_once", "insert_media", "eject_media"})
_WRITES = _STAGING | {"power", "clear_bios", "update_firmware", "reset"}
_RESTARTS = (("systemctl", "reboot"), ("nvidia-smi", "-mig"))
_CLUSTER = frozenset({"mark", "unmark", "set_labels", "evict", "delete"})


class PowerCut(BaseException):
    """The machine that ran the reconciler has gone: nothing that the run still tries has any effect."""


@dataclass
class Fuse:
    """Blows at the `calls`-th call of a run: `signal` is what it does then; None: everything ends there and then."""

    calls: int = 0  # 0 = never
    signal: Callable[[], object] | None = None
    blown: bool = False

    def check(self) -> None:
        if self.blown and self.signal is None:
            raise PowerCut

    def burn(self) -> None:
        """After a call that had its effect, and before anybody could write it down."""
        self.check()
        if self.calls == 0 or self.blown:
            return
        self.calls -= 1
        if self.calls == 0:
            self.blown = True
            if self.signal is not None:
                self.signal()
            self.check()


@dataclass
class Referee:
    world: SmallFleet
    found: list[str] = field(default_factory=list)  # invariants that were broken, and how
    fuse: Fuse = field(default_factory=Fuse)
    listener: Callable[[Event], None] | None = None  # to whom all that runs tell is passed on
    foreign: dict[str, float] = field(default_factory=dict)  # nodes that somebody else cordoned -> since
    held: dict[str, tuple[float, datetime | None]] = field(default_factory=dict)  # subject -> since, until
    declared: dict[str, float] = field(default_factory=dict)  # subjects that the spec holds -> since
    _disturbed: dict[str, float] = field(default_factory=dict)  # node -> when somebody or something last did a thing
    _admitted: dict[str, float] = field(default_factory=dict)  # node -> when our mark was last lifted from it
    _flashed: dict[tuple[str, str], float] = field(default_factory=dict)  # node and item -> when last
    _touched: set[str] = field(default_factory=set)  # marked nodes that something was done to since
    _isolated: dict[str, float] = field(default_factory=dict)  # marked on evidence, not drained since -> when

    def broken(self, invariant: str, what: str) -> None:
        self.found.append(f"{invariant}: {what} at {self.world.clock.now():%d %H:%M:%S}")

    # --- what is told ---

    def disturbed(self, node: str) -> None:
        self._disturbed[node] = self.world.seconds()

    def told(self, event: Event) -> None:
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
        """Since long enough for a run to know."""
        now, pool = self.world.seconds(), self.world.fleet.nodes[node].pool
        for subject in (node, f"pool/{pool}", FLEET):
            since, until = self.held.get(subject, (now, None))
            if now - self.declared.get(subject, now) > SEEN_S:
                return True
            if now - since > SEEN_S and (until is None or until > self.world.clock.now()):
                return True
        return False

    def quiet_s(self, node: str) -> float:
        """For how long nobody else has done anything to it."""
        return self.world.seconds() - self._disturbed.get(node, -1e9)

    # --- before a write ---

    def before(self, kind: str, node: str, call: str, args: Sequence[Any], keys: dict[str, Any]) -> None:
        if kind == "bmc" and call in _WRITES:
            self._before_bmc_write(node, call, args)
        elif kind == "host" and call == "run" and tuple(args[0][:2]) in _RESTARTS:
            self._set_aside(node, " ".join(args[0]))
            self._before_disruption(node, " ".join(args[0]))
        elif kind == "host" and call == "run" and args[0][-1] == "kubelet":
            self._touched.add(node)  # a node that joins has not been accepted
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
        """Nodes that left the spec, or that it sets aside, are not acted upon (invariant 8)."""
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
        """What the spec moved on, and the node did not, is about to be changed: all earlier waves must be through."""
        if self.world.machine(node).state.os is None:
            return
        pool, values = self.world.fleet.nodes[node].pool, _values(self.world, node)
        applied = self.world.book.node(node).applied
        moved = [
            path
            for path in paths
            if path in applied and values[path][1] == applied[path].value != values[path][0] and not self.ignored(path)
        ]
        if not moved:
            return
        rollout = self.world.book.rollouts().get(pool)
        if rollout is None:
            self.broken("waves_are_never_overtaken", f"{moved} of {node} changes, and no rollout is on record")
            return
        began = (rollout.started_at - self.world.clock.now()).total_seconds() + self.world.seconds()
        policy = self.world.fleet.rollouts.get(pool, RolloutPolicy())
        bake_s = 0.0 if rollout.rollback else policy.bake_s
        failed = self.world.gate.failed & {*rollout.members}
        for member in self._earlier(node, rollout, policy):
            if member in failed and len(failed) <= policy.max_failures:
                continue  # so many hold nobody up
            if self._disturbed.get(member, -1.0) >= began - DECIDED_S:
                continue  # what it lacks may be by others' doing
            baked_s = self.world.seconds() - self._admitted.get(member, 0.0)
            wrong = unfit(self.world, member)
            if wrong or not self.world.is_serving(member) or baked_s < bake_s - SEEN_S:
                told = wrong or f"which {'serves' if self.world.is_serving(member) else 'does not serve'}"
                self.broken("waves_are_never_overtaken", f"{moved} of {node} before {member}, {told}, for {baked_s} s")

    def _earlier(self, node: str, rollout: Rollout, policy: RolloutPolicy) -> Sequence[str]:
        """Members of the waves before this node's, where nobody left or joined; else the canary alone, if at all."""
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
        """By its GPUs, or by what the kernel has said of them since it booted."""
        state = self.world.machine(name).state
        log = [] if state.os is None else state.os.kernel_log
        return any(_ill(gpu) for gpu in state.gpus) or any("Xid" in line for line in log)

    def _has_hold(self, name: str) -> bool:
        return any(s in self.held or s in self.declared for s in (name, f"pool/{self.world.fleet.nodes[name].pool}"))

    def _before_disruption(self, node: str, what: str) -> None:
        self._touched.add(node)
        self._before_drain(node)
        if self.quiet_s(node) < SEEN_S:
            return  # its node object may just have been deleted, and our mark with it
        work = [pod.name for pod in self.world.kube.pods(node) if pod.evictable]
        if work:
            self.broken("never_disrupt_unquiesced", f"{what} on {node} with {', '.join(work)}")
        if self.world.is_serving(node):
            self.broken("never_disrupt_unquiesced", f"{what} on {node}, which is in service")

    def _before_work(self, node: str, what: str) -> None:
        """What ends the service of a node, or would, begins."""
        machine = self.world.machine(node)
        if self.world.seconds() - self.foreign.get(node, self.world.seconds()) > DECIDED_S:
            self.broken("foreign_cordon_is_kept", f"{what} on {node}, which somebody else cordoned")
        if self.quiet_s(node) < DECIDED_S:
            return
        silent = [kind for kind in ("ssh_refused", "ssh_hang") if machine.fault(kind)]
        if silent and machine.kubelet_ready:
            self.broken("unknown_never_disrupts", f"{what} on {node} while {silent[0]}")

    def _before_mark(self, node: str, evidence: Sequence[str]) -> None:
        """`evidence`: signals on which the node is isolated, whatever budget and windows say."""
        found = self.world.member(node)
        if found is None or not self.world.is_serving(node):
            return
        if node in self._touched and self.world.seconds() - found.created < JOINS_S:
            return  # it has just joined, and was never accepted
        if not self.world.is_ours(node):
            self._touched.discard(node)
        if evidence:
            self._isolated[node] = self.world.seconds()
            return
        # Whoever was let go before an isolation goes all the same.
        new = {name for name, at in self._isolated.items() if self.world.seconds() - at < DECIDED_S}
        out = {name for name in self.world.active() if self._is_known_out(name)}
        self._within_budget(node, (out - new) | {node})
        self._in_window(node, "mark")

    def _before_drain(self, node: str) -> None:
        """What still runs on an isolated node ends: that takes room of the budget, which drained ones leave."""
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
        """Out through us, or through others for long enough to be known."""
        node = self.world.member(name)
        if node is None or self.world.is_serving(name):
            return node is None and self.quiet_s(name) > SEEN_S
        if self.world.is_ours(name):
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
        if not self.world.is_ours(node):
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
        """A run has looked at the whole fleet: what the spec held then is held until somebody lets it go."""
        for subject, since in self.declared.items():
            self.held.setdefault(subject, (since, None))

    def look(self) -> None:
        """What must be so at any time."""
        for name in self.foreign:
            node = self.world.member(name)
            if node is None or not node.unschedulable:
                self.broken("foreign_cordon_is_kept", f"{name} is no longer cordoned")


def _key(limit: BudgetLimit, node: Desired) -> str | None:
    return {"fleet": "", "pool": node.pool}.get(limit.scope, node.domains.get(limit.scope))


def unfit(world: SmallFleet, name: str, *, waves: bool = False) -> str:
    """Why this machine must not serve, told from the machine itself and from the ledger's certificate.

    `waves`: it may still have what it was converged to before, as one whose wave has not begun.
    """
    machine, desired = world.machine(name), world.fleet.nodes[name]
    machine.catch_up()
    if machine.state.os is None or machine.state.booted_disk is None:
        return "no system runs"
    values = _values(world, name)
    applied = world.book.node(name).applied if waves else {}
    wrong = [
        f"{path}={now}"
        for path, (wanted, now) in values.items()
        if now != wanted and not world.referee.ignored(path) and not (path in applied and applied[path].value == now)
    ]
    wrong += [f"GPU {gpu.index} is ill" for gpu in machine.state.gpus if _ill(gpu)]
    acceptance = desired.profile.acceptance
    assert acceptance is not None
    return ", ".join([*wrong, *_unproven(world, name)])


def _ill(gpu: GpuState) -> bool:
    return bool(gpu.lost or gpu.ecc_uncorrectable or gpu.nvlinks_down)


def _values(world: SmallFleet, name: str) -> dict[str, tuple[Any, Any]]:
    """Managed path -> (desired, what the machine has), of a machine that runs."""
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
    """The layout of all GPUs, where they agree."""
    layouts = {
        _layout(Counter(profile for profile, _ in gpu.mig_instances)) if gpu.mig_enabled else "off"
        for gpu in state.gpus
        if not gpu.lost
    }
    return layouts.pop() if len(layouts) == 1 else f"{sorted(layouts)}"


def _unproven(world: SmallFleet, name: str) -> list[str]:
    state, certificate = world.machine(name).state, world.book.node(name).certificate
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


# --- what runs are given ----------------------------------------------------------------------------------------------


class WiredFabric:
    """A Fabric whose ports ask the referee before each call, and tell the fuse after it."""

    def __init__(self, fabric: Fabric, referee: Referee) -> None:
        self._fabric = fabric
        self._referee = referee

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def bmc(self, desired: Desired) -> Any:
        return _Port(self._fabric.bmc(desired), self._referee, "bmc", desired.node)

    def host(self, desired: Desired) -> Any:
        return _Port(self._fabric.host(desired), self._referee, "host", desired.node)

    def cluster(self) -> Any:
        return _Port(self._fabric.cluster(), self._referee, "cluster", "")

    def installer(self) -> Any:
        return _Port(self._fabric.installer(), self._referee, "installer", "")


class _Port:
    def __init__(self, port: Any, referee: Referee, kind: str, node: str) -> None:
        self._port = port
        self._referee = referee
        self._about = (kind, node)

    def __getattr__(self, name: str) -> Any:
        call, referee = getattr(self._port, name), self._referee

        async def watched(*args: Any, **keys: Any) -> Any:
            referee.fuse.check()
            referee.before(*self._about, name, args, keys)
            result = await call(*args, **keys)
            referee.fuse.burn()
            return result

        return watched


class WiredLedger:
    """Who has no power any more writes nothing down."""

    def __init__(self, ledger: Ledger, referee: Referee) -> None:
        self._ledger = ledger
        self._referee = referee

    def __getattr__(self, name: str) -> Any:
        call, referee = getattr(self._ledger, name), self._referee
        if not callable(call):
            return call

        def watched(*args: Any, **keys: Any) -> Any:
            referee.fuse.check()
            result = call(*args, **keys)
            if name != "batch":  # the fuse would blow before there is anything to roll back
                referee.fuse.burn()
            return result

        return watched
