"""Certificates without tests, for nodes that served before the reconciler came (DESIGN 7.4): who gets one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.cli.session import Session, new_id, run_async, whoami
from reconciler.gate.vouch import vouched
from reconciler.model.desired import Fleet
from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import NodeState

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


def vouched_for(
    fleet: Fleet, seen: Observation, records: Mapping[str, NodeRecord], now: datetime, *, anew: bool = False
) -> tuple[tuple[Certificate, ...], dict[str, NodeRecord]]:
    """Certificates for nodes that have no story yet, and what the ledger would say with them.

    `anew`: the spec was just written, so that what was vouched for under another one is vouched for again.
    """
    made, known = [], dict(records)
    for name, node in fleet.nodes.items():
        record = records.get(name) or NodeRecord(name)
        if anew and record.certificate is not None and record.certificate.adopted:
            record = replace(record, certificate=None)
        if node.state is not NodeState.ACTIVE or name not in seen.nodes or why_not(record):
            continue
        certificate = vouched(node, seen.nodes[name], now)
        if not isinstance(certificate, str):
            made.append(certificate)
            known[name] = replace(record, certificate=certificate)
    return tuple(made), known


def why_not(record: NodeRecord) -> str:
    """Whoever was tested once, or treated, is tested again: nobody's word replaces that."""
    if record.certificate is not None:
        return "it has a certificate, or had one; it is tested when that is void"
    return f"{record.attempts[-1].action} was done to it, and its gate has not been passed" if record.attempts else ""


def trouble(fleet: Fleet, node: NodePlan) -> str:
    """Why something would be done to it, or can't be told; "" when it serves as specified."""
    if fleet.nodes[node.node].state is not NodeState.ACTIVE:
        return ""
    odd = [item.path for item in node.drift if item.kind in ACTIONABLE or item.kind is DriftClass.UNKNOWN]
    if not (odd or node.actions or node.incomplete or node.blocked or node.in_service is not True):
        return ""
    if node.situation != "in service as specified":
        return node.situation
    return "; ".join(node.incomplete) or (f"{', '.join(odd[:5])} not as wanted" if odd else "it is not in service")


def save(
    session: Session, ledger: SqlLedger, command: str, certificates: Sequence[Certificate], reason: str,
    also: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Under the fleet's lease, with who vouched and why; `also`: what else the run of this name leaves."""
    from reconciler.converge.lease import held_lease

    async def write() -> None:
        clock, fleet = session.clock, session.fleet
        run = new_id(command, clock.now())
        async with held_lease(ledger, fleet.settings.fleet, f"{whoami()}, {run}", clock):
            ledger.start_run(run, command, fleet.source.commit, "", clock.now())
            with ledger.batch():
                for certificate in certificates:
                    ledger.save_certificate(certificate)
                    ledger.note(certificate.node, "vouch", f"by {whoami()}: {reason}", clock.now())
            also(run)
            ledger.end_run(run, 0, f"{len(certificates)} nodes vouched for", clock.now())

    run_async(write())
