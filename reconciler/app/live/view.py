"""`LiveFleet`: the latest pass, what is done now, and what the ledger remembers, for the API of `run`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.app.live.activity import Activity
from reconciler.app.live.forge_links import SpecPages
from reconciler.app.live.lines import (
    difference,
    explained,
    feed_entry,
    node_line,
    pool_lines,
    value_lines,
    version_lines,
)
from reconciler.app.live.past import LivePast
from reconciler.app.live.versions import LineVersions
from reconciler.app.status import holders, overview_of, with_work
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.converge.events import Event, Progress
from reconciler.converge.node_approvals import NodeApprovals
from reconciler.drivers.git import origins, requests
from reconciler.drivers.status import PrometheusMetrics
from reconciler.model.desired import Fleet
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.live import (
    Approvable,
    Approvals,
    Changes,
    CurrentRun,
    DayHours,
    FeedEntry,
    NodeDetail,
    NodeLine,
    NoSuchNode,
    NotReady,
    PoolLine,
    RolloutPast,
    VersionLine,
)
from reconciler.model.observed import Observation
from reconciler.model.plan import Incident, Plan, RolloutPlan
from reconciler.model.records import Hold, JournalEntry
from reconciler.model.spread import Spreads
from reconciler.model.status import FleetStatus, Role
from reconciler.model.vocab import DriftMode
from reconciler.planner.node.holds import is_active
from reconciler.render.explanation import Explanation, values

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

_HISTORY = 60  # entries of a node with its details
_NO_PASS = "this process has not read the fleet yet"


@dataclass(frozen=True, eq=False)
class _Pass:
    """A pass over the fleet, and what is made of it once, when somebody asks."""

    workspace: Workspace  # of the spec that was in force
    ledger: SqlLedger
    fleet: Fleet
    plan: Plan
    seen: Observation
    number: int  # of the pass in this process

    @cached_property
    def explanation(self) -> Explanation:
        """Return what explains any of the nodes; the name in it is a placeholder."""
        return Explanation(
            self.fleet, "", "", self.workspace.clock.now(), observation=self.seen, plan=self.plan,
            time_scale=self.plan.time_scale,
        )  # fmt: skip

    @cached_property
    def overview(self) -> FleetOverview:
        return overview_of(self.workspace, self.ledger, self.plan, self.seen)

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """Return the number of the pull request that brought each commit of the spec."""
        source = self.fleet.source
        return requests(source) if Path(source.directory).is_dir() else {}

    @cached_property
    def versions(self) -> tuple[VersionLine, ...]:
        return tuple(version_lines(self.plan, self.explanation, self.seen))


class LiveFleet:
    """The live view. The loop tells it of passes and events; the API reads it from other threads.

    `approved`: what people have approved; the loop takes it in. `web`: where people read the spec's repository, "" =
    unknown. `changed` is called, from the loop's thread, when there is news.
    """

    def __init__(
        self,
        workspace: Workspace,
        metrics: PrometheusMetrics,
        web: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._workspace = workspace
        self._metrics = metrics
        self._web = web
        self._ledger: SqlLedger | None = None
        self._pass: _Pass | None = None
        # Of a pass, and the statuses that it led to: five thousand lines take a tenth of a second.
        self._lines: tuple[_Pass | None, FleetStatus | None, Mapping[str, NodeLine]] = (None, None, {})
        self._versions = LineVersions()
        self._passes = 0
        self._past = LivePast(workspace.clock.now)
        self._lock = threading.Lock()  # what is made of a pass is made once, however many ask
        self._lines_lock = threading.Lock()  # apart: who asks what has changed waits for no table
        self._activity = Activity(workspace.clock.now)
        self.approved = NodeApprovals()
        self.changed = changed
        metrics.status_changed = self._told
        self.run = ""

    # --- told by the loop ---

    def _told(self) -> None:
        self.changed()

    def follow(self, progress: Progress) -> Progress:
        """Return a Progress that tells this view, too."""

        def tell(event: Event) -> None:
            if self._activity.tell(event):
                self.changed()
            progress(event)

        return tell

    def opened(self, ledger: SqlLedger) -> None:
        """Read from this ledger from now on. Its connections are used from several threads."""
        self._ledger = ledger

    def saw(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """Take a pass. Its end is told by the loop's status, which follows when its metrics are set."""
        if self._ledger is None:
            return
        workspace = Workspace(self._workspace.request)
        workspace.fleet = fleet
        workspace.selection = list(plan.nodes), plan.scope
        workspace.clock = self._workspace.clock
        if (before := self._metrics.fleet) is not None:
            self._activity.forget(before.ended_at)
        self._passes += 1
        self._pass = _Pass(workspace, self._ledger, fleet, plan, observation, self._passes)

    # --- read by the API ---

    def overview(self) -> FleetOverview:
        found = self._latest()
        with self._lock:
            made = found.overview
        return with_work(found.workspace, made)

    def current_run(self) -> CurrentRun:
        status, found, now = self._metrics.status, self._pass, self._workspace.clock.now()
        if status.role is not Role.LEADER:
            self._activity.clear()
            found = None
        plan = None if found is None else found.plan
        work = self._activity.at_work(plan, self._far())
        mode = "" if found is None else found.fleet.settings.drift_mode.value
        waiting = 0 if plan is None else sum(one.changes for one in plan.nodes.values()) - len(work)
        return CurrentRun(
            fleet="" if plan is None else plan.fleet,
            run=self.run if status.role is Role.LEADER else "",
            role=status.role,
            holders=() if self._ledger is None else holders(self._workspace, self._ledger),
            why_not_ready=status.unready(now),
            drift_mode=mode,
            spec_commit=status.spec_commit,
            spec_head=status.spec_head,
            spec_trouble=status.spec_trouble,
            spec_url=SpecPages.of(self._web, None if found is None else found.fleet).commit(status.spec_commit),
            last_pass=status.last_pass,
            now=now,
            stopped=status.stopped,
            time_scale=status.time_scale,
            at_work=work,
            waiting=max(waiting, 0),
        )

    def pools(self) -> Sequence[PoolLine]:
        found = self._latest()
        with self._lock:
            versions = found.versions
        return pool_lines(self.nodes(), versions)

    def nodes(self) -> Sequence[NodeLine]:
        found, status = self._latest(), self._metrics.fleet
        with self._lines_lock:
            known = self._known(found, status)
        return list(self._with_work(found, known).values())

    def changes(self, since: str) -> Changes:
        run = self.current_run()
        try:
            found, status = self._latest(), self._metrics.fleet
        except NotReady:
            return Changes("", whole=True, planned="", run=run, nodes=(), gone=())
        with self._lines_lock:
            self._versions.take(self._with_work(found, self._known(found, status)))
            news = self._versions.since(since)
        # The pass is told before the statuses that it led to: the lines of both are another state than those of one.
        planned = f"{found.number}-{'' if status is None else status.ended_at.isoformat()}"
        return Changes(news.version, news.whole, planned, run, news.lines, news.gone)

    def node(self, name: str) -> NodeDetail:
        found, far = self._latest(), self._far()
        if name not in found.plan.nodes:
            raise NoSuchNode(f"fleet {found.plan.fleet} has no node {name!r}")
        record, holds = found.ledger.node(name), tuple(found.ledger.holds())
        made = explained(found.explanation, name, far.get(name, ""))
        made = _with_records(made, found, name, holds)
        plan = found.plan.nodes[name]
        with self._lock:
            brought = found.requests
        lines = value_lines(made, SpecPages.of(self._web, found.fleet), brought)
        work = self._activity.at_work(found.plan, far)
        return NodeDetail(
            line=self._line(found, name, far.get(name, ""), self._activity.nodes()),
            at_work=next((one for one in work if one.node == name), None),
            incomplete=plan.incomplete,
            difference=difference(lines),
            values=tuple(lines),
            drift=plan.drift,
            actions=plan.actions,
            start=plan.start,
            end=plan.end,
            certificate=record.certificate,
            holds=tuple(one for one in holds if one.subject in (name, f"pool/{plan.pool}")),
            history=tuple(self.history(name, _HISTORY)),
        )

    def history(self, name: str, last: int) -> Sequence[JournalEntry]:
        found = self._latest()
        if name not in found.plan.nodes:
            raise NoSuchNode(f"fleet {found.plan.fleet} has no node {name!r}")
        return found.ledger.history(name, last, pool=found.plan.nodes[name].pool)

    def events(self, after: int | None, limit: int) -> Sequence[FeedEntry]:
        return [feed_entry(number, entry) for number, entry in self._read().feed(after, limit)]

    def incidents(self) -> Sequence[Incident]:
        return self._latest().plan.incidents

    def rollouts(self) -> Sequence[RolloutPlan]:
        return self._latest().plan.rollouts

    def rollouts_past(self) -> Sequence[RolloutPast]:
        found = self._latest()
        return self._past.rollouts(found.ledger, found.plan)

    def measured(self) -> Spreads:
        found = self._latest()
        return self._past.measured(found.ledger, found.fleet, found.plan)

    def availability(self, days: int) -> Sequence[DayHours]:
        found = self._latest()
        return self._past.availability(found.ledger, found.fleet, days)

    def approvals(self) -> Approvals:
        found = self._latest()
        mode, plan = found.fleet.settings.drift_mode, found.plan
        begun = self._begun(plan)
        wait = [one for one in plan.nodes.values() if one.changes and one.node not in begun]
        return Approvals(
            plan.fingerprint, mode.value,
            tuple(
                Approvable(
                    one.node, one.fingerprint, one.disruption.label, tuple(action.id for action in one.actions),
                    "" if one.blocked is None else one.blocked.detail,
                    self.approved.by(one.node, one.fingerprint),
                )
                for one in (() if mode is DriftMode.CORRECT else wait)
            ),
        )  # fmt: skip

    def holds(self) -> Sequence[Hold]:
        now = self._workspace.clock.now()
        return [one for one in self._read().holds() if is_active(one, now)]

    def workspace(self) -> Workspace:
        """Return the workspace of the spec of the latest pass. Raise NotReady."""
        return self._latest().workspace

    def plan(self) -> Plan:
        """Return the plan of the latest pass. Raise NotReady."""
        return self._latest().plan

    # --- inside ---

    def _known(self, found: _Pass, status: FleetStatus | None) -> Mapping[str, NodeLine]:
        """Return the lines of a pass by node, made once. The caller holds the lock of lines."""
        if self._lines[0] is not found or self._lines[1] is not status:
            lines = {name: self._kept_line(found, status, name) for name in found.plan.nodes}
            self._lines = found, status, lines
        return self._lines[2]

    def _kept_line(self, found: _Pass, status: FleetStatus | None, name: str) -> NodeLine:
        """Return the line of a node, that of the pass before where all that it is made of is the same."""
        before, old_status, known = self._lines
        if before is None or name not in known or not _alike(before, found):
            return self._line(found, name, "", frozenset())
        report = None if status is None else status.nodes.get(name)
        old_report = None if old_status is None else old_status.nodes.get(name)
        same = before.plan.nodes[name] is found.plan.nodes[name] and before.fleet.nodes[name] is found.fleet.nodes[name]
        return known[name] if same and report == old_report else self._line(found, name, "", frozenset())

    def _with_work(self, found: _Pass, known: Mapping[str, NodeLine]) -> Mapping[str, NodeLine]:
        """Return the lines, made anew for nodes that something is or was done to by now."""
        far, acting = self._far(), self._activity.nodes()
        others = {*far, *acting, *self._activity.turned()} & known.keys()
        return {**known, **{name: self._line(found, name, far.get(name, ""), acting) for name in others}}

    def _line(self, found: _Pass, name: str, far: str, acting: frozenset[str]) -> NodeLine:
        turned = self._activity.turned().get(name)
        said = far or (self._activity.words().get(name, "") if name in acting else "")
        return node_line(explained(found.explanation, name, said), self._metrics.fleet, acting, turned)

    def _begun(self, plan: Plan) -> frozenset[str]:
        """Return the nodes at work, and those that were since this plan, which says no more what they need."""
        turned = {node for node, at in self._activity.turned().items() if at >= plan.created_at}
        return frozenset(turned | self._far().keys() | self._activity.nodes())

    def _read(self) -> SqlLedger:
        if self._ledger is None:
            raise NotReady(f"{_NO_PASS}: it has no spec yet, so nobody knows which ledger is its own")
        return self._ledger

    def _latest(self) -> _Pass:
        ledger = self._read()
        if self._metrics.status.role is not Role.LEADER:
            who = next((one.holder for one in holders(self._workspace, ledger)), "nobody")
            raise NotReady(f"this process does not lead; the lease of the fleet is held by {who}")
        if self._pass is None:
            raise NotReady(_NO_PASS)
        return self._pass

    def _far(self) -> Mapping[str, str]:
        return {} if self._ledger is None else under_way(self._ledger, self._workspace.clock.now())


def _alike(before: _Pass, found: _Pass) -> bool:
    """Return whether two passes agree on all that the lines of any node have of the fleet."""
    return before.plan.refused == found.plan.refused and before.explanation.alone == found.explanation.alone


def _with_records(made: Explanation, found: _Pass, name: str, holds: tuple[Hold, ...]) -> Explanation:
    """Return the explanation with what ledger and git know."""
    places = [value.place for value in values(made) if value.place is not None]
    known = origins(found.fleet.source, places) if Path(found.fleet.source.directory).is_dir() else {}
    return replace(made, record=found.ledger.node(name), holds=holds, origins=known)
