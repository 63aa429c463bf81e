"""The certificate of a TPM's endorsement key, checked against the CAs of makers that the spec declares.

Without declared CAs an endorsement key is what a machine said of itself when it was first enrolled, and software could
have said it.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from reconciler.gate.attestation.certificate_chain import issued
from reconciler.gate.attestation.keys import PublicKey


def check_endorsement(certificate: bytes | None, key: PublicKey, authorities: str, now: datetime) -> str:
    """Return why this is no certificate of the key by one of these CAs; "" when it is.

    `certificate`: DER, with or without the padding that TPMs keep behind it. `authorities`: PEM. Each declared CA is
    trusted itself, be it a root or not, and its times are not judged: TPMs outlive the certificates of their makers.
    """
    if certificate is None:
        return "the TPM has no endorsement certificate, and its makers' CAs are declared"
    try:
        trusted = x509.load_pem_x509_certificates(authorities.encode())
    except ValueError as error:
        return f"the declared CAs can't be read: {error}"
    try:
        own = x509.load_der_x509_certificate(_without_padding(certificate))
        same = _bytes(own.public_key()) == _bytes(key)
    except (ValueError, TypeError) as error:
        return f"the endorsement certificate can't be read: {error}"
    if not same:
        return "the endorsement certificate is of another key"
    if own.not_valid_before_utc > now:
        return f"the endorsement certificate is valid from {own.not_valid_before_utc:%Y-%m-%d} only"
    if not any(issued(own, authority) for authority in trusted):
        return f"no declared CA issued the endorsement certificate: {own.issuer.rfc4514_string()} did"
    return ""


def _without_padding(der: bytes) -> bytes:
    """Return the DER sequence at the beginning: NVRAM of a TPM has a fixed size."""
    if len(der) < 4 or der[0] != 0x30 or der[1] != 0x82:
        return der
    return der[: 4 + int.from_bytes(der[2:4], "big")]


def _bytes(key: CertificatePublicKeyTypes | PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
