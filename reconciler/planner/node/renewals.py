"""Judge what is renewed before it is over: the certificates of the gate and of the host key, and BMC passwords."""

from __future__ import annotations

from reconciler.gate.asked import TESTS
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern, Source, UnknownReason
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import ConditionBuilder, Conditions, Context


def renewals(desired: Desired, state: Conditions) -> list[DriftItem]:
    """Return what is to be renewed of a node, and the certificate that can't be judged, as drift."""
    items = (
        _due(desired, state, c.HOST_CERTIFICATE, "host.certificate", "valid"),
        _due(desired, state, c.BMC_PASSWORD, "bmc.password", "changed"),
    )
    return [*_gate_item(desired, state), *(item for item in items if item is not None)]


def assess_host_certificate(
    builder: ConditionBuilder, observed: Observed, record: NodeRecord, context: Context
) -> None:
    """Tell whether the certificate of the host key is to be renewed, where we can: by the key that the ledger recorded.

    A host that does not answer has none to renew.
    """
    installer, known = context.settings.installer, record.host_certificate
    expired = isinstance(observed.host, Silent) and observed.host.reason is UnknownReason.EXPIRED
    reachable = expired or isinstance(observed.host, Answered)
    if installer is None or installer.host_ca is None or known is None or not reachable:
        builder.set(c.HOST_CERTIFICATE, True)
        return
    due = expired or known.renewal_at(observed.node) <= context.now
    builder.set(c.HOST_CERTIFICATE, not due, f"host key: certified until {known.valid_before:%Y-%m-%d %H:%M} UTC")


def _gate_item(desired: Desired, state: Conditions) -> list[DriftItem]:
    if desired.profile.acceptance is None or c.GATE in state.true:
        return []
    if c.GATE in state.unknown or c.GATE in state.explained:
        detail = state.unknown.get(c.GATE) or state.explained[c.GATE]
        return [_certificate(desired, DriftClass.UNKNOWN, None, detail)]
    reasons = [why for why in state.because.get(c.GATE, ()) if not why.startswith(TESTS)]  # items of their own
    return [_certificate(desired, DriftClass.RENEWAL, "; ".join(reasons), "")] if reasons else []


def _certificate(desired: Desired, kind: DriftClass, observed: str | None, detail: str) -> DriftItem:
    return DriftItem(
        desired.node, Concern.GATE, "gate.certificate", kind, "valid", observed, source=Source.LEDGER, detail=detail
    )


def _due(desired: Desired, state: Conditions, condition: str, path: str, wanted: str) -> DriftItem | None:
    """Return what is to be renewed as drift; None where its time has not come."""
    why = "; ".join(state.because.get(condition, ()))
    if not why:
        return None
    return DriftItem(desired.node, Concern.TRUST, path, DriftClass.RENEWAL, wanted, why, source=Source.LEDGER)
