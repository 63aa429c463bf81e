"""A TPM's quote: TPMS_ATTEST and its TPMT_SIGNATURE. A TPM signs no other text that begins as a quote does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from reconciler.gate.attestation.buffers import Malformed, Reader
from reconciler.gate.attestation.keys import ECDSA, HASHES, RSAPSS, RSASSA, SHA256, TpmKey, digest

_GENERATED: Final = 0xFF544347  # TPM_GENERATED_VALUE
_QUOTE: Final = 0x8018  # TPM_ST_ATTEST_QUOTE


@dataclass(frozen=True, slots=True)
class Quote:
    """The statement of a quote whose signature is valid. `pcrs`: values of the sha256 bank that it vouches for."""

    qualifying: bytes  # extraData: what the verifier asked to have signed
    resets: int  # how often the TPM was reset: it grows with each boot
    restarts: int
    pcrs: Mapping[int, bytes]


def read_quote(statement: bytes, signature: bytes, pcrs: Mapping[int, bytes], key: TpmKey) -> Quote:
    """Verify a quote and the values that are said to be those of its PCRs. Raise Malformed when one is not genuine."""
    algorithm = _verify(statement, signature, key)
    reader = Reader(statement, "the quote")
    if reader.u32() != _GENERATED or reader.u16() != _QUOTE:
        raise Malformed("what was signed is no quote")
    reader.sized()  # qualifiedSigner: a name of the key that the TPM's hierarchy is part of
    qualifying = reader.sized()
    reader.u64()  # clock
    resets, restarts = reader.u32(), reader.u32()
    reader.u8()  # safe
    reader.u64()  # firmwareVersion
    selected = _selection(reader)
    told = reader.sized()
    reader.end()
    if set(selected) - set(pcrs):
        raise Malformed(f"the values of PCRs {_list(set(selected) - set(pcrs))} are missing")
    if any(len(pcrs[index]) != 32 for index in selected):
        raise Malformed("a value of the sha256 bank has 32 bytes")
    if digest(algorithm, b"".join(pcrs[index] for index in selected)) != told:
        raise Malformed("the values of the PCRs are not those that were quoted")
    return Quote(qualifying, resets, restarts, {index: pcrs[index] for index in selected})


def _selection(reader: Reader) -> list[int]:
    if reader.u32() != 1 or reader.u16() != SHA256:
        raise Malformed("the quote is not of the sha256 bank alone")
    bits = int.from_bytes(reader.take(reader.u8()), "little")
    return [index for index in range(bits.bit_length()) if bits >> index & 1]


def _verify(statement: bytes, signature: bytes, key: TpmKey) -> int:
    """Check the signature, under the scheme that the key is bound to. Return its hash algorithm."""
    reader = Reader(signature, "the signature")
    scheme = (reader.u16(), reader.u16())
    if scheme != key.scheme or scheme[1] not in HASHES:
        raise Malformed("the signature has another scheme than its key")
    algorithm = HASHES[scheme[1]]
    parts = [reader.sized() for _ in range(2 if scheme[0] == ECDSA else 1)]
    reader.end()
    try:
        if isinstance(key.key, rsa.RSAPublicKey) and scheme[0] in (RSASSA, RSAPSS):
            pss = padding.PSS(padding.MGF1(algorithm), padding.PSS.AUTO)
            key.key.verify(parts[0], statement, padding.PKCS1v15() if scheme[0] == RSASSA else pss, algorithm)
        elif isinstance(key.key, ec.EllipticCurvePublicKey) and scheme[0] == ECDSA:
            numbers = (int.from_bytes(part, "big") for part in parts)
            key.key.verify(encode_dss_signature(*numbers), statement, ec.ECDSA(algorithm))
        else:
            raise Malformed("the signature is of another kind than its key")
    except InvalidSignature:
        raise Malformed("the quote's signature does not verify") from None
    return scheme[1]


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
