"""Judge what a component signed, against what the spec declares for it.

Nothing ties a component to its node: a BMC could show the answers of another machine's genuine component. Two
components of one node with one key, though, are one that answered twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.certificate_chain import trusted_key
from reconciler.gate.attestation.spdm import check_signature, read_transcript
from reconciler.model.measurements import ComponentMeasurements, SignedMeasurements


@dataclass(frozen=True, slots=True)
class ComponentState:
    """The state that one component signed. `reason`: why it is not what is declared; "" when it is.

    `values`: by index, for a person to review before they become a reference. `key`: fingerprint of the key that
    signed; "" where nothing is proved.
    """

    reason: str
    values: Mapping[str, str]
    key: str = ""


def judge_component(
    answer: SignedMeasurements,
    nonce: bytes,
    declared: ComponentMeasurements,
    versions: Mapping[str, str],
    now: datetime,
) -> ComponentState:
    """Judge one answer. `nonce`: what was asked under. `versions`: of the node's firmware, as the BMC tells them."""
    try:
        transcript = read_transcript(_decoded(answer.signed))
        if not hmac.compare_digest(transcript.nonce, nonce):
            return ComponentState("its measurements are not for this nonce: they are old ones, or another's", {})
        key = trusted_key(answer.certificates, declared.authorities, now)
        problem = check_signature(transcript, key, answer.hash)
    except Malformed as error:
        return ComponentState(str(error), {})
    if problem:
        return ComponentState(problem, {})
    fingerprint = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return ComponentState(_differs(transcript.values, declared, versions), transcript.values, fingerprint)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error too
        raise Malformed("its signed measurements are not base64") from None


def _differs(values: Mapping[str, str], declared: ComponentMeasurements, versions: Mapping[str, str]) -> str:
    """Return why the values are those of no declared reference; "" where they are, or where none is declared."""
    if not declared.references:
        return ""
    fitting = [reference for reference in declared.references if reference.fits(versions)]
    if not fitting:
        names = sorted({name for reference in declared.references for name in reference.versions})
        have = ", ".join(f"{name} {versions.get(name, 'of an unknown version')}" for name in names)
        return f"no reference is declared for {have}"
    others = [
        {index for index, value in reference.values.items() if values.get(index) != value} for reference in fitting
    ]
    nearest = min(others, key=len)
    told = ", ".join(f"{index} is {values.get(index, 'missing')}" for index in sorted(nearest, key=int))
    return f"it does not run the declared firmware: measurement {told}" if nearest else ""


def one_answered_twice(keys: Mapping[str, str]) -> str:
    """Return which components signed with one key; "" if each has its own. `keys`: fingerprints by component."""
    by_key: dict[str, list[str]] = {}
    for component, key in keys.items():
        by_key.setdefault(key, []).append(component)
    same = next((names for key, names in by_key.items() if key and len(names) > 1), None)
    return f"{' and '.join(same)} signed with the same key: one of them answered for the others" if same else ""
