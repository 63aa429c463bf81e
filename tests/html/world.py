"""A fleet in which everything is going on that the page shows: from lab machines, planned by the product."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from reconciler import __version__
from reconciler.app.drift_report import drift_report
from reconciler.converge.status import node_status
from reconciler.gate.decline import first_results
from reconciler.model.desired import BudgetLimit, Fleet
from reconciler.model.drift import ACTIONABLE
from reconciler.model.gate import Verdict
from reconciler.model.observed import Observation, Observed, Silent
from reconciler.model.period_report import Episode, Past, PeriodReport, StatusInterval
from reconciler.model.plan import Plan, Scope
from reconciler.model.records import Attempt, Hold, JournalEntry, NodeRecord, RunRecord
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import NodeState, UnknownReason
from reconciler.planner.fleet.period_report import period_report
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.history import NodeHistory
from reconciler.render.html import Material
from reconciler.spec import load_spec
from tests.bench import fleets, store

EVERY = 9  # one node in so many has drifted
SILENT, HELD, FAILED, ASIDE, BELOW = 1, 2, 4, 6, 7  # of a hundred numbers, those of nodes with a story of their own
_BUDGETS = (BudgetLimit("fleet", "2%"), BudgetLimit("rack", "25%"))


def make(nodes: int, *, seed: int = 1) -> Material:
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        directory = Path(name)
        spec = fleets.write_spec(directory / "fleet-spec", nodes)
        fleet = load_spec(spec, directory="fleet-spec")
        fleets.fleet_template(directory / "machines", fleet, EVERY).save(directory / "store")
        stored = store.restore(directory / "store")
    observed = dict(stored.clean) | stored.drifted
    records, now = stored.records, stored.head.finished_at + timedelta(minutes=4)
    first = fleet.nodes[min(fleet.nodes)].pool  # on its way to a new image
    for name in [name for name, node in fleet.nodes.items() if node.pool == first and name not in stored.drifted]:
        observed[name], records[name] = behind(observed[name], records[name])
    fleet = _eventful(fleet, observed, records, now)
    observation = replace(stored.head, nodes=observed)
    holds = tuple(
        Hold(at, name, "a person is looking, ticket 4711", "ann", now - timedelta(hours=at % 40))
        for at, name in enumerate(sorted(fleet.nodes))
        if at % 100 == HELD
    )
    plan = _with_ages(_plan(fleet, observation, records, holds, now), random.Random(seed))
    statuses = {name: node_status(node, acting=False) for name, node in plan.nodes.items()}
    return Material(
        fleet, observation, plan, drift_report(plan, observation), records, statuses, now, __version__, holds=holds,
        histories=histories(plan, records, now), report=_report(plan, statuses, now, random.Random(seed)),
    )  # fmt: skip


def without_racks(material: Material, pool: str) -> Material:
    """The nodes of one pool stand wherever they stand."""
    fleet = material.fleet
    nodes = {n: replace(node, domains={}) if node.pool == pool else node for n, node in fleet.nodes.items()}
    return replace(material, fleet=replace(fleet, nodes=nodes))


def behind(node: Observed, record: NodeRecord) -> tuple[Observed, NodeRecord]:
    """It runs the image before, and was converged to it."""
    older = store.behind(node)
    old = {path: replace(record.applied[path], value=value) for path, value in store.OLD.items()}
    return older, replace(record, applied={**record.applied, **old})


def _eventful(fleet: Fleet, observed: dict[str, Observed], records: dict[str, NodeRecord], now: datetime) -> Fleet:
    nodes = dict(fleet.nodes)
    for at, name in enumerate(sorted(nodes)):
        match at % 100:
            case number if number == SILENT:
                silent = Silent(now, UnknownReason.UNREACHABLE, "no route to host")
                observed[name] = replace(observed[name], host=silent)
            case number if number == FAILED:
                tries = [now - timedelta(hours=hours) for hours in (3, 2, 1)]
                failed = tuple(
                    Attempt("run_gate", "", "gate.certificate", at, "permanent", "fio: io_uring not allowed", at)
                    for at in tries
                )
                records[name] = replace(records[name], certificate=None, attempts=failed)
            case number if number == ASIDE:
                nodes[name] = replace(nodes[name], state=NodeState.QUARANTINED)
            case number if number == BELOW:
                records[name] = _below(records[name])
    return replace(fleet, nodes=nodes, settings=replace(fleet.settings, budgets=_BUDGETS))


def _below(record: NodeRecord) -> NodeRecord:
    """Its last measurements fail the bar of today."""
    assert record.certificate is not None
    results = tuple(
        replace(result, metrics={name: value * 0.8 for name, value in result.metrics.items()}, tool_version="2.18.1")
        if result.tool == "nccl-tests"
        else result
        for result in record.certificate.results
    )
    assert all(result.verdict is Verdict.PASS for result in results)
    return replace(record, certificate=replace(record.certificate, results=results))


def declining(material: Material) -> tuple[Material, str]:
    """One node that every bar lets pass measured five per cent more when it first passed. Return its name, too."""
    name = next(
        name
        for at, name in enumerate(sorted(material.plan.nodes))
        if at % 100 not in (SILENT, HELD, FAILED, ASIDE, BELOW) and material.records[name].certificate is not None
    )
    record, acceptance = material.records[name], material.fleet.nodes[name].profile.acceptance
    assert record.certificate is not None
    assert acceptance is not None
    results = tuple(
        replace(one, metrics={metric: value * 1.05 for metric, value in one.metrics.items()})
        if one.tool == "nccl-tests"
        else one
        for one in record.certificate.results
    )
    older = replace(record.certificate, results=results, issued_at=record.certificate.issued_at - timedelta(days=90))
    certificate = replace(record.certificate, first=first_results(record.certificate, older, acceptance))
    return replace(material, records={**material.records, name: replace(record, certificate=certificate)}), name


def _plan(
    fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], holds: tuple[Hold, ...], now: datetime
) -> Plan:
    names = list(fleet.nodes)
    request = PlanRequest(
        "plan-20270101-000000-c0ffee", {("ubuntu-gpu", "2026.11.1"): True}, names, Scope((), (), len(names), len(names))
    )
    return plan_fleet(fleet, observation, LedgerSnapshot("ledger-1", records, holds=holds), now, request)


def _with_ages(plan: Plan, dice: random.Random) -> Plan:
    """As the ledger tells since when each item has differed."""
    nodes = {}
    for name, node in plan.nodes.items():
        since = plan.created_at - timedelta(minutes=dice.randrange(1, 6000))
        items = tuple(replace(item, first_seen=since, last_seen=plan.created_at) for item in node.drift)
        nodes[name] = replace(node, drift=items)
    return replace(plan, nodes=nodes)


def histories(plan: Plan, records: Mapping[str, NodeRecord], now: datetime) -> Mapping[str, NodeHistory]:
    found = {}
    for at, (name, node) in enumerate(plan.nodes.items()):
        run = f"run-{at // 200}"
        runs = {run: RunRecord(run, "apply", "c0ffee" * 6, "plan-1", now - timedelta(days=2), now, 0, "")}
        found[name] = NodeHistory(name, records[name], (), list(_entries(name, run, node.drift != (), now)), runs, now)
    return found


def _entries(name: str, run: str, drifted: bool, now: datetime) -> Iterator[JournalEntry]:
    then = now - timedelta(days=2)
    for at, (action, seconds) in enumerate((("drain", 70.0), ("run_gate", 1400.0), ("admit", 4.0)), 1):
        yield JournalEntry(then, run, name, "intent", action, "required by run_gate", "c0ffee" * 6, "plan-1", at)
        then += timedelta(seconds=seconds)
        said = {"outcome": "done"}
        yield JournalEntry(then, run, name, "outcome", action, "done: as asked", "", "", at, seconds, said)
    if drifted:
        said = {"path": "host.sysctls.vm.swappiness", "kind": "drifted", "desired": "1", "observed": "60"}
        yield JournalEntry(now - timedelta(hours=5), run, name, "drift", "", "", evidence=said)


def _report(plan: Plan, statuses: Mapping[str, NodeStatus], now: datetime, dice: random.Random) -> PeriodReport:
    """A week in which drift came in the mornings and went as budgets allowed."""
    since, names = now - timedelta(days=7), list(plan.nodes)
    episodes = [
        Episode(name, item.path, item.kind.value, item.first_seen or now, None)
        for name, node in plan.nodes.items()
        for item in node.drift
        if item.kind in ACTIONABLE
    ]
    status_intervals = list[StatusInterval]()
    for name in dice.sample(names, len(names) // 3):
        begin = since + timedelta(minutes=dice.randrange(7 * 24 * 60 - 900))
        gone = begin + timedelta(minutes=20 + round(dice.expovariate(1 / 180)))
        episodes.append(
            Episode(name, dice.choice(("bios.NumaNodesPerSocket", "image.version")), "drifted", begin, gone)
        )
        status_intervals += _intervals(name, plan.nodes[name].pool, [(since, False), (begin, True), (gone, False)], now)
    quiet = set(names) - {interval.node for interval in status_intervals}
    status_intervals += [
        interval for name in quiet for interval in _intervals(name, plan.nodes[name].pool, [(since, False)], now)
    ]
    past = Past(tuple(status_intervals), tuple(episodes), first=dict.fromkeys(names, since - timedelta(days=30)))
    return period_report(past, plan.fleet, names, since, now)


def _intervals(name: str, pool: str, turns: Sequence[tuple[datetime, bool]], now: datetime) -> Iterator[StatusInterval]:
    for (since, out), until in zip(turns, [*[at for at, _ in turns[1:]], None], strict=True):
        status = NodeStatus.ACTING if out else NodeStatus.CONVERGED
        yield StatusInterval(name, pool, status, out, since, min(until or now, now), until)
