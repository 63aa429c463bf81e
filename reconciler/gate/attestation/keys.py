"""The public part of a TPM's keys: TPM2B_PUBLIC, its attributes, its name, and the key itself (TPM 2.0, parts 2 and 1).

Attributes of a key are claims: anyone can write them. They count once the name, which is a digest over them, was proved
to be that of a key inside the TPM (credential.py).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from reconciler.gate.attestation.buffers import Malformed, Reader

RSA, ECC, NULL = 0x0001, 0x0023, 0x0010
SHA256, SHA384 = 0x000B, 0x000C
AES, CFB = 0x0006, 0x0043
RSASSA, RSAPSS, ECDSA = 0x0014, 0x0016, 0x0018

HASHES: Final[dict[int, hashes.HashAlgorithm]] = {SHA256: hashes.SHA256(), SHA384: hashes.SHA384()}
_CURVES: Final[dict[int, ec.EllipticCurve]] = {0x0003: ec.SECP256R1(), 0x0004: ec.SECP384R1()}

FIXED_TPM, FIXED_PARENT, SENSITIVE_DATA_ORIGIN = 1 << 1, 1 << 4, 1 << 5
RESTRICTED, DECRYPT, SIGN = 1 << 16, 1 << 17, 1 << 18
_NAMES: Final = {
    FIXED_TPM: "fixedTPM", FIXED_PARENT: "fixedParent", SENSITIVE_DATA_ORIGIN: "sensitiveDataOrigin",
    RESTRICTED: "restricted", DECRYPT: "decrypt", SIGN: "sign",
}  # fmt: skip
_MADE_IN_TPM: Final = FIXED_TPM | FIXED_PARENT | SENSITIVE_DATA_ORIGIN | RESTRICTED

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True, slots=True)
class TpmKey:
    """A TPM2B_PUBLIC. `scheme`: the signature scheme that the key is bound to, and its hash; NULL = none."""

    name_algorithm: int
    attributes: int
    symmetric: tuple[int, int, int] | None  # algorithm, bits and mode of what a storage key encrypts with
    scheme: tuple[int, int]
    key: PublicKey
    area: bytes  # TPMT_PUBLIC

    @property
    def name(self) -> bytes:
        """The TPM's name of the key: its algorithm, and the digest of its public area."""
        return struct.pack(">H", self.name_algorithm) + digest(self.name_algorithm, self.area)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public area, in hexadecimal."""
        return hashlib.sha256(self.area).hexdigest()


def digest(algorithm: int, data: bytes) -> bytes:
    """Hash with an algorithm by its TPM number. Raise Malformed for one that is not accepted, like SHA-1."""
    if algorithm not in HASHES:
        raise Malformed(f"hash algorithm {algorithm:#06x} is not accepted")
    return hashlib.new(HASHES[algorithm].name, data).digest()


def read_key(blob: bytes, what: str) -> TpmKey:
    """Parse a TPM2B_PUBLIC of an RSA or ECC key."""
    outer = Reader(blob, what)
    area = outer.sized()
    outer.end()
    reader = Reader(area, what)
    kind, name_algorithm, attributes = reader.u16(), reader.u16(), reader.u32()
    reader.sized()  # authPolicy
    if kind not in (RSA, ECC):
        raise Malformed(f"{what} is neither an RSA nor an ECC key")
    digest(name_algorithm, b"")
    algorithm = reader.u16()
    symmetric = None if algorithm == NULL else (algorithm, reader.u16(), reader.u16())
    scheme_algorithm = reader.u16()
    scheme = (scheme_algorithm, NULL if scheme_algorithm == NULL else reader.u16())
    key = _rsa(reader, what) if kind == RSA else _ecc(reader, what)
    reader.end()
    return TpmKey(name_algorithm, attributes, symmetric, scheme, key, area)


def _rsa(reader: Reader, what: str) -> rsa.RSAPublicKey:
    bits, exponent = reader.u16(), reader.u32() or 65537
    modulus = int.from_bytes(reader.sized(), "big")
    if bits < 2048 or modulus.bit_length() != bits:
        raise Malformed(f"{what} has an RSA modulus of {modulus.bit_length()} bits and says {bits}; 2048 are needed")
    try:
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise Malformed(f"{what} is no RSA key: {error}") from None


def _ecc(reader: Reader, what: str) -> ec.EllipticCurvePublicKey:
    curve, derivation = reader.u16(), reader.u16()
    if derivation != NULL:
        reader.u16()
    x, y = (int.from_bytes(reader.sized(), "big") for _ in "xy")
    if curve not in _CURVES:
        raise Malformed(f"{what} is on the curve {curve:#06x}, which is not accepted")
    try:
        return ec.EllipticCurvePublicNumbers(x, y, _CURVES[curve]).public_key()
    except ValueError as error:
        raise Malformed(f"{what} is no point of its curve: {error}") from None


def check_attestation_key(key: TpmKey) -> str:
    """Return why this can't be a key that signs what its TPM says and nothing else; "" when it can.

    A key that is not restricted would sign anything, also a quote that somebody made up.
    """
    lacks = _lacking(key, _MADE_IN_TPM | SIGN)
    if lacks:
        return f"the attestation key is not {lacks}"
    if key.attributes & DECRYPT:
        return "the attestation key may decrypt"
    if key.scheme[0] not in (RSASSA, RSAPSS, ECDSA) or key.scheme[1] not in HASHES:
        return "the attestation key has no signature scheme with SHA-256 or SHA-384"
    return ""


def check_endorsement_key(key: TpmKey) -> str:
    """Return why a TPM would not use this as an endorsement key; "" when it would."""
    lacks = _lacking(key, _MADE_IN_TPM | DECRYPT)
    if lacks:
        return f"the endorsement key is not {lacks}"
    if key.attributes & SIGN:
        return "the endorsement key may sign"
    if key.symmetric is None or key.symmetric[0] != AES or key.symmetric[2] != CFB:
        return "the endorsement key does not encrypt with AES-CFB"
    return ""


def _lacking(key: TpmKey, needed: int) -> str:
    return ", ".join(name for bit, name in _NAMES.items() if needed & bit and not key.attributes & bit)
