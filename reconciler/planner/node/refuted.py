"""A boot that the machine's TPM refutes: evidence against the node, until it boots anew or is judged by something else.

Asked again, a TPM says of one boot what it said before. So one refutation is proof, as one read of a latched signal is.
"""

from __future__ import annotations

from reconciler.gate.attestation.expected import basis_of, is_measured
from reconciler.health.signals import BOOT_REFUTED, Signal
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import REFUTED, NodeRecord
from reconciler.model.vocab import Source


def boot_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return the signal of a node whose TPM refutes its present boot; () where it does not, or need not prove it.

    A boot that was proved since, and a hold that somebody set and released, take it back.
    """
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    if not record.attempts or facts is None or not is_measured(desired.profile):
        return ()
    last = next((one for one in reversed(record.attempts) if one.action == "check_trust" and one.judged), None)
    if last is None or not last.detail.startswith(REFUTED) or last.boot_id != (facts.boot_id or ""):
        return ()
    if record.released_at is not None and last.at < record.released_at:
        return ()
    return (Signal(BOOT_REFUTED, last.detail, Source.SSH),) if last.basis == basis_of(desired.profile, record) else ()
