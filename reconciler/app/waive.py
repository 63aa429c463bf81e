"""The `ledger waive` use case: certificates without tests for nodes in service before the reconciler (DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.lease import held_lease
from reconciler.gate.certificate import certificate_without_tests
from reconciler.model.desired import Fleet
from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


@dataclass(frozen=True, slots=True)
class Waived:
    """New certificates. `known`: the records of the nodes with them. `left`: node -> why it gets none."""

    certificates: tuple[Certificate, ...]
    known: Mapping[str, NodeRecord]
    left: Mapping[str, str]


def waive(
    fleet: Fleet, seen: Observation, records: Mapping[str, NodeRecord], now: datetime, *, anew: bool = False
) -> Waived:
    """Return certificates for the observed nodes on which the reconciler has not worked yet.

    `anew`: the spec was just written, so that a certificate adopted under another spec is replaced.
    """
    made, known, left = [], dict(records), {}
    for name, node in fleet.nodes.items():
        if name not in seen.nodes:
            continue
        record = _without_adopted(records.get(name) or NodeRecord(name), anew=anew)
        state = "" if node.state is NodeState.ACTIVE else f"its state is {node.state}, and nobody lets it serve"
        found = state or refusal(record) or certificate_without_tests(node, seen.nodes[name], now)
        if isinstance(found, str):
            left[name] = found
        else:
            made.append(found)
            known[name] = replace(record, certificate=found)
    return Waived(tuple(made), known, left)


def _without_adopted(record: NodeRecord, *, anew: bool) -> NodeRecord:
    adopted = record.certificate is not None and record.certificate.adopted
    return replace(record, certificate=None) if anew and adopted else record


def refusal(record: NodeRecord) -> str:
    """Return why a node gets no certificate without a test: it was tested or worked on before. "" when it may."""
    if record.certificate is not None:
        return "it has a certificate, or had one; it is tested when that is void"
    return f"{record.attempts[-1].action} was done to it, and its gate has not been passed" if record.attempts else ""


def deviation(fleet: Fleet, node: NodePlan) -> str:
    """Return why a node is not in service as specified, or may not be; "" when it is."""
    if fleet.nodes[node.node].state is not NodeState.ACTIVE:
        return ""
    odd = [item.path for item in node.drift if item.kind in ACTIONABLE or item.kind is DriftClass.UNKNOWN]
    if not (odd or node.actions or node.incomplete or node.blocked or node.in_service is not True):
        return ""
    if node.situation != "in service as specified":
        return node.situation
    return "; ".join(node.incomplete) or (f"{', '.join(odd[:5])} not as wanted" if odd else "it is not in service")


def save(
    workspace: Workspace, ledger: SqlLedger, command: str, certificates: Sequence[Certificate], reason: str,
    also: Callable[[str], None] = lambda _: None, *, anew: bool = False,
) -> dict[str, str]:  # fmt: skip
    """Write the certificates under the lease of the fleet, with the operator and the reason.

    `also` gets the ID of the run, and writes what else belongs to it. Return node -> why it got none after all: another
    run may have worked on it while a question was open. `anew`: as for `waive`.
    """
    late: dict[str, str] = {}

    async def write() -> None:
        clock, fleet = workspace.clock, workspace.fleet
        run = new_id(command, clock.now())
        async with held_lease(ledger, fleet.settings.fleet, f"{whoami()}, {run}", clock):
            ledger.start_run(run, command, fleet.source.commit, "", clock.now())
            with ledger.batch():
                records = ledger.nodes([certificate.node for certificate in certificates])
                for certificate in certificates:
                    if why := refusal(_without_adopted(records[certificate.node], anew=anew)):
                        late[certificate.node] = why
                        continue
                    ledger.save_certificate(certificate)
                    ledger.note(certificate.node, "waive", f"by {whoami()}: {reason}", clock.now())
            also(run)
            ledger.end_run(run, 0, f"{len(certificates) - len(late)} nodes waived", clock.now())

    run_async(write())
    return late


def waive_tests(workspace: Workspace, reason: str, confirm: Callable[[int, int], None]) -> Mapping[str, str]:
    """Issue certificates without a test for the selected nodes that need none: node -> why it got none, or "".

    `confirm` gets how many of how many nodes would get one, before anything is written; it raises to stop.
    """
    names, _ = workspace.selection
    seen = workspace.observe()
    with workspace.ledger() as ledger:
        records, now = ledger.nodes(list(workspace.fleet.nodes)), workspace.clock.now()
        made = waive(workspace.fleet, seen, records, now)
        snapshot = LedgerSnapshot(ledger.id, made.known, holds=tuple(ledger.holds()))
        request = PlanRequest(new_id("waive", now), workspace.signatures, names)
        plan = plan_fleet(workspace.fleet, seen, snapshot, now, request)
        ends = {name: made.left.get(name) or deviation(workspace.fleet, plan.nodes[name]) for name in names}
        good = [one for one in made.certificates if not ends.get(one.node, "not asked for")]
        if good:
            confirm(len(good), len(names))
            ends |= save(workspace, ledger, "waive", good, reason)
    return ends
