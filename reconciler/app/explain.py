"""The `explain` use case: everything about one node, or about one value of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from reconciler.app.holds import check_subject
from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.runtime import new_id
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.converge.observation_pass import with_sightings
from reconciler.drivers.git import origins
from reconciler.planner.fleet.lemons import DAYS
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import node_planner
from reconciler.planner.fleet.reliability import lemon_of
from reconciler.planner.node.why import alternatives
from reconciler.render.explanation import Explanation, values


def explain(
    request: FleetRequest, frontend: Frontend, what: str, observation: Path | None, *, offline: bool
) -> Explanation:
    """Explain `what`, which is NODE or NODE.path. `offline` explains the spec alone, and contacts nothing."""
    whole = Workspace(request, frontend)
    node, path = split_node_path(what, whole.fleet.nodes)
    workspace = Workspace(replace(request, limit=(node,), exclude=()), frontend)
    workspace.fleet = whole.fleet
    check_subject(workspace.fleet, node)
    made = Explanation(workspace.fleet, node, path, workspace.clock.now(), time_scale=workspace.time_scale)
    if not offline:
        made = _with_observation(workspace, made, observation)
    places = [value.place for value in values(made) if value.place is not None]
    return replace(made, origins=origins(workspace.fleet.source, places))


def _with_observation(workspace: Workspace, made: Explanation, file: Path | None) -> Explanation:
    """Return `made` with what was observed, planned and recorded.

    An observation file of all nodes gives a plan of all nodes, which shows who goes first. Otherwise only this node is
    read, and of the others only what cluster and ledger know is used.
    """
    fleet, node = workspace.fleet, made.node
    seen = workspace.observation(file)
    with workspace.present_ledger() as ledger:
        if file is None:
            workspace.foresee(seen, ledger)
        elif fleet.nodes.keys() <= seen.nodes.keys():
            workspace.selection = list(fleet.nodes), workspace.selection[1]
        plan = workspace.make_plan(seen, ledger, new_id("explain", workspace.clock.now()))
        since = {(node, path): (first, seen.finished_at) for path, _, _, _, first in ledger.open_drift(node)}
        own = with_sightings(replace(plan, nodes={node: plan.nodes[node]}), since).nodes[node]
        holds, record = tuple(ledger.holds()), ledger.node(node)
        request = PlanRequest(plan.id, workspace.signatures)
        planner = node_planner(fleet, seen, LedgerSnapshot(ledger.id, holds=holds), plan.created_at, request)
        question = planner.question(fleet.nodes[node], seen.nodes[node], record, postponed=own.postponed)
        return replace(
            made, now=workspace.clock.now(), observation=seen, plan=replace(plan, nodes={**plan.nodes, node: own}),
            record=record, holds=holds, estimates=workspace.estimates(ledger),
            under_way=under_way(ledger, workspace.clock.now()).get(node, ""),
            alternatives={} if question is None else alternatives(question),
            lemon=lemon_of(fleet, ledger.illness(seen.finished_at - DAYS, seen.finished_at), node),
        )  # fmt: skip


def split_node_path(what: str, nodes: Collection[str]) -> tuple[str, str]:
    """Return ("gpu-a001", "firmware.bmc") for gpu-a001.firmware.bmc. Node names may hold dots themselves."""
    for name in sorted(nodes, key=len, reverse=True):
        if what == name or what.startswith(f"{name}."):
            return name, what[len(name) + 1 :]
    return what, ""
