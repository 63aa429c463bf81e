"""The certificate of a TPM's endorsement key, checked against the CAs of makers that the spec declares.

Without declared CAs an endorsement key is what a machine said of itself when it was first enrolled, and software could
have said it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from reconciler.gate.attestation.keys import PublicKey


def read_authorities(text: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM text. Raise ValueError for one that is not PEM of CAs."""
    try:
        found = tuple(x509.load_pem_x509_certificates(text.encode()))
    except ValueError as error:
        raise ValueError(f"not PEM certificates: {error}") from None
    for certificate in found:
        if not _may_sign(certificate):
            raise ValueError(f"{certificate.subject.rfc4514_string()} is no CA")
    return found


def check_endorsement(
    certificate: bytes | None, key: PublicKey, authorities: Sequence[x509.Certificate], now: datetime
) -> str:
    """Return why this is no certificate of the key by one of these CAs; "" when it is.

    `certificate`: DER, with or without the padding that TPMs keep behind it. Each declared CA is trusted itself, be it
    a root or not, and its times are not judged: TPMs outlive the certificates of those who made them.
    """
    if certificate is None:
        return "the TPM has no endorsement certificate, and its makers' CAs are declared"
    try:
        own = x509.load_der_x509_certificate(_without_padding(certificate))
        same = _bytes(own.public_key()) == _bytes(key)
    except (ValueError, TypeError) as error:
        return f"the endorsement certificate can't be read: {error}"
    if not same:
        return "the endorsement certificate is of another key"
    if own.not_valid_before_utc > now:
        return f"the endorsement certificate is valid from {own.not_valid_before_utc:%Y-%m-%d} only"
    if not any(_issued(own, authority) for authority in authorities):
        return f"no declared CA issued the endorsement certificate: {own.issuer.rfc4514_string()} did"
    return ""


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _without_padding(der: bytes) -> bytes:
    """Return the DER sequence at the beginning: NVRAM of a TPM has a fixed size."""
    if len(der) < 4 or der[0] != 0x30 or der[1] != 0x82:
        return der
    return der[: 4 + int.from_bytes(der[2:4], "big")]


def _bytes(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]
