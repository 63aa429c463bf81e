"""Invariants of a plan of the small fleet."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from reconciler.converge.apply import ApplyReport
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import node_planner
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import NodeTraits, admission_requires
from reconciler.planner.node.catalogue import catalogue
from reconciler.planner.node.evaluate import evaluate
from reconciler.planner.node.search import search
from tests.properties.test_planner import cost, exhaustive
from tests.soak.invariant_checker import unfit
from tests.soak.spec import SIGNATURES
from tests.soak.world import SmallFleet

V = TypeVar("V")


def faults(world: SmallFleet) -> list[str]:
    """Return the invariants that a plan made now breaks, with the reason."""
    observation = world.observe()
    plan, later = world.plan_of(world.fleet, observation), world.clock.now() + timedelta(seconds=1)
    return [
        *_changed(plan, world.plan_of(*_reordered(world.fleet, observation)), "plan_is_deterministic"),
        *_same_fingerprint(plan, world.plan_of(_other_commit(world.fleet), observation, now=later)),
        *_on_others(world, plan),
        *_on_the_fit(world, plan),
        *_not_minimal(world, observation, plan),
    ]


def _reordered(fleet: Fleet, observation: Observation) -> tuple[Fleet, Observation]:
    """Return the same observation in another order, as another file system or a faster BMC may give it."""
    nodes = {}
    for name, node in fleet.nodes.items():
        profile = node.profile
        mixed = replace(profile, bios=_backwards(profile.bios), firmware=profile.firmware[::-1])
        nodes[name] = replace(node, profile=mixed, domains=_backwards(node.domains))
    return replace(fleet, nodes=nodes), replace(observation, nodes=_backwards(observation.nodes))


def _backwards(mapping: Mapping[str, V]) -> dict[str, V]:
    return dict(reversed(list(mapping.items())))


def _other_commit(fleet: Fleet) -> Fleet:
    return replace(fleet, source=replace(fleet.source, commit="beefed"))


def _steps(plan: Plan, name: str) -> Any:
    node = plan.nodes[name]
    blocked = None if node.blocked is None else (node.blocked.code, node.blocked.until)
    return [action.id for action in node.actions], node.goal, node.wave, blocked


def _changed(one: Plan, other: Plan, invariant: str) -> list[str]:
    found = [
        f"{invariant}: {name}: {_steps(one, name)} or {_steps(other, name)}"
        for name in one.nodes
        if _steps(one, name) != _steps(other, name)
    ]
    return found or ([] if one.fingerprint == other.fingerprint else [f"{invariant}: the fingerprint"])


def _same_fingerprint(plan: Plan, later: Plan) -> list[str]:
    """Check invariant 13. Time stays, because a second later something may have expired."""
    return [
        f"fingerprint_ignores_commit_and_time_but_not_actions: {name}"
        for name, node in plan.nodes.items()
        if (node.fingerprint == later.nodes[name].fingerprint) is not (_acts(node) == _acts(later.nodes[name]))
    ]


def _acts(node: Any) -> Any:
    return [action.id for action in node.actions], [(item.path, item.kind) for item in node.drift]


def _on_others(world: SmallFleet, plan: Plan) -> list[str]:
    """Check that nothing is planned for nodes that are held, set aside or not in the spec."""
    busy = {name for name, node in plan.nodes.items() if node.actions}
    return [
        *(f"held_node_is_never_disrupted: {name} is planned" for name in busy if world.checker.is_held(name)),
        *(f"forget_never_touches: {name} is planned" for name in busy - set(world.active())),
    ]


def _on_the_fit(world: SmallFleet, plan: Plan) -> list[str]:
    """Check invariant 1 per node: nothing is planned for one that is in service and as specified."""
    found = []
    for name, node in plan.nodes.items():
        sound = world.is_serving(name) and not world.is_marked(name) and not world.machine(name).state.faults
        if node.actions and not node.incomplete and sound and not unfit(world, name):
            found.append(f"converged_plans_nothing: {name}: {[action.id for action in node.actions]}")
    return found


def _not_minimal(world: SmallFleet, observation: Observation, plan: Plan) -> list[str]:
    """Check the second half of invariant 2 against exhaustive search, for the first missing conditions of a node."""
    book, fleet, now = world.raw_ledger, world.fleet, world.clock.now()
    planner = node_planner(fleet, observation, LedgerSnapshot(book.id), now, PlanRequest("p", SIGNATURES))
    found = []
    for name in (name for name, node in plan.nodes.items() if node.actions):
        desired, seen, record = fleet.nodes[name], observation.nodes[name], book.node(name)
        items = planner.comparer.compare(desired, seen, record)
        state = evaluate(desired, seen, items, record, planner.context)
        least, chosen = _costs(desired.profile.digest, desired, state.true, c.REGISTERED in state.true)
        if least != chosen:
            found.append(f"plan_is_minimal: {name}: {chosen} is chosen from {sorted(state.true)}, {least} would do")
    return found


_known: dict[Hashable, tuple[Any, Any]] = {}


def _costs(digest: str, desired: Desired, true: frozenset[str], registered: bool) -> tuple[Any, Any]:
    """Return (least cost, cost of the plan), cached for equal nodes."""
    key = (digest, true, registered)
    if key not in _known:
        needs = frozenset(admission_requires(desired))
        goal = frozenset(sorted(needs - true)[:3]) | {c.IN_SERVICE}
        start = true | (needs - goal)
        table = catalogue(NodeTraits(desired, clustered=True, registered=registered, busy=False, cordoned=False))
        path = search(table, start, goal)
        _known[key] = exhaustive(table, start, goal), None if path is None else cost(path)
    return _known[key]


def beyond_approval(approved: Plan, report: ApplyReport) -> list[str]:
    """Return the actions of a run on nodes that its approved plan has no actions for."""
    planned = {name for name, node in approved.nodes.items() if node.actions}
    return [f"approval: {done.action} on {done.node}" for done in report.executed if done.node not in planned]


def left(world: SmallFleet) -> list[str]:
    """Return the differences from the spec; without any, check that plans are empty (invariant 1)."""
    found = []
    for name in world.fleet.nodes:
        if wrong := unfit(world, name):
            found.append(f"{name}: {wrong}")
        elif not world.is_serving(name) or world.is_marked(name):
            found.append(f"{name} does not serve")
    if not found:
        plan = world.plan()
        busy = {name: [action.id for action in node.actions] for name, node in plan.nodes.items() if node.actions}
        found += [f"converged_plans_nothing: {name}: {actions}" for name, actions in busy.items()]
    return found
