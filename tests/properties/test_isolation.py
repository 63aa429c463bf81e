"""evidence_isolates_at_once (invariant 20): whatever budget, wave, window or brake, and never beyond its caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.table import Effect, health_table
from reconciler.model import desired as d
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.records import CHANGES, ISOLATED, RETRACTED, STORM, Attempt, Hold, NodeRecord
from reconciler.model.vocab import WindowKind
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.signal_history import states, tally_states
from tests import builders as b

OLD = b.NOW - timedelta(days=1)
ILL = b.profile(remediation=replace(b.REMEDIATION, node_conditions=(d.NodeCondition("GpuUnhealthy"),)))
STATES = ("well", "condition", "gpu missing", "both", "marked", "link down", "held", "retracted only")
CONDITION, GPU = "health.condition_GpuUnhealthy", "health.gpu_missing"
SHOWS: Mapping[str, tuple[str, ...]] = {"condition": (CONDITION,), "gpu missing": (GPU,), "both": (CONDITION, GPU)}


@dataclass(frozen=True)
class Case:
    nodes: tuple[tuple[str, str, str | None], ...]  # pool, state, signal it was isolated for half an hour ago
    budget: str
    closed: bool
    braked: bool
    changed: bool
    retracted: bool


cases = st.builds(
    Case,
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(STATES), st.sampled_from([None, None, None, CONDITION, GPU])),
        min_size=1, max_size=40,
    ).map(tuple),
    st.sampled_from(["0", "1", "100%"]), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


def planned(case: Case) -> tuple[Plan, dict[str, str]]:
    nodes, seen, records, kinds = {}, {}, {}, {}
    for at, (pool, state, past) in enumerate(case.nodes):
        name = f"n{at:02}"
        kinds[name] = state
        nodes[name] = b.node(name, pool=pool, profile=ILL, domains={"rack": f"r{at}"})
        conditions = {"Ready": "True", "GpuUnhealthy": "True" if state in ("condition", "both", "held") else "False"}
        gpus = (b.gpu(0),) if state in ("gpu missing", "both", "marked") else (b.gpu(0), b.gpu(1))
        links = {0: 17 if state == "link down" else 18, 1: 18}
        mark = replace(b.our_mark(), reason=ISOLATED + GPU) if state == "marked" else None
        member = b.member(name, mark=mark) if mark else b.member(name)
        seen[name] = b.observed(
            name, host=b.facts(name, gpus=gpus, nvlinks_active=links), member=replace(member, conditions=conditions)
        )
        record = b.record(nodes[name], seen[name])
        if past is not None and state != "well":
            done = Attempt("mark", "", ISOLATED + past, b.NOW - timedelta(minutes=30), "done")
            record = replace(record, attempts=(*record.attempts, done))
        records[name] = record
    windows = (d.Window(WindowKind.DENY, d.Hours(tuple(range(7)), 0, 24 * 60, "UTC")),) if case.closed else ()
    settings = replace(b.SETTINGS, budgets=(d.BudgetLimit("fleet", case.budget),), windows=windows)
    fleet = d.Fleet(settings, d.SpecSource("spec"), nodes, "d")
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    since: datetime = b.NOW - timedelta(minutes=5) if case.changed else OLD
    name = CHANGES + settings.fleet
    records[name] = NodeRecord(name, silent_since=dict.fromkeys(states(tally_states(fleet, observation)), since))
    holds = [Hold(at, name, "mine", "ops", OLD) for at, (name, state) in enumerate(kinds.items()) if state == "held"]
    holds += [Hold(98, STORM, "a storm", "storm brake", OLD)] if case.braked else []
    holds += [Hold(99, RETRACTED + "gpu_missing", "wrong", "ops", OLD)] if case.retracted else []
    snapshot = LedgerSnapshot(b.LEDGER, records, holds=tuple(holds))
    made = plan_fleet(fleet, observation, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))
    return made, kinds


@given(cases)
def test_evidence_isolates_at_once(case: Case) -> None:
    made, kinds = planned(case)
    signals = (CONDITION,) if case.retracted else (CONDITION, GPU)
    shown = {name: tuple(s for s in SHOWS.get(kinds[name], ()) if s in signals) for name in kinds}
    pools: dict[str, list[str]] = {"a": [], "b": []}
    for name, (pool, _, _) in zip(kinds, case.nodes, strict=True):
        pools[pool].append(name)
    marked = [name for name, state in kinds.items() if state == "marked"]
    isolated = {name: node.isolation for name, node in made.nodes.items() if node.isolation}
    # Only who shows evidence, serves, and is not held; and for what it shows.
    for name, evidence in isolated.items():
        assert set(evidence) <= set(shown[name])
    # Never beyond the caps: of the fleet, and of a pool for one signal within an hour.
    assert not isolated or len(isolated) + len(marked) <= ceil(len(kinds) / 5)
    for members in pools.values():
        for signal in signals:
            before = {
                name
                for name, (_, state, past) in zip(kinds, case.nodes, strict=True)
                if name in members and past == signal and state != "well"
            }
            now = {name for name in members if signal in isolated.get(name, ())}
            assert not now - before or len(now | before) <= max(3, ceil(len(members) / 20))
    # Whoever shows evidence and is not isolated is in an incident that says why, once for each signal and scope.
    told = {(one.signal, one.scope) for one in made.incidents}
    assert len(told) == len(made.incidents)
    for name, of in shown.items():
        if of and name not in isolated:
            assert any(name in one.nodes for one in made.incidents), name
    # What many show first after a change isolates nobody.
    if case.changed:
        for signal in signals:
            many = [name for name in kinds if signal in shown[name]]
            assert len(many) < 3 or not any(signal in evidence for evidence in isolated.values())


@given(cases)
def test_no_limit_delays_isolation(case: Case) -> None:
    """The same nodes are isolated under every budget, window and brake."""
    free = replace(case, budget="100%", closed=False, braked=False)
    made, open_ = planned(case)[0], planned(free)[0]
    assert {n: p.isolation for n, p in made.nodes.items()} == {n: p.isolation for n, p in open_.nodes.items()}


@given(
    st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(0, 5),
    st.lists(st.integers(0, 9), max_size=20),
)  # fmt: skip
def test_drained_nodes_keep_within_the_budget_whoever_is_isolated(
    out: set[int], isolated: set[int], limit: int, asked: list[int]
) -> None:
    """Isolated nodes count as out for all others, and need room to be drained."""
    names = [f"n{at}" for at in range(10)]
    budget = b.budget(
        (d.BudgetLimit("fleet", str(limit)),), {name: b.node(name) for name in names}, now=b.NOW,
        out=[names[at] for at in out], isolated=[names[at] for at in isolated & out],
    )  # fmt: skip
    drained = {names[at] for at in out - isolated}
    away = {names[at] for at in out}
    for at in asked:
        name = names[at]
        free = name in drained or (len(drained) if name in away else len(away)) < limit
        assert (budget.allows(name) is None) is free
        if free:
            budget.charge(name)
            drained.add(name)
            away.add(name)


def test_the_table_is_closed() -> None:
    for name in health_table().rules:
        assert health_table().effect_of(name if not name.endswith("_") else name + "x") in Effect
    assert health_table().isolating(["health.host_down", "gate.certificate", "health.gpu_missing"]) == (
        "health.gpu_missing",
    )
