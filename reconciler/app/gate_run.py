"""The `gate run` use case: a gate that a person asks for by hand.

It is an apply of these nodes for which earlier certificates don't count, so lease, budget, windows, holds, stop and
brake are those of every run. What else a node needs is left to `apply`, which says so first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.app.apply import plan_for_approval
from reconciler.app.runtime import whoami
from reconciler.app.workspace import Workspace
from reconciler.gate.certificate import worse
from reconciler.model.desired import AskedGate
from reconciler.model.errors import Refused, UsageError
from reconciler.model.gate import Verdict
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.results import TestRun
from reconciler.model.vocab import Concern
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import ACTIONS

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

_GATE: Final = "run_gate"
# All that a gate by hand does: out of service, the tests, and back.
_CONDITIONS: Final = frozenset({c.MARKED, c.QUIESCED, c.TRUST, c.GATE, c.LABELS, c.IN_SERVICE})
_AROUND: Final = frozenset(
    name for name, spec in ACTIONS.items() if _CONDITIONS.intersection(spec.achieves) or spec.concern is Concern.GPU
)


def ask_gate(workspace: Workspace, profile: str) -> None:
    """Have the selected nodes tested anew, with the tests of `profile`; "" is each node's own.

    Raise UsageError for a profile that the spec does not have, and for nodes without one of their own.
    """
    fleet, names = workspace.fleet, workspace.selection[0]
    tests = workspace.fleet_at(workspace.request.rev, acceptance=profile) if profile else fleet
    if without := [name for name in names if tests.nodes[name].profile.acceptance is None]:
        raise UsageError(f"{', '.join(without[:5])}: the persona names no acceptance profile, so there is no gate")
    asked = AskedGate(workspace.clock.now(), whoami())
    nodes = dict(fleet.nodes)
    for name in names:
        own, other = nodes[name].profile.acceptance, tests.nodes[name].profile.acceptance
        is_own = own is not None and other is not None and own.name == other.name
        nodes[name] = replace(nodes[name], asked=asked if is_own else replace(asked, other=other))
    workspace.fleet = replace(fleet, nodes=nodes)


def plan_gate(workspace: Workspace, ledger: SqlLedger) -> Plan:
    """Return the plan of the gates. Raise Refused where a node can't be tested, or needs more than that first."""
    plan = plan_for_approval(workspace, ledger)
    if problems := [f"{name}: {why}" for name, node in plan.nodes.items() if (why := _obstacle(node))]:
        raise Refused("; ".join(problems))
    return plan


def _obstacle(node: NodePlan) -> str:
    """Return why a node's plan is not that of a gate alone; "" when it is."""
    more = list(dict.fromkeys(action.id for action in node.actions if action.name not in _AROUND))
    if more:
        return f"it needs {', '.join(more)} first: `reconciler apply --limit {node.node}`"
    if all(action.name != _GATE for action in node.actions):
        why = node.situation if node.blocked is None else node.blocked.detail
        return f"its gate can't run: {why}"
    return ""


def note_gate(workspace: Workspace, ledger: SqlLedger, nodes: Sequence[str]) -> None:
    """Journal who asked for the gates, and with which tests."""
    now = workspace.clock.now()
    with ledger.batch():
        for name in nodes:
            other = workspace.fleet.nodes[name].other_tests
            with_tests = "its own tests" if other is None else f"the tests of {other.name}, which certify nothing"
            ledger.note(name, "gate", f"asked for by {whoami()}, with {with_tests}", now)


def other_verdicts(workspace: Workspace, ledger: SqlLedger) -> dict[str, Verdict]:
    """Return the verdicts of the gates that certified nothing, by node."""
    nodes = [workspace.fleet.nodes[name] for name in workspace.selection[0]]
    return {
        node.node: _verdict(node.asked, ledger.last_gate(node.node))
        for node in nodes
        if node.asked is not None and node.asked.other is not None
    }


def _verdict(asked: AskedGate, runs: Sequence[TestRun]) -> Verdict:
    """Return the worst verdict of the tests that were asked for. One that did not run is unjudged."""
    tests, profile = ((), "") if asked.other is None else (asked.other.tests, asked.other.name)
    found = {run.test: run.verdict for run in runs if run.profile == profile and run.ended_at >= asked.since}
    verdict = Verdict.PASS
    for test in tests:
        verdict = worse(verdict, found.get(test.name, Verdict.UNJUDGED))
    return verdict
