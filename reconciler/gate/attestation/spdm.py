"""The measurements of a component by SPDM 1.0 or 1.1 (DMTF DSP0274), as a BMC hands them on (DSP0268).

`SignedMeasurements` of Redfish is the transcript that the component signed: GET_MEASUREMENTS and MEASUREMENTS in turn,
and a signature over all before it. The BMC is a messenger, and is believed nothing: what the signature does not cover
does not count. From SPDM 1.2 on the transcript and the signature have another form, which is not read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from reconciler.gate.attestation.buffers import Malformed, Reader

NONCE: Final = 32  # bytes
MAX_TRANSCRIPT: Final = 1 << 18  # bytes; the 64 blocks of a Hopper GPU take 4 KiB
V10, V11 = 0x10, 0x11
GET_MEASUREMENTS, MEASUREMENTS = 0xE0, 0x60
SIGNED: Final = 0x01  # of the request's first parameter
ALL: Final = 0xFF  # of its second one: every measurement
DMTF: Final = 0x01  # of MeasurementSpecification

_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "SHA_256": hashes.SHA256(), "SHA_384": hashes.SHA384(), "SHA_512": hashes.SHA512(),
}  # fmt: skip
_OF_CURVE: Final = {"secp256r1": hashes.SHA256(), "secp384r1": hashes.SHA384(), "secp521r1": hashes.SHA512()}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript that was parsed, and not verified. `values`: by index, digests or bits, in hexadecimal."""

    nonce: bytes
    values: Mapping[str, str]
    signed: bytes
    signature: bytes


def read_transcript(data: bytes) -> Transcript:
    """Parse a transcript. Raise Malformed unless it is whole, and ends with one signed answer."""
    if len(data) > MAX_TRANSCRIPT:
        raise Malformed(f"the transcript has more than {MAX_TRANSCRIPT} bytes")
    reader = Reader(data, "the transcript", little=True)
    values: dict[str, str] = {}
    while True:
        version, nonce = _request(reader)
        for index, value in _response(reader, version):
            if values.setdefault(index, value) != value:
                raise Malformed(f"measurement {index} has two values")
        if nonce is not None:
            break
    signed = data[: reader.at]
    return Transcript(nonce, values, signed, reader.take(reader.left))


def _request(reader: Reader) -> tuple[int, bytes | None]:
    """Return the version of a request, and its nonce; None where it asks for no signature."""
    version = _head(reader, GET_MEASUREMENTS, "GET_MEASUREMENTS")
    asked = reader.u8()
    reader.u8()  # which measurements
    if not asked & SIGNED:
        return version, None
    nonce = reader.take(NONCE)
    if version >= V11:
        reader.u8()  # slot of the certificate chain
    return version, nonce


def _response(reader: Reader, version: int) -> list[tuple[str, str]]:
    if _head(reader, MEASUREMENTS, "MEASUREMENTS") != version:
        raise Malformed("the transcript has messages of two versions of SPDM")
    reader.take(2)  # parameters
    count = reader.u8()
    record = Reader(reader.take(_u24(reader)), "the measurement record", little=True)
    found = [_block(record) for _ in range(count)]
    record.end()
    reader.take(NONCE)  # of the component
    reader.take(reader.u16())  # opaque data
    return found


def _head(reader: Reader, code: int, name: str) -> int:
    version = reader.u8()
    if version not in (V10, V11):
        raise Malformed(f"the transcript is of SPDM {version >> 4}.{version & 15}; 1.0 and 1.1 are read")
    if reader.u8() != code:
        raise Malformed(f"the transcript has another message where {name} belongs")
    return version


def _u24(reader: Reader) -> int:
    return int.from_bytes(reader.take(3), "little")


def _block(record: Reader) -> tuple[str, str]:
    index, specification = record.u8(), record.u8()
    block = Reader(record.take(record.u16()), f"measurement {index}", little=True)
    if specification != DMTF:
        raise Malformed(f"measurement {index} is of the specification {specification:#04x}, not of DMTF's")
    block.u8()  # kind of what was measured, and whether the value is a digest
    value = block.take(block.u16())
    block.end()
    return str(index), value.hex()


def check_signature(transcript: Transcript, key: object, hash_name: str) -> str:
    """Return why this key did not sign the transcript; "" when it did. `hash_name`: as the BMC tells it.

    SPDM 1.1 puts the hash of signatures into no transcript, and HashingAlgorithm is that of the measurements on some
    BMCs (BlueField 3 and GB200 say SHA-512, and sign with SHA-384), so the hash that belongs to the curve will do, too.
    """
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _OF_CURVE:
        return "the key of its certificate is not one of ECDSA, which alone is read"
    size = (key.curve.key_size + 7) // 8
    if len(transcript.signature) != 2 * size:
        return f"its signature has {len(transcript.signature)} bytes where {2 * size} belong: it was cut off or altered"
    r, s = (int.from_bytes(part, "big") for part in (transcript.signature[:size], transcript.signature[size:]))
    told = next((found for name, found in _HASHES.items() if hash_name.endswith(name)), None)
    for algorithm in filter(None, (_OF_CURVE[key.curve.name], told)):
        try:
            key.verify(encode_dss_signature(r, s), transcript.signed, ec.ECDSA(algorithm))
        except InvalidSignature:
            continue
        return ""
    return "its signature is not by the key of its certificate chain: it was altered, or the chain is another device's"
