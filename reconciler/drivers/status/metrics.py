"""`PrometheusMetrics`, which implements ports.Metrics.

Times are timestamps, not ages: `time() - x` is as exact as the scrape, and a constant value costs almost nothing to
store. They are in the fleet's time, which in a lab runs ahead.

Series: one per node with its status and since when, because an alert must say which node, for how long (pitfall N1),
and one more per node that is out of service: at most 20,000 for 10,000 nodes, which one Prometheus target can have.
Budgets have three per limit, so per rack. Nothing else names a node: drift is by concern and class, actions by
catalogue name without a target, incidents by signal or cause and scope, availability by persona. Each pass replaces
the results of the one before, so that nodes and limits that are gone have no series.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler import __version__
from reconciler.model.drift import DriftClass
from reconciler.model.notices import ChannelStatus
from reconciler.model.plan import BudgetLine
from reconciler.model.status import FleetStatus, LoopStatus, NodeStatus, PersonaStatus, Role
from reconciler.model.units import format_duration
from reconciler.model.vocab import Concern, NewsSource

_ACTION_S: Final = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)  # from setting a label to a reimage
_DEAF: Final = {  # name and help of the gauge that says since when a source is not heard; it is absent while it is
    NewsSource.CLUSTER: (
        "reconciler_watch_deaf_since_timestamp_seconds",
        "Since when the watch on the cluster has failed: nodes wait for the next pass. None: it works.",
    ),
    NewsSource.KERNEL_LOGS: (
        "reconciler_logs_deaf_since_timestamp_seconds",
        "Since when the kernel log of some host is not followed: it is read in passes. None: all are.",
    ),
    NewsSource.BMC_EVENTS: (
        "reconciler_events_deaf_since_timestamp_seconds",
        "Since when the events of some BMC are not followed: it is read in passes. None: all are.",
    ),
}
_PASS_S: Final = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)


class PrometheusMetrics:
    """The metrics of one loop, in a registry of their own, so that two loops in one process (tests) don't mix."""

    def __init__(self) -> None:
        # Without this each counter has one more series, with our start time.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it ships without annotations
        registry = self.registry = CollectorRegistry()
        self.status = LoopStatus()
        self.under_way: dict[str, dict[str, str]] = {}  # node -> the action that runs, and its latest step
        self.told: Mapping[str, ChannelStatus] = {}  # by channel
        self.fleet: FleetStatus | None = None  # as of the last pass
        self.ledger_bytes: int | None = None  # as of the last pass
        self._deaf_since: dict[NewsSource, datetime | None] = dict.fromkeys(NewsSource)
        # Called when the loop's status is another, which is the last of a pass.
        self.status_changed: Callable[[], None] = lambda: None
        self._actions = Counter("reconciler_actions", "Actions that ended.", ["action", "outcome"], registry=registry)
        self._action_seconds = Histogram(
            "reconciler_action_duration_seconds",
            "How long actions took, in the fleet's time.",
            ["action"],
            buckets=_ACTION_S,
            registry=registry,
        )
        self._pass_seconds = Histogram(
            "reconciler_pass_duration_seconds",
            "How long passes over the fleet took, in the fleet's time.",
            buckets=_PASS_S,
            registry=registry,
        )
        self._plans = Counter(
            "reconciler_node_plans",
            "Nodes that passes planned anew (made), and whose plans still held (kept).",
            ["how"],
            registry=registry,
        )
        for how in ("made", "kept"):
            self._plans.labels(how)  # present from the start, as 0
        self._wrong = Counter(
            "reconciler_kept_plans_wrong",
            "Nodes whose kept plans a whole pass found wrong, or that had news unasked: a bug of the reconciler.",
            registry=registry,
        )
        self._unrecorded = Counter(
            "reconciler_record_failures", "Times that what happened could not be recorded.", registry=registry
        )
        registry.register(_CurrentState(self))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    # --- ports.Metrics -------------------------------------------------------------------------------------------

    def loop_status(self, status: LoopStatus) -> None:
        self.status = status
        self.status_changed()
        if status.role is not Role.LEADER:
            self.under_way.clear()
            self.told = {}
            self.fleet = self.ledger_bytes = None  # another one tells of them now

    def passed(self, fleet: FleetStatus) -> None:
        self.fleet = fleet
        self._pass_seconds.observe((fleet.ended_at - fleet.started_at).total_seconds())

    def planned(self, made: int, kept: int, wrong: int) -> None:
        self._plans.labels("made").inc(made)
        self._plans.labels("kept").inc(kept)
        self._wrong.inc(wrong)

    def acting(self, node: str, action: str, step: str) -> None:
        self.under_way.pop(node, None)
        if action:
            self.under_way[node] = {"action": action, "step": step}

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        self._actions.labels(action, outcome).inc()
        self._action_seconds.labels(action).observe(seconds)

    def deaf(self, source: NewsSource, since: datetime | None) -> None:
        self._deaf_since[source] = since

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        self.told = channels

    def unrecorded(self) -> None:
        """Count a record (`--record`) that could not be written."""
        self._unrecorded.inc()

    # --- for the server ------------------------------------------------------------------------------------------

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, encoded, and their media type. Callable from any thread."""
        encode, media = choose_encoder(accept)
        return encode(self.registry), media

    def now(self) -> Iterator[Metric]:
        yield from _of_loop(self.status)
        for source, since in self._deaf_since.items():
            if since is not None:
                yield _gauge(*_DEAF[source], since.timestamp())
        if self.ledger_bytes is not None:
            yield _gauge("reconciler_ledger_size_bytes", "Size of the ledger's database.", self.ledger_bytes)
        if self.told:
            yield from _of_channels(self.told)
        if self.fleet is not None:
            yield from _of_fleet(self.fleet)


class _CurrentState(Collector):
    """The metrics that are computed from the latest status, rather than counted."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.now()


def _of_loop(status: LoopStatus) -> Iterator[Metric]:
    yield InfoMetricFamily("reconciler_build", "The version of the reconciler.", {"version": __version__})
    spec = {"commit": status.spec_commit, "head": status.spec_head, "trouble": status.spec_trouble}
    yield InfoMetricFamily("reconciler_spec", "The commit in force, the newest, and why they differ.", spec)
    yield _gauge("reconciler_spec_in_force", "Whether a spec is in force.", bool(status.spec_commit))
    yield _gauge(
        "reconciler_spec_trouble", "Whether the newest commit was kept out of force.", bool(status.spec_trouble)
    )
    yield _gauge("reconciler_leader", "Whether this process holds the lease of the fleet.", status.role is Role.LEADER)
    yield _gauge("reconciler_stopped", "Whether somebody stopped the fleet.", bool(status.stopped))
    yield _gauge("reconciler_time_scale_ratio", "How fast the fleet's time runs: 1 but in a lab.", status.time_scale)
    if status.last_pass is not None:
        help_text = "When the last whole pass over the fleet ended."
        yield _gauge("reconciler_last_pass_timestamp_seconds", help_text, status.last_pass.timestamp())


def _of_fleet(fleet: FleetStatus) -> Iterator[Metric]:
    yield from _of_nodes(fleet)
    items = GaugeMetricFamily("reconciler_drift_items", "Values that differ.", labels=["concern", "class"])
    for concern in Concern:
        for kind in DriftClass:
            if kind is not DriftClass.CONVERGED:
                items.add_metric([concern.value, kind.value], fleet.drift.get((concern, kind), 0))
    yield items
    yield from _of_budget(fleet.budget)
    help_text = "When the oldest answer of a source was read that decisions are based on."
    oldest = GaugeMetricFamily("reconciler_observation_oldest_timestamp_seconds", help_text, labels=["source"])
    for source, at in sorted(fleet.observed.items()):
        oldest.add_metric([source.value], at.timestamp())
    yield oldest
    help_text = "Nodes of which a source gave no answer."
    silent = GaugeMetricFamily("reconciler_observation_silent_nodes", help_text, labels=["source", "reason"])
    for (source, reason), nodes in sorted(fleet.silent.items()):
        silent.add_metric([source.value, reason.value], nodes)
    yield silent
    halted = GaugeMetricFamily("reconciler_rollout_halted", "Pools whose rollout is halted.", labels=["pool"])
    for pool in fleet.halted:
        halted.add_metric([pool], 1)
    yield halted
    yield _gauge("reconciler_storm_brake", "Whether the storm brake is set.", bool(fleet.braked))
    yield _gauge("reconciler_storm_brake_held_nodes", "Nodes that the storm brake holds back.", fleet.held_by_brake)
    help_text = "What reports call INSECURE: certificates or keys that are not verified, logins that vendors ship."
    yield _gauge("reconciler_insecure", help_text, fleet.insecure)
    help_text = "Nodes that are cordoned and marked on evidence of illness."
    isolated = GaugeMetricFamily("reconciler_nodes_isolated", help_text, labels=["pool"])
    for pool in sorted({node.pool for node in fleet.nodes.values()}):
        isolated.add_metric([pool], fleet.isolated.get(pool, 0))
    yield isolated
    help_text = "Nodes with evidence of illness that are not isolated for it: a person decides."
    incidents = GaugeMetricFamily("reconciler_incident_nodes", help_text, labels=["signal", "scope"])
    for (signal, scope), count in sorted(fleet.incidents.items()):
        incidents.add_metric([signal, scope], count)
    yield incidents
    help_text = "Spares by persona; those that are marginal are counted as ready or preparing too."
    spares = GaugeMetricFamily("reconciler_spares", help_text, labels=["persona", "state"])
    for (persona, state), count in sorted(fleet.spares.items()):
        spares.add_metric([persona, state], count)
    yield spares
    yield from _of_personas(fleet.personas)


def _of_personas(personas: Mapping[str, PersonaStatus]) -> Iterator[Metric]:
    """Yield what burns an error budget: over a time, 1 - avg_over_time(ratio), divided by 1 - objective."""
    help_text = "Share of the nodes of a persona that are in service now, of those of which it is known."
    share = GaugeMetricFamily("reconciler_availability_ratio", help_text, labels=["persona"])
    help_text = "Share of node-hours in service that the spec asks for."
    wanted = GaugeMetricFamily("reconciler_availability_objective_ratio", help_text, labels=["persona"])
    help_text = "How fast the error budget is spent now: 1 spends all of it in its period."
    burn = GaugeMetricFamily("reconciler_error_budget_burn_ratio", help_text, labels=["persona"])
    for persona, one in personas.items():
        seen = one.in_service + one.out
        if seen:
            share.add_metric([persona], one.in_service / seen)
        if one.objective is not None:
            wanted.add_metric([persona], one.objective)
        if one.objective is not None and seen:
            burn.add_metric([persona], one.out / seen / (1 - one.objective))
    yield from (share, wanted, burn)


def _of_channels(channels: Mapping[str, ChannelStatus]) -> Iterator[Metric]:
    unsent = GaugeMetricFamily(
        "reconciler_notifications_unsent", "Messages that a channel has not taken yet.", labels=["channel"]
    )
    help_text = "Whether the last try to tell a channel failed."
    failing = GaugeMetricFamily("reconciler_notifications_failing", help_text, labels=["channel"])
    help_text = "Messages that a channel took since this process leads."
    sent = CounterMetricFamily("reconciler_notifications_sent", help_text, labels=["channel"])
    help_text = "Tries to tell a channel that failed since this process leads."
    failures = CounterMetricFamily("reconciler_notifications_failures", help_text, labels=["channel"])
    for name, status in sorted(channels.items()):
        unsent.add_metric([name], status.unsent)
        failing.add_metric([name], bool(status.error))
        sent.add_metric([name], status.sent)
        failures.add_metric([name], status.failures)
    yield from (unsent, failing, sent, failures)


def _of_nodes(fleet: FleetStatus) -> Iterator[Metric]:
    help_text = "Nodes by status."
    totals = GaugeMetricFamily("reconciler_nodes", help_text, labels=["pool", "status"])
    tally = Tally((node.pool, node.status) for node in fleet.nodes.values())
    for pool in sorted({pool for pool, _ in tally}):
        for status in NodeStatus:
            totals.add_metric([pool, status.value], tally[pool, status])
    yield totals
    help_text = "Since when a node has had its status: its age is the time in that state."
    since = GaugeMetricFamily(
        "reconciler_node_status_since_timestamp_seconds", help_text, labels=["node", "pool", "status"]
    )
    help_text = "Since when a node has been out of service; nodes in service have none."
    out = GaugeMetricFamily(
        "reconciler_node_out_of_service_since_timestamp_seconds", help_text, labels=["node", "pool"]
    )
    for name, node in fleet.nodes.items():
        since.add_metric([name, node.pool, node.status.value], node.since.timestamp())
        if node.out_since is not None:
            out.add_metric([name, node.pool], node.out_since.timestamp())
    yield since
    yield out


def _of_budget(lines: Iterable[BudgetLine]) -> Iterator[Metric]:
    labels = ["scope", "reasons", "per", "during"]
    limit = GaugeMetricFamily(
        "reconciler_budget_limit_nodes", "How many nodes a limit lets out at once.", labels=labels
    )
    out = GaugeMetricFamily(
        "reconciler_budget_out_nodes", "Nodes that use up a limit, whoever took them out.", labels=labels
    )
    active = GaugeMetricFamily("reconciler_budget_active", "Whether a limit holds at this hour.", labels=labels)
    strictest: dict[tuple[str, str, str, str], BudgetLine] = {}  # of lines with the same labels
    for line in lines:
        key = line.scope, " ".join(line.reasons), format_duration(line.per_s) if line.per_s else "", line.during
        known = strictest.get(key)
        if known is None or line.limit - len(line.out) < known.limit - len(known.out):
            strictest[key] = line
    for key, line in strictest.items():
        limit.add_metric(key, line.limit)
        out.add_metric(key, len(line.out))
        active.add_metric(key, line.active)
    yield from (limit, out, active)


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
