"""The disruption budget: which nodes may be taken out of service now, counted in whole nodes.

It is charged when an action takes a node out of service. Nodes that are out already, whoever took them out, use it up.
Every limit that covers the node now, and holds for a reason that it is taken out for, must have room: those that the
fleet declares, the floor of its persona, the quorum of the control plane. What no declared limit covers falls under the
default, one node of the fleet: nothing is ever unlimited (conventions Y6).

Invariant: a node is admitted by `allows` only while every such limit has room, and `charge` records it at once, so that
no prefix of any sequence of charges exceeds a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from reconciler.model.desired import BudgetLimit, Desired, Floor, Hours, Reserve
from reconciler.model.plan import BlockCode, Blocked, BudgetLine
from reconciler.model.units import format_duration, parse_nodes
from reconciler.model.vocab import NodeState, Reason
from reconciler.planner.fleet import hours
from reconciler.planner.fleet.budget_group import ANY, Group, floor_group, in_order
from reconciler.planner.fleet.carried import PLACED, WORKLOAD, counted
from reconciler.planner.fleet.serving_groups import serving_limits
from reconciler.planner.fleet.taken_out import TimesTakenOut

DEFAULT = BudgetLimit("fleet", "1")


class Budget:
    """The limits on some nodes, and what uses them up. Every node is in service until `see` says otherwise.

    `taken`: when nodes were taken out of service, for rates.
    """

    def __init__(
        self,
        limits: Sequence[BudgetLimit],
        nodes: Mapping[str, Desired],
        now: datetime,
        floors: Sequence[Floor] = (),
        taken: TimesTakenOut | None = None,
        reserves: Sequence[Reserve] = (),
    ) -> None:
        active = {name: node for name, node in nodes.items() if node.state is NodeState.ACTIVE}
        self._now = now
        self._unknown: set[str] = set()
        self._out: set[str] = set()
        self._isolated: set[str] = set()  # of those out, the ones that are cordoned and not drained yet
        self._stuck: set[str] = set()  # of those out, the ones that nothing but a person brings back
        self._of: dict[str, list[Group]] = {name: [] for name in active}
        self._groups: list[Group] = []
        self._carried: dict[str, frozenset[str]] = {}
        self._per_workload = [*(limit for limit in limits if limit.scope == WORKLOAD), PLACED]
        self._of_workload: dict[tuple[int, str], Group] = {}  # by number of the limit, and the workload
        for limit in limits or (DEFAULT,):
            self._limit(limit, active, taken or {}, limit.during is None or hours.cover(limit.during, now))
        words = ("budget of fleet by default is used up", "out")
        self._spare = Group("fleet by default", 1, len(active), "1, for what no other limit covers", words)
        self._groups.append(self._spare)
        self._timed = any(group.during is not None or group.period is not None for group in self._groups)
        self._default = self._default_now()
        for floor in floors:
            members = [name for name, node in active.items() if node.persona == floor.persona]
            self._add(floor_group(floor, len(members), reserves), members)
        self._unrestored: set[str] = set()  # nodes in service that their serving group was not told to serve with
        self._serving: dict[str, Group] = {}  # by node
        self._leaving: dict[str, list[Group]] = {}  # of nodes to be decommissioned: their serving group alone
        for one, members in serving_limits(nodes, now):
            self._serving |= dict.fromkeys(members, one)
            self._leaving |= {name: [one] for name in members if name not in active}
            self._add(one, [name for name in members if name in active])
        self._members: Mapping[str, bool] = {}
        self._elected: Group | None = None
        for group in self._groups:
            group.stuck = self._stuck

    # --- changes: each is told, and nothing is counted anew ---------------------------------------------------------

    def move_to(self, now: datetime) -> None:
        """Take in that time has passed: hours begin and end, and rates forget."""
        self._now = now
        if not self._timed:
            return
        current = {
            during: hours.cover(during, now) for during in {g.during for g in self._groups if g.during is not None}
        }
        for group in self._groups:
            if group.during is not None:
                group.active = current[group.during]
            if group.period is not None:
                group.forget(now - group.period)
        self._default = self._default_now()

    def see(self, node: str, serves: bool | None) -> None:
        """Take in whether a node is in service; None: that can't be read, so it counts as out and is left alone."""
        if node not in self._of and node not in self._leaving:
            return
        if serves is None:
            self._unknown.add(node)
        else:
            self._unknown.discard(node)
        if serves and node in self._out:
            self._count_in(node)
        elif not serves and node not in self._out:
            self._count_out(node)

    def see_workloads(self, node: str, workloads: frozenset[str]) -> None:
        """Take in which workloads a node carries, or carried when it was taken out: see `carried`."""
        before = self._carried.get(node, frozenset())
        if node not in self._of or workloads == before:
            return
        self._carried[node] = workloads
        for at, limit in enumerate(self._per_workload):
            had, has = counted(limit, before), counted(limit, workloads)
            for name in had - has:
                group = self._of_workload[at, name]
                group.free(node)
                group.total -= 1
                self._of[node].remove(group)
            for name in has - had:
                group = self._of_workload.get((at, name)) or self._new_workload(at, limit, name)
                group.total += 1
                self._of[node].append(group)
                if node in self._out:
                    group.use(node, self._now)
                if node in self._isolated:
                    group.isolated.add(node)

    def _new_workload(self, at: int, limit: BudgetLimit, name: str) -> Group:
        words = (f"budget of {name} is used up", "out")
        reasons = frozenset(limit.reasons) or ANY
        group = self._of_workload[at, name] = Group(f"{WORKLOAD} {name}", int(limit.nodes), 0, "", words, reasons)
        group.stuck = self._stuck
        return group

    def see_stuck(self, node: str, stuck: bool) -> None:
        """Take in whether nothing but a person brings a node back into service, which refusals then say."""
        if stuck is (node in self._stuck):
            return
        (self._stuck.add if stuck else self._stuck.discard)(node)
        for group in self.groups(node):
            group.full = None

    def see_restored(self, node: str, restored: bool) -> None:
        """Take in whether the serving group of a node was told to serve with it; until then it is away from that."""
        group = self._serving.get(node)
        (self._unrestored.discard if restored else self._unrestored.add)(node)
        if group is not None and not restored:
            group.use(node, self._now)
            if node not in self._out:
                group.come_back(node)
        elif group is not None and node not in self._out:
            group.free(node)

    def see_control_plane(self, members: Mapping[str, bool], *, downtime: bool = False, quorum: bool = True) -> None:
        """Take in all members of the cluster's control plane -> Ready. `downtime`: the only one may go, too.

        `quorum`: they keep the state, so that more than half of them have to stay; otherwise one is enough.
        """
        if self._elected is not None and members == self._members:
            return
        if self._elected is not None:
            self._groups.remove(self._elected)
            for name in self._members.keys() & self._of.keys():
                self._of[name].remove(self._elected)
        self._members, self._elected = dict(members), None
        self._quorum(members, 0 if downtime else len(members) // 2 + 1 if quorum else 1)

    def _default_now(self) -> Group | None:
        covered: set[Reason] = set()
        for group in self._groups:
            if group.active and group.declared and group.everywhere:
                covered |= group.reasons
        return self._spare if self._of and covered < ANY else None

    # --- groups of nodes -----------------------------------------------------------------------------------------

    def _add(self, group: Group, members: Iterable[str]) -> None:
        self._groups.append(group)
        for name in members:
            self._of[name].append(group)

    def _limit(self, limit: BudgetLimit, active: Mapping[str, Desired], taken: TimesTakenOut, current: bool) -> None:
        members: dict[str, list[str]] = {}
        for name, node in active.items() if limit.scope != WORKLOAD else ():
            domain = "" if limit.scope == "fleet" else node.domains.get(limit.scope)
            key = node.pool if limit.scope == "pool" else domain
            if key is not None:
                members.setdefault(key, []).append(name)
        reasons, period, counted, per = frozenset(limit.reasons) or ANY, None, "out", ""
        if limit.per_s is not None:
            period = timedelta(seconds=limit.per_s)
            counted, per = f"taken out within {format_duration(limit.per_s)}", f" per {format_duration(limit.per_s)}"
        only = "" if reasons == ANY else f" for {', '.join(in_order(reasons))}"
        for key in sorted(members):
            count = parse_nodes(limit.nodes, total := len(members[key]))
            shown = f"{limit.nodes} of {total} = {count}" if limit.nodes.endswith("%") else limit.nodes
            name = f"{limit.scope} {key}".strip()
            words = (f"budget of {name}{only} is used up", counted)
            group = Group(
                name, count, total, shown + per, words, reasons, period, current,
                declared=period is None, everywhere=limit.scope in ("fleet", "pool"), during=limit.during,
            )  # fmt: skip
            if period is not None:
                since = self._now - period
                group.taken = [(at, name) for name in members[key] for at in taken.get(name, ()) if at > since]
            self._add(group, members[key])

    def _quorum(self, members: Mapping[str, bool], quorum: int) -> None:
        """Limit members so that a quorum stays ready (pitfall H8). Members outside the fleet count too."""
        ours = [name for name in members if name in self._of]
        if not ours:
            return
        total = len(members)
        words = (f"{quorum} of {total} control-plane members must stay ready", "others out")
        rule = f"{total} - quorum of {quorum} = {total - quorum}"
        away = {name for name, ready in members.items() if not ready} | (self._out & set(ours))
        used = dict.fromkeys(sorted(away), self._now)
        self._elected = Group("control plane", total - quorum, total, rule, words, used=used)
        self._elected.stuck = self._stuck
        self._elected.isolated = self._isolated & used.keys()
        self._add(self._elected, ours)

    # --- questions -----------------------------------------------------------------------------------------------

    def is_out(self, node: str) -> bool:
        return node in self._out

    def away_from_group(self, node: str) -> tuple[str, ...]:
        """Return the other nodes of its serving group that are out of service, or that can't be read."""
        used = self._serving[node].used.keys() - {node} if node in self._serving else ()
        return tuple(sorted(name for name in used if name in self._out or name not in self._serving))

    def carried(self, node: str) -> frozenset[str]:
        """Return the workloads of a node."""
        return self._carried.get(node, frozenset())

    def is_isolated(self, node: str) -> bool:
        """Return whether the node is out of service and not drained: to drain it takes room."""
        return node in self._isolated

    @property
    def out(self) -> Collection[str]:
        """The nodes out of service, including those charged since."""
        return self._out

    @property
    def seen_out(self) -> int:
        """How many nodes are out of service, without those that count as out since nobody can read them."""
        return len(self._out - self._unknown - self._leaving.keys())

    def unreadable(self, node: str) -> bool:
        """Return whether it can't be read if the node is in service: then it may not be touched."""
        return node in self._unknown

    def groups(self, node: str) -> Sequence[Group]:
        """Return all limits that `node` counts in, also those that do not hold at this hour."""
        return (*self._about(node), self._spare)

    def _about(self, node: str) -> Sequence[Group]:
        return self._of[node] if node in self._of else self._leaving.get(node, ())

    @property
    def rates(self) -> Sequence[Group]:
        return [group for group in self._groups if group.period is not None]

    @property
    def hours(self) -> Collection[Hours]:
        """Recurring hours outside of which some limit does not hold."""
        return {group.during for group in self._groups if group.during is not None}

    def kind(self, node: str) -> Hashable:
        """Return a key of the limits on a node. Nodes with equal keys get equal answers, but for `special` ones."""
        return tuple(map(id, self._about(node)))

    def special(self) -> set[str]:
        """Return the nodes that are out or can't be read, which get answers of their own."""
        return set(self._out)

    def allows(self, node: str, reasons: Collection[Reason] = ANY) -> Blocked | None:
        """Return why `node` may not be taken out of service now; None = it may. A node that is out already may."""
        if node in self._unknown:
            return Blocked(BlockCode.BUDGET, "whether it is in service can't be read: the budget is zero")
        if node in self._out and node not in self._isolated:
            return None
        group = self.used_up(node, self.limits(node, reasons))
        return None if group is None else group.refusal()

    def used_up(self, node: str, limits: Iterable[Group]) -> Group | None:
        """Return the first of these limits that has no room for `node`."""
        for limit in limits:
            # A rate counted an isolated node when it was marked.
            if not limit.has_room(node) and (limit.period is None or node not in self._isolated):
                return limit
        return None

    def queue(self, node: str, reasons: Collection[Reason] = ANY) -> int:
        """Queue `node` behind those that wait already, and return the number of the batch in which it may go."""
        batch = 1
        for group in self.limits(node, reasons):
            batch = max(batch, 1 + group.queued // max(1, group.limit))
            group.queued += 1
        return batch

    def limits(self, node: str, reasons: Collection[Reason]) -> list[Group]:
        """Return the limits that hold at this hour for taking `node` out for these reasons."""
        found = [group for group in self._about(node) if group.active and not group.reasons.isdisjoint(reasons)]
        if self._default is not None:
            covered: frozenset[Reason] = frozenset().union(*(group.reasons for group in found if group.declared))
            if not covered.issuperset(reasons):
                found.append(self._default)
        return found

    def lines(self) -> tuple[BudgetLine, ...]:
        shown = (group for group in self._groups if group is not self._spare or self._default is not None)
        return (*(group.line() for group in shown), *self._workload_lines())

    def _workload_lines(self) -> Iterator[BudgetLine]:
        """Yield one line for each such limit: names of workloads are their owners' own."""
        for at, limit in enumerate(self._per_workload):
            groups = [group for (number, _), group in self._of_workload.items() if number == at]
            out = tuple(sorted({node for group in groups for node in group.used}))
            if limit is PLACED and not groups:
                continue
            scope = f"each {WORKLOAD}{' that Kueue placed by topology' if limit is PLACED else ''}"
            rule = f"{limit.nodes} of the nodes of each workload; {len(groups)} run"
            yield BudgetLine(scope, int(limit.nodes), len(self._carried), out, rule, limit.reasons)

    # --- charges -------------------------------------------------------------------------------------------------

    def charge(self, node: str, at: datetime | None = None) -> None:
        """Count `node` as taken out of service now, or `at`. Charging twice counts once."""
        isolated = node in self._isolated
        if node not in self._out or isolated:
            self._drain(node)
            self._count_out(node)
            self._spare.use(node, self._now)
            for group in self._of.get(node, ()):
                if group.period is not None and not isolated:
                    group.use(node, at or self._now)

    def restore(self, node: str) -> None:
        """Count `node` as back in service and, if it is in the control plane, as ready."""
        if node in self._members:
            self._members = {**self._members, node: True}
        if node in self._out:
            self._count_in(node)

    def isolate(self, node: str) -> None:
        """Take in that `node` is out by a mark only, and has not been drained."""
        if node not in self._out:
            return
        self._isolated.add(node)
        for group in self.groups(node):
            if node in group.used and group.period is None:
                group.isolated.add(node)
                group.full = None

    def _drain(self, node: str) -> None:
        if node not in self._isolated:
            return
        self._isolated.discard(node)
        for group in self.groups(node):
            group.isolated.discard(node)
            group.full = None

    def _count_out(self, node: str) -> None:
        self._out.add(node)
        for group in self._about(node):
            if group.period is None:
                group.use(node, self._now)
        if node not in self._leaving:
            self._spare.use(node, self._now)

    def _count_in(self, node: str) -> None:
        self._out.discard(node)
        self._drain(node)
        for group in self._about(node):
            if node in self._unrestored and group is self._serving.get(node):
                group.come_back(node)
            elif group.period is None and not (group is self._elected and self._members.get(node) is False):
                group.free(node)
        self._spare.free(node)

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """Undo on exit what is charged inside."""
        out, rates = set(self._out), [(g, list(g.taken)) for g in self._groups if g.period is not None]
        isolated = set(self._isolated)
        try:
            yield
        finally:
            for node in self._out - out:
                self._count_in(node)
            for node in isolated - self._isolated:
                self.isolate(node)
            for group, taken in rates:
                group.taken, group.full = taken, None
