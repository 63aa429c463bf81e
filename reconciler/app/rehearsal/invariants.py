"""Checks of invariants during a rehearsal, on the true state of the lab and not by the code that is rehearsed.

budget_never_exceeded · never_disrupt_unquiesced · never_admit_without_gate_and_trust · held_node_is_never_disrupted ·
foreign_cordon_is_kept · crash_anywhere_converges, of which here: no destructive action is done twice (DESIGN 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.converge.events import ActionFinished, ActionStarted, Event, NodeSettled
from reconciler.lab.fleet import Lab
from reconciler.lab.hardware.control_plane import NodeObject
from reconciler.model.desired import BudgetLimit, Desired, Fleet, Floor
from reconciler.model.gate import Verdict
from reconciler.model.outcome import Done
from reconciler.model.plan import PlannedAction
from reconciler.model.ports import Clock, Ledger
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, is_spare, read_mark
from reconciler.model.rehearsal import BrokenInvariant, PeakOut
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption, NodeState, Reason
from reconciler.planner.fleet.hours import cover
from reconciler.planner.node.actions import spec_of

Reasons = Mapping[str, Collection[Reason]]  # node -> why it may be taken out


@dataclass(slots=True)
class _LimitCount:
    """One limit on a set of nodes, which of them are out of service, and when each was taken out."""

    name: str
    limit: int
    members: frozenset[str]
    rule: BudgetLimit | None = None  # None: a floor, or the default
    out: set[str] = field(default_factory=set)
    taken: list[datetime] = field(default_factory=list)  # when nodes were taken out
    at_start: int = 0
    peak: int = 0

    def applies(self, reasons: Collection[Reason], now: datetime) -> bool:
        rule = self.rule
        if rule is None:
            return True
        return (not rule.reasons or bool(set(rule.reasons) & set(reasons))) and (
            rule.during is None or cover(rule.during, now)
        )

    def used(self, now: datetime) -> int:
        if self.rule is None or self.rule.per_s is None:
            return len(self.out)
        since = now - timedelta(seconds=self.rule.per_s)
        return sum(at > since for at in self.taken)


def _limit_counts(fleet: Fleet) -> list[_LimitCount]:
    """Return the limits of the spec. They are counted independently of the planner's budget."""
    active = {name: node for name, node in fleet.nodes.items() if node.state is NodeState.ACTIVE}
    found = []
    for rule in fleet.settings.budgets or (BudgetLimit("fleet", "1"),):
        groups: dict[str, list[str]] = {}
        for name, node in active.items():
            value = _value(rule, node)
            if value is not None:
                groups.setdefault(value, []).append(name)
        for value, names in sorted(groups.items()):
            text = f"{rule.scope} {value}".strip()
            found.append(_LimitCount(text, parse_nodes(rule.nodes, len(names)), frozenset(names), rule))
    return [*found, *(_floor(floor, active) for floor in fleet.settings.floors)]


def _value(rule: BudgetLimit, node: Desired) -> str | None:
    return {"fleet": "", "pool": node.pool}.get(rule.scope, node.domains.get(rule.scope))


def _floor(floor: Floor, active: Mapping[str, Desired]) -> _LimitCount:
    names = frozenset(name for name, node in active.items() if node.persona == floor.persona)
    spare = max(len(names) - parse_nodes(floor.nodes, len(names)), 0)
    return _LimitCount(f"persona {floor.persona}", spare, names)


class InvariantChecks:
    """A Progress that checks invariants, from every change of a node object and every event of the run.

    `held`: node -> when its hold ends, None for one without an end. `broken` collects the violations.
    """

    def __init__(
        self, fleet: Fleet, lab: Lab, ledger: Ledger, clock: Clock, *,
        reasons: Reasons, held: Mapping[str, datetime | None], seed: int,
    ) -> None:  # fmt: skip
        self.broken: list[BrokenInvariant] = []
        self.most_out = 0
        self._fleet, self._lab, self._ledger, self._clock, self._seed = fleet, lab, ledger, clock, seed
        self._reasons, self._held = reasons, held
        self._counts = _limit_counts(fleet)
        self._of: dict[str, list[_LimitCount]] = {
            n: [] for n, node in fleet.nodes.items() if node.state is NodeState.ACTIVE
        }
        for count in self._counts:
            for name in count.members:
                self._of[name].append(count)
        self._out: set[str] = set()
        self._cordons: set[str] = set()
        self._killed = {name: machine.state.counters.killed_work for name, machine in lab.machines.items()}
        self._destroyed: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
        self._changed_at: dict[str, datetime] = {}
        self._doing: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        cluster = self._lab.cluster
        if cluster is None:
            serving = {name for name, machine in self._lab.machines.items() if machine.ssh_up}
        else:
            serving = cluster.in_service()
            cordoned = (node for node in cluster.nodes() if node.unschedulable)
            self._cordons = {node.name for node in cordoned if OWNER_ANNOTATION not in node.annotations}
            cluster.watcher = self.note
        for name in self._of.keys() - serving:
            self._leaves(name)
        for count in self._counts:
            count.at_start = len(count.out)

    # --- who is out ---

    def _leaves(self, name: str) -> None:
        self._out.add(name)
        for count in self._of[name]:
            count.out.add(name)
            count.peak = max(count.peak, len(count.out))
        self.most_out = max(self.most_out, len(self._out))

    def _returns(self, name: str) -> None:
        self._out.discard(name)
        for count in self._of[name]:
            count.out.discard(name)

    def note(self, node: NodeObject, serves: bool) -> None:
        """Check a change of a node object. `serves`: whether it takes work now."""
        if node.name in self._cordons and not node.unschedulable:
            self._break("foreign_cordon_is_kept", node.name, "somebody else's cordon is gone")
            self._cordons.discard(node.name)
        if node.name not in self._of:
            return
        if serves or is_spare(read_mark(node.annotations.get(OWNER_ANNOTATION)), self._fleet.nodes[node.name].persona):
            self._returns(node.name)
        elif node.name not in self._out:
            self._leaves(node.name)
            # A joining host registers itself schedulable and is marked at once: that is no new disruption.
            if self._doing.get(node.name) != "join" and any(taint.key == MARK_TAINT for taint in node.taints):
                self._taken_out(node.name)

    def _taken_out(self, name: str) -> None:
        """Check that every applicable limit had room for the node that the reconciler takes out now."""
        now, why = self._clock.now(), set(self._reasons.get(name, Reason))
        covered: set[Reason] = set()
        for count in self._of[name]:
            count.taken.append(now)
            if not count.applies(why, now):
                continue
            if count.rule is not None and count.rule.per_s is None:
                covered |= set(count.rule.reasons or Reason)
            self._fits(name, count.name, count.used(now), count.limit)
        if not why <= covered:
            self._fits(name, "fleet by default", len(self._out), 1)

    def _fits(self, name: str, subject: str, used: int, limit: int) -> None:
        if used > limit:
            detail = f"taken out as number {used} under the limit of {subject}, which is {limit}"
            self._break("budget_never_exceeded", name, detail)

    # --- what is done ---

    def __call__(self, event: Event) -> None:
        match event:
            case ActionStarted(node, action):
                self._starts(node, action)
            case ActionFinished(node, action, Done(changed=changed), _):
                self._did(node, action, changed=changed)
            case NodeSettled(node, _, _) if self._lab.cluster is None and node in self._of:
                self._returns(node)
            case _:
                pass

    def _starts(self, name: str, action: PlannedAction) -> None:
        self._doing[name] = action.name
        if name in self._held and not _over(self._held[name], self._clock.now()):
            self._break("held_node_is_never_disrupted", name, f"{action.id} was started on a held node")
        alone = self._lab.cluster is None and name in self._of  # without a cluster, the first disruption takes it out
        if alone and action.disruption >= Disruption.DRAIN and name not in self._out:
            self._leaves(name)
            self._taken_out(name)
        if action.disruption >= Disruption.REBOOT and self._works(name):
            self._break("never_disrupt_unquiesced", name, f"{action.id} was started with work on the node")

    def _works(self, name: str) -> bool:
        cluster = self._lab.cluster
        drained = self._fleet.nodes[name].profile.drain.provider.asks_cluster
        return drained and cluster is not None and cluster.has_work(name)

    def _did(self, name: str, action: PlannedAction, *, changed: bool) -> None:
        now = self._clock.now()
        overwritten = changed and spec_of(action.name).overwrites
        if overwritten:
            self._changed_at[name] = now
        if overwritten and "treated" not in action.achieves:
            self._destroyed[name, action.id, action.because] += 1
            if self._destroyed[name, action.id, action.because] > 1:
                why = ", ".join(action.because)
                self._break("crash_anywhere_converges", name, f"{action.id} was done twice, for {why}")
        if action.name == "admit":
            self._admitted(name)

    def _admitted(self, name: str) -> None:
        if self._fleet.nodes[name].profile.acceptance is None:
            return
        certificate = self._ledger.node(name).certificate
        why = ""
        if certificate is None:
            why = "without a certificate"
        elif not certificate.adopted and any(result.verdict is not Verdict.PASS for result in certificate.results):
            why = "with a test that was not passed"
        elif name in self._changed_at and certificate.issued_at < self._changed_at[name]:
            why = "with a certificate from before it was changed"
        else:
            machine = self._lab.machines[name]
            disk = machine.state.disks.get(machine.state.booted_disk or "")
            if disk is not None and certificate.binding.image_sha256 not in ("", disk.sha256):
                why = "with a certificate for another image"
        if why:
            self._break("never_admit_without_gate_and_trust", name, f"admitted {why}")

    # --- the end ---

    def end(self) -> None:
        for name, machine in self._lab.machines.items():
            drained = self._fleet.nodes[name].profile.drain.provider.asks_cluster
            if drained and machine.state.counters.killed_work > self._killed[name]:
                self._break("never_disrupt_unquiesced", name, "its system went down under pods that nobody had evicted")

    def peaks(self) -> list[PeakOut]:
        lines = [count for count in self._counts if count.rule is None or count.rule.per_s is None]
        return [PeakOut(count.name, count.limit, len(count.members), count.at_start, count.peak) for count in lines]

    def _break(self, invariant: str, node: str, evidence: str) -> None:
        self.broken.append(BrokenInvariant(invariant, node, evidence, self._clock.now(), self._seed))


def _over(until: datetime | None, now: datetime) -> bool:
    return until is not None and until <= now
