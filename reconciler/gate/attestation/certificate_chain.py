"""The certificate chain of a component, from the key that signs its measurements up to a CA that the spec declares.

BMCs list a chain in either order (a DGX begins with the root, a GB200 with the leaf), so the leaf is found by what it
signs: nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from reconciler.gate.attestation.buffers import Malformed

_LONGEST: Final = 16  # certificates


def trusted_key(chain: str, authorities: str, now: datetime) -> CertificatePublicKeyTypes:
    """Return the key of the leaf of a chain in PEM that a declared CA vouches for. Raise Malformed for any other.

    A declared CA is trusted itself, be it a root or not. That a certificate has expired is not judged: those of
    components don't (9999-12-31), and their CAs outlive them.
    """
    try:
        return _leaf(chain, authorities, now).public_key()
    except Malformed:
        raise
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        raise Malformed("a certificate of its chain can't be read") from None


def _leaf(chain: str, authorities: str, now: datetime) -> x509.Certificate:
    found = _read(chain, "its certificate chain")
    if len(found) > _LONGEST:
        raise Malformed(f"its certificate chain has more than {_LONGEST} certificates")
    trusted = _read(authorities, "the declared CAs")
    leaves = [one for one in found if not any(other is not one and issued(other, one) for other in found)]
    leaf = leaves[0] if len(leaves) == 1 else None
    if leaf is None:
        raise Malformed(f"its certificate chain has {len(leaves)} ends where one belongs")
    _climb(leaf, found, trusted, now)
    return leaf


def _climb(
    leaf: x509.Certificate, found: list[x509.Certificate], trusted: list[x509.Certificate], now: datetime
) -> None:
    """Raise Malformed unless the issuers of a leaf lead to a trusted CA."""
    at = leaf
    for _ in range(_LONGEST):
        if at.not_valid_before_utc > now:
            raise Malformed(f"{_name(at.subject)} in its chain is valid from {at.not_valid_before_utc:%Y-%m-%d} only")
        if any(at == authority or issued(at, authority) for authority in trusted):
            return
        issuer = next((one for one in found if one != at and issued(at, one)), None)
        if issuer is None:
            break
        if not _is_authority(issuer):
            raise Malformed(f"{_name(issuer.subject)} in its certificate chain is no CA")
        at = issuer
    raise Malformed(f"no declared CA is in its certificate chain, which ends with {_name(at.issuer)}")


def _read(pem: str, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        raise Malformed(f"{what} can't be read as PEM") from None


def issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    """Return whether this CA issued the certificate, by name and signature."""
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _name(name: x509.Name) -> str:
    return ascii(name.rfc4514_string())[1:-1]
