"""The reliability of a period, from what the ledger recorded: see model/reliability.py for what each figure means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import exp
from typing import Final

from reconciler.health.ladder import REMEDIATION
from reconciler.health.table import HealthTable, SignalRule, health_table
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass
from reconciler.model.period_report import ILL, Episode, Past, StatusInterval
from reconciler.model.plan import BlockCode
from reconciler.model.records import Attempt, isolated_for
from reconciler.model.reliability import (
    Lemon,
    ObjectiveReport,
    PartRate,
    PastIncident,
    Reliability,
    SignalTally,
    SpareForecast,
)
from reconciler.planner.fleet.domain_incidents import DomainIncident, Sign, incidents
from reconciler.planner.fleet.durations import times
from reconciler.planner.fleet.lemons import lemons
from reconciler.planner.fleet.period_report import recoveries, time_by_node
from reconciler.planner.fleet.rates import poisson_limits, spares_for
from reconciler.planner.fleet.treatments import proposals, rung_tallies
from reconciler.spec.kinds.signals import First, Scope, SignalClass
from reconciler.spec.signals import PREFIX

TARGET: Final = 0.99  # of spares, where the spec has no objective: ByteRobust sizes them by the 99th percentile
ONE_FAILURE: Final = timedelta(hours=1)  # signals of one part that begin within it tell of one failure
_MILLION: Final = 1e6
_HOUR: Final = timedelta(hours=1)
_NO_SIGN: Final = (DriftClass.IGNORED.value, DriftClass.UNKNOWN.value)
_ILL: Final = frozenset({ILL, *(c.value for c in (BlockCode.ATTEMPTS, BlockCode.NO_PATH, BlockCode.GATE))})
_OF_PARTS: Final = ("psu_failed", "fan_failed")  # of class environment, and yet of a part
_COUNTS: Final[Mapping[Scope, Callable[[Desired], int | None]]] = {
    Scope.GPU: lambda node: node.profile.inventory.gpus,
    Scope.DIMM: lambda node: node.profile.inventory.dimms,
    Scope.DRIVE: lambda node: node.profile.inventory.drives,
    Scope.PORT: lambda node: node.profile.inventory.rdma_ports,
}


@dataclass(frozen=True)
class Period:
    """A period of a fleet. `month`: the 28 days to its end, for lemon scores. `lead_s`: of spares; None = measured."""

    fleet: Fleet
    past: Past
    since: datetime
    until: datetime
    month: Past
    lead_s: float | None = None

    @cached_property
    def time_by_node(self) -> Mapping[str, Sequence[timedelta]]:
        return time_by_node(self.past, self.since, self.until)


def reliability(period: Period) -> Reliability:
    fleet, past = period.fleet, period.past
    table = health_table(fleet.settings.health)
    illness = _illness(past, fleet, table)
    shared = tuple(domain_incidents(illness, fleet, table))
    models = {name: _model(node) for name, node in fleet.nodes.items()}
    rungs = rung_tallies(illness, past.attempts, models)
    return Reliability(
        incidents=tuple(map(_told, shared)),
        rungs=rungs,
        proposals=proposals(rungs, fleet),
        signals=tuple(_signals(period, illness, models)),
        parts=tuple(_parts(period, illness, table, {(s.node, s.path) for one in shared for s in one.signs})),
        objectives=tuple(_objectives(period)),
        spares=tuple(_spares(period)),
        lemons=_lemons(fleet, period.month),
    )


def lemon_of(fleet: Fleet, month: Past, node: str) -> Lemon | None:
    """Return the score of one node; None where it has no points."""
    return next((one for one in _lemons(fleet, month) if one.node == node), None)


def _lemons(fleet: Fleet, month: Past) -> tuple[Lemon, ...]:
    table = health_table(fleet.settings.health)
    illness = _illness(month, fleet, table)
    shared = {(sign.node, sign.path) for one in domain_incidents(illness, fleet, table) for sign in one.signs}
    return lemons(illness, month.attempts, table, shared)


def _model(node: Desired) -> str:
    return node.profile.inventory.model or node.profile.inventory.gpu_model or ""


def _illness(past: Past, fleet: Fleet, table: HealthTable) -> dict[str, list[Episode]]:
    """Return the signals that nodes of the spec showed, by node, the oldest first."""
    found: dict[str, list[Episode]] = {}
    for one in past.episodes:
        if one.node in fleet.nodes and one.kind not in _NO_SIGN and table.rule_at(one.path) is not None:
            found.setdefault(one.node, []).append(one)
    return {node: sorted(some, key=lambda one: one.since) for node, some in found.items()}


def domain_incidents(
    illness: Mapping[str, Sequence[Episode]], fleet: Fleet, table: HealthTable
) -> tuple[DomainIncident, ...]:
    """Return the incidents of failure domains, as the drift of the ledger shows them."""
    signs = [Sign(one.node, one.path, one.since, one.until) for some in illness.values() for one in some]
    return incidents(signs, fleet.nodes, table)


def _told(one: DomainIncident) -> PastIncident:
    return PastIncident(one.group.value, one.scope, one.paths, one.nodes, one.begun, one.ended)


def _observed_h(period: Period, names: frozenset[str]) -> tuple[float, float]:
    """Return the node-hours of these nodes in service, and out of it."""
    known = [found for name, found in period.time_by_node.items() if name in names]
    in_service, out = (sum((found[part] for found in known), timedelta()) for part in (0, 1))
    return in_service / _HOUR, out / _HOUR


def _groups(fleet: Fleet, key: Callable[[Desired], str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, node in fleet.nodes.items():
        found.setdefault(key(node), set()).add(name)
    return {name: frozenset(found[name]) for name in sorted(found)}


# --- signals and parts -----------------------------------------------------------------------------------------------


def _signals(
    period: Period, illness: Mapping[str, Sequence[Episode]], models: Mapping[str, str]
) -> Iterator[SignalTally]:
    spent = {model: sum(_observed_h(period, names)) for model, names in _groups(period.fleet, _model).items()}
    by_key: dict[tuple[str, str], list[Episode]] = {}
    for node, some in illness.items():
        for one in some:
            by_key.setdefault((models[node], one.path), []).append(one)
    for (model, path), some in sorted(by_key.items()):
        fresh = [one for one in some if one.since >= period.since]
        ended = [(one.until - one.since).total_seconds() for one in some if one.until and one.until <= period.until]
        acted = [s for one in fresh if (s := _acted_s(one, period.past.attempts.get(one.node, ()))) is not None]
        node_hours = spent[model]
        mtbf_h = node_hours / len(fresh) if fresh else None
        yield SignalTally(model, path, len(fresh), node_hours, mtbf_h, times(acted), times(ended))


def _acted_s(episode: Episode, attempts: Sequence[Attempt]) -> float | None:
    """Return the time from the first sign to the first action for it; None where nothing was done while it lasted."""
    for one in attempts:
        if one.outcome == "refused" or one.at < episode.since or (episode.until is not None and one.at > episode.until):
            continue
        for_it = isolated_for(one.cause) or tuple(one.cause.split(", "))
        if one.cause == REMEDIATION or episode.path in for_it:
            return (one.at - episode.since).total_seconds()
    return None


def _parts(
    period: Period,
    illness: Mapping[str, Sequence[Episode]],
    table: HealthTable,
    shared: set[tuple[str, str]],
) -> Iterator[PartRate]:
    """Yield the rate of each part of each model, of those that can fail and are counted in the spec."""
    for model, names in _groups(period.fleet, _model).items():
        node_hours = sum(_observed_h(period, names))
        node = period.fleet.nodes[next(iter(names))]
        for scope in Scope:
            count = _COUNTS[scope](node) if scope in _COUNTS else 1
            if scope is Scope.RACK or not count or not node_hours:
                continue
            own = [[one for one in illness.get(name, ()) if (name, one.path) not in shared] for name in names]
            failures = sum(_failures(some, scope, table, period) for some in own)
            exposed = node_hours * count
            low, high = poisson_limits(failures)
            scale = _MILLION / exposed
            yield PartRate(
                model, scope.value, failures, round(exposed, 3), failures * scale, low * scale, high * scale
            )  # fmt: skip


def _failures(episodes: Sequence[Episode], scope: Scope, table: HealthTable, period: Period) -> int:
    """Count failures of one kind of part of one node: signals together are one, as are those of one that lasts."""
    count, until = 0, period.since
    for one in episodes:
        rule = table.rule_at(one.path)
        if rule is None or rule.row.scope is not scope or not _fails(rule, one.path) or one.since < period.since:
            continue
        if count == 0 or one.since > until:
            count += 1
        until = max(until, one.since + ONE_FAILURE, one.until or period.until)
    return count


def _fails(rule: SignalRule, path: str) -> bool:
    """Return whether a signal tells that a part has failed: not wear, not a setting, not the room."""
    cause = rule.row.cause
    lasts = cause is SignalClass.TERMINAL or (cause is SignalClass.PERSISTENT and rule.row.first is not First.REPORT)
    return lasts or path.removeprefix(PREFIX) in _OF_PARTS


# --- objectives and spares -------------------------------------------------------------------------------------------


def _objectives(period: Period) -> Iterator[ObjectiveReport]:
    for persona, names in _groups(period.fleet, lambda node: node.persona).items():
        serving, out = _observed_h(period, names)
        observed, wanted = serving + out, period.fleet.objectives.get(persona)
        budget = None if wanted is None else (1 - wanted) * observed
        burn = out / budget if budget else None
        share = serving / observed if observed else None
        yield ObjectiveReport(persona, len(names), wanted, share, observed, out, budget, burn)


def _spares(period: Period) -> Iterator[SpareForecast]:
    """Yield a forecast for each persona: nodes out are binomial, by the rate of failures and the time each is out."""
    ill = [one for one in period.past.status_intervals if one.code in _ILL and one.out]
    for persona, names in _groups(period.fleet, lambda node: node.persona).items():
        node_hours = sum(_observed_h(period, names))
        if not node_hours:
            continue
        some: dict[str, list[StatusInterval]] = {}
        for one in ill:
            if one.node in names:
                some.setdefault(one.node, []).append(one)
        mine = tuple(one for one in period.past.status_intervals if one.node in names)
        outages = [
            one
            for one in recoveries(mine, period.since, names)
            if any(i.since < (one.until or period.until) and i.end >= one.since for i in some.get(one.node, ()))
        ]
        failures = sum(one.since >= period.since for one in outages)
        took = [one.seconds for one in outages]
        lead_s = period.lead_s if period.lead_s is not None else (sum(took) / len(took) if took else None)
        target = period.fleet.objectives.get(persona, TARGET)
        together = _most_at_once([one for of_node in some.values() for one in of_node], period)
        low, high = (
            0.0 if lead_s is None else 1 - exp(-count / node_hours * lead_s / 3600)
            for count in (failures, poisson_limits(failures)[1])
        )
        many = len(names)
        yield SpareForecast(
            persona, many, target, failures, node_hours, lead_s, low, high, spares_for(many, low, target),
            spares_for(many, high, target), together,
        )  # fmt: skip


def _most_at_once(ill: Sequence[StatusInterval], period: Period) -> int:
    """Return how many nodes were out for illness at the same time, at most."""
    steps = [(max(one.since, period.since), 1) for one in ill] + [(min(one.end, period.until), -1) for one in ill]
    now = most = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most
