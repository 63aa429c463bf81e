"""A boot that the machine's TPM refutes or does not prove: evidence against the node, until it boots anew.

Asked again, a TPM says of one boot what it said before. So one refutation is proof, as one read of a latched signal is.
No answer is none of that: it takes as many tries as any action has, and a TPM that proved an earlier boot by the same
measurements. Where an image can't ask its TPM at all, no boot was ever proved, and no node is taken out for that.
"""

from __future__ import annotations

from reconciler.gate.attestation.expected import basis_of, is_measured, reference_of
from reconciler.health.signals import BOOT_REFUTED, BOOT_UNPROVED, Signal
from reconciler.health.table import table_of
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import REFUTED, UNPROVED, Attempt, NodeRecord
from reconciler.model.vocab import Source

SILENT_TRIES = 3  # as many as a run gives to an action


def boot_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return the signal of a node whose TPM refutes its present boot, or proves it no more, as it proved earlier ones.

    A boot that was proved since, other measurements, and a hold that somebody set and released take it back.
    """
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    if not record.attempts or facts is None or not is_measured(desired.profile):
        return ()
    asked = _asked(record, facts.boot_id or "")
    last = next((one for one in asked if one.judged), None)
    if last is not None and last.detail.startswith(REFUTED):
        name, detail = BOOT_REFUTED, last.detail
    elif last is None and len(asked) >= SILENT_TRIES and _proved_before(desired, record):
        last = asked[0]
        name, detail = BOOT_UNPROVED, f"{last.detail} (asked {len(asked)} times)"
    else:
        return ()
    if last.basis != basis_of(desired.profile, record):
        return ()
    return (Signal(name, detail, table_of(desired.profile).rule_of(name), Source.SSH),)


def _asked(record: NodeRecord, boot_id: str) -> list[Attempt]:
    """Return the attempts that asked for a proof of this boot, newest first, since a person last took a hold away."""
    found: list[Attempt] = []
    for one in reversed(record.since_release):
        if one.action != "check_trust":
            continue
        if one.judged and one.boot_id != boot_id:
            break
        if one.boot_id == boot_id and (one.judged or one.detail.startswith(UNPROVED)):
            found.append(one)
    return found


def _proved_before(desired: Desired, record: NodeRecord) -> bool:
    return record.attestation is not None and record.attestation.reference == reference_of(desired.profile)
