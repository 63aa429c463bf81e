"""The exchange with one machine: its keys, our challenge, its answer, our verdict.

    begin    endorsement key and attestation key    -> a secret that this TPM alone opens, and a nonce
    finish   secret, quote, PCRs, log, host key     -> what the quote proves

An installer has this exchange over HTTP (the install contract), a booted host over SSH.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.credential import Entropy, make_credential
from reconciler.gate.attestation.endorsement import check_endorsement
from reconciler.gate.attestation.event_log import parse_log
from reconciler.gate.attestation.judge import BootJudgement, judge_boot
from reconciler.gate.attestation.keys import TpmKey, check_attestation_key, check_endorsement_key, read_key
from reconciler.gate.attestation.quote import read_quote
from reconciler.model.install import AttestationBegin, AttestationChallenge, AttestationFinish
from reconciler.model.measurements import BootMeasurements, PlatformMeasurements

_SECRET: Final = 32  # bytes


class Untrusted(Exception):
    """A machine that can't be trusted whatever it sends next. The message says why."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The proof that is asked of a machine. `versions`: of its firmware; None = any declared reference will do."""

    boot: BootMeasurements
    platform: PlatformMeasurements
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge that was given out: what its answer is judged by. It counts once."""

    nonce: bytes
    secret: bytes
    ak: TpmKey
    endorsement: str  # fingerprint of the endorsement key


def challenge(
    begin: AttestationBegin, platform: PlatformMeasurements, entropy: Entropy, now: datetime
) -> tuple[AttestationChallenge, Challenge]:
    """Return the challenge for a TPM's keys. Raise Malformed for no keys, Untrusted for keys that prove nothing."""
    ek, ak = read_key(_decode(begin.ek, "ek"), "the endorsement key"), read_key(_decode(begin.ak, "ak"), "the AK")
    problem = check_endorsement_key(ek) or check_attestation_key(ak)
    if not problem and platform.endorsement_authorities is not None:
        certificate = None if begin.ek_cert is None else _decode(begin.ek_cert, "ek_cert")
        problem = check_endorsement(certificate, ek.key, platform.endorsement_authorities, now)
    if problem:
        raise Untrusted(problem)
    given = Challenge(entropy(_SECRET), entropy(_SECRET), ak, ek.fingerprint)
    credential, secret = make_credential(ek, ak.name, given.secret, entropy)
    words = (base64.b64encode(part).decode() for part in (credential, secret, given.nonce))
    return AttestationChallenge(**dict(zip(("credential", "secret", "nonce"), words, strict=True))), given


def verdict(given: Challenge, finish: AttestationFinish, expected: Expected) -> BootJudgement:
    """Judge the answer to a challenge. What it has no proof of is a reason of the judgement, never an error."""
    try:
        if not hmac.compare_digest(_decode(finish.secret, "secret"), given.secret):
            return BootJudgement(("the secret is wrong: the attestation key is not in the TPM of the endorsement key",))
        pcrs = {index: _hex(value) for index, value in finish.pcrs.items()}
        quote = read_quote(_decode(finish.quote, "quote"), _decode(finish.signature, "signature"), pcrs, given.ak)
        if quote.qualifying != qualifying(given.nonce, finish.host_key):
            return BootJudgement(("the quote is not for this nonce and this host key: it is an old one or another's",))
        events = parse_log(_decode(finish.event_log, "event_log"))
    except Malformed as error:
        return BootJudgement((str(error),))
    return judge_boot(quote.pcrs, events, expected.boot, expected.platform, expected.versions)


def qualifying(nonce: bytes, host_key: str) -> bytes:
    """Return what a quote must be over: it ties the host key to the machine and to this moment."""
    return hashlib.sha256(nonce + host_key.encode()).digest()


def _decode(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{what} is not base64") from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Malformed("a PCR's value is not hexadecimal") from None
