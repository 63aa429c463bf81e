"""spares_replace_the_failed (invariant 27): never more than are wanted, never unproved, and never out of the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.model.observed import Observation
from reconciler.model.plan import Goal, Plan
from reconciler.model.records import ISOLATED, SPARE
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.spares import Spares
from tests import builders as b

PERSONA, CONDITION = "training", "health.condition_GpuUnhealthy"
ILL = b.profile(remediation=replace(b.REMEDIATION, node_conditions=(d.NodeCondition("GpuUnhealthy"),)))
STATES = (
    "serves", "falls ill", "isolated", "spare", "spare that is ill", "spare that is worn", "spare without a proof",
    "ready", "untested", "cordoned", "held", "retired",
)  # fmt: skip
SOUND = ("spare", "ready")  # who may go into service at this moment
Kinds = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    states: tuple[str, ...]
    wanted: int


cases = st.builds(
    Case, st.lists(st.sampled_from(STATES), min_size=1, max_size=12).map(tuple), st.integers(min_value=0, max_value=4)
)


@dataclass(frozen=True)
class Made:
    fleet: d.Fleet
    observation: Observation
    snapshot: LedgerSnapshot


def made_of(kinds: Kinds, wanted: int) -> Made:
    nodes, seen, records = {}, {}, {}
    for at, (name, state) in enumerate(kinds.items()):
        held = "retired" if state == "retired" else "active"
        nodes[name] = node = b.node(
            name, profile=ILL, persona=PERSONA, domains={"rack": f"r{at % 3}"}, state=NodeState(held)
        )
        sick = state in ("falls ill", "isolated", "spare that is ill")
        worn = state == "spare that is worn"
        reason = {"isolated": ISOLATED + CONDITION, "ready": "gate", "untested": "gate"}.get(state, SPARE + PERSONA)
        out = state.startswith("spare") or state in ("isolated", "ready", "untested")
        member = b.member(name, mark=replace(b.our_mark(), reason=reason) if out else None)
        conditions = {"Ready": "True", "GpuUnhealthy": "True" if sick else "False"}
        member = replace(member, conditions=conditions, unschedulable=member.unschedulable or state == "cordoned")
        gpus = (b.gpu(0), b.gpu(1, pcie_replays=5000 if worn else 0))
        seen[name] = b.observed(name, host=b.facts(name, gpus=gpus), member=member)
        records[name] = b.record(node, seen[name])
        if state in ("untested", "spare without a proof"):
            records[name] = replace(records[name], certificate=None)
    reserves = (d.Reserve(PERSONA, str(wanted)),) if wanted else ()
    settings = replace(b.SETTINGS, budgets=(d.BudgetLimit("fleet", "100%"),), reserves=reserves)
    fleet = d.Fleet(settings, d.SpecSource("spec"), nodes, "d")
    return Made(fleet, Observation("1.0", "test", "", b.NOW, b.NOW, seen), LedgerSnapshot(b.LEDGER, records))


def planned(kinds: Kinds, wanted: int) -> Plan:
    made = made_of(kinds, wanted)
    return plan_fleet(made.fleet, made.observation, made.snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))


def _take(spares: Spares, kinds: Kinds) -> None:
    """Take a pass in: the plans of nodes as if none were spares, and what is seen of them."""
    spares.take(planned(kinds, 0).nodes, made_of(kinds, 0).observation.nodes, suspected=False)


def failed(kinds: Kinds) -> list[str]:
    return [name for name, state in kinds.items() if state in ("falls ill", "isolated", "spare that is ill")]


@given(cases)
def test_spares_replace_the_failed(case: Case) -> None:
    kinds = {f"n{at:02}": state for at, state in enumerate(case.states)}
    active = [name for name, state in kinds.items() if state != "retired"]
    wanted = min(case.wanted, len(active))
    made, without = planned(kinds, wanted), planned(kinds, 0)
    kept = {name for name, plan in made.nodes.items() if plan.goal is Goal.SPARE}
    promoted = dict(made.spares[0].promoted) if wanted else {}
    # Nobody is taken out of service for it: whoever serves has the same plan as without spares.
    assert all(
        made.nodes[name] == without.nodes[name] for name, state in kinds.items() if state in ("serves", "falls ill")
    )
    # Only nodes that are out, ours, active and unhurt are kept; and never more than are wanted.
    assert kept <= {name for name, state in kinds.items() if state.startswith(("spare", "ready", "untested"))}
    assert len(kept) <= wanted
    # Whoever goes into service in another's place is proved, well, and nothing else is left to do to it.
    for name in promoted:
        assert kinds[name] in SOUND, kinds[name]
        assert b.actions(made.nodes[name]) == ["admit"]
    # One for each failure, as far as there are sound ones; never one more.
    ill = [name for name in failed(kinds) if kinds[name] != "falls ill" or made.nodes[name].isolation]  # within caps
    assert len(promoted) <= len(ill)
    assert len(kept) + len(promoted) <= max(wanted, len(promoted))
    sound = [name for name in kept if kinds[name] == "spare"]
    assert not sound or len(kept) + len(ill) <= wanted
    # Planned again once those that are admitted serve, nobody else goes.
    admitted = {name for name, plan in made.nodes.items() if b.actions(plan) == ["admit"]}
    later = planned({name: "serves" if name in admitted else state for name, state in kinds.items()}, wanted)
    assert not wanted or not later.spares[0].promoted


@settings(max_examples=25)  # each event plans a fleet
@example(1, [(0, "fail"), (0, "see"), (0, "restart")])  # the repaired node is kept, and the promoted one goes
@given(
    st.integers(min_value=1, max_value=3),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["see", "fail", "admit", "restart"])), max_size=20),
)
def test_whatever_comes_in_between_no_more_are_kept_than_are_wanted(wanted: int, events: list[tuple[int, str]]) -> None:
    """Nodes fail, are repaired, are admitted, and runners die between any two of these."""
    kinds = {f"n{at}": "serves" if at < 8 - wanted else "spare" for at in range(8)}
    fleet = made_of(kinds, wanted).fleet
    spares = Spares(fleet)
    _take(spares, kinds)
    for at, event in events:
        name = f"n{at}"
        if event == "restart":
            spares = Spares(fleet)
            _take(spares, kinds)
        elif event == "fail":
            kinds[name] = "isolated"
            spares.fail(name)
        elif event == "admit" and name in spares.promoted:
            kinds[name] = "serves"
            spares.see(planned(kinds, 0).nodes[name])
        elif event == "see" and kinds[name] == "isolated":  # it is repaired, and tested
            kinds[name] = "ready"
            spares.see(planned(kinds, 0).nodes[name])
            if name in spares.kept:
                kinds[name] = "spare"
            else:
                kinds[name] = "serves"
                spares.see(planned(kinds, 0).nodes[name])
        ill = len(failed(kinds))
        assert len(spares.kept) <= max(wanted - ill, 0)
        # Whoever is out and well is kept, or goes into service in the next pass, also after a runner has died.
        later = planned(kinds, wanted).nodes
        goes = {name for name, plan in later.items() if b.actions(plan) == ["admit"]}
        stays = {name for name, plan in later.items() if plan.goal is Goal.SPARE}
        assert {name for name, state in kinds.items() if state == "spare"} <= goes | stays
        assert len(stays) <= max(wanted - ill, 0)
