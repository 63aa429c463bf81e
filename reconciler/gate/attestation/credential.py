"""Make a credential (TPM2_MakeCredential): a secret that one TPM opens, and only for a key that is inside it.

The TPM of the endorsement key opens it with TPM2_ActivateCredential, for the key whose name it holds. A key of software
beside a genuine endorsement key has a name, too, but no TPM has that key. TPM 2.0 part 1, section 24 and annexes B, C.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from reconciler.gate.attestation.buffers import Malformed, sized
from reconciler.gate.attestation.keys import HASHES, TpmKey

Entropy = Callable[[int], bytes]


def make_credential(ek: TpmKey, name: bytes, secret: bytes, entropy: Entropy) -> tuple[bytes, bytes]:
    """Return TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET of a secret for the key of this name.

    `entropy`: returns as many unpredictable bytes as it is asked for.
    """
    algorithm = HASHES[ek.name_algorithm]
    if ek.symmetric is None:
        raise Malformed("the endorsement key has no symmetric cipher")
    if isinstance(ek.key, rsa.RSAPublicKey):
        seed = entropy(algorithm.digest_size)
        encrypted = _oaep(ek.key, seed, algorithm.name, entropy(algorithm.digest_size))
    else:
        seed, encrypted = _share(ek.key, algorithm.name, algorithm.digest_size, entropy)
    cipher_key = _kdfa(algorithm.name, seed, "STORAGE", name, ek.symmetric[1] // 8)
    mac_key = _kdfa(algorithm.name, seed, "INTEGRITY", b"", algorithm.digest_size)
    identity = _aes_cfb(cipher_key, sized(secret))
    integrity = hmac.digest(mac_key, identity + name, algorithm.name)
    return sized(sized(integrity) + identity), sized(encrypted)


def _kdfa(algorithm: str, key: bytes, label: str, context: bytes, size: int) -> bytes:
    """Derive `size` bytes, at most one digest (part 1, 11.4.10.2)."""
    message = struct.pack(">I", 1) + label.encode() + b"\0" + context + struct.pack(">I", size * 8)
    return hmac.digest(key, message, algorithm)[:size]


def _share(key: ec.EllipticCurvePublicKey, algorithm: str, size: int, entropy: Entropy) -> tuple[bytes, bytes]:
    """Return a seed by a Diffie-Hellman exchange with a key of this one time, and the TPMS_ECC_POINT of that key."""
    width = (key.curve.key_size + 7) // 8
    # Eight bytes more than the order has: the remainder is as good as uniform (FIPS 186-5, A.2.1).
    order = key.curve.group_order
    own = ec.derive_private_key(int.from_bytes(entropy(width + 8), "big") % (order - 1) + 1, key.curve)
    mine, theirs = own.public_key().public_numbers(), key.public_numbers()
    parts = b"".join(number.x.to_bytes(width, "big") for number in (mine, theirs))
    message = struct.pack(">I", 1) + own.exchange(ec.ECDH(), key) + b"IDENTITY\0" + parts
    point = sized(mine.x.to_bytes(width, "big")) + sized(mine.y.to_bytes(width, "big"))
    return hashlib.new(algorithm, message).digest()[:size], point


def _oaep(key: rsa.RSAPublicKey, message: bytes, algorithm: str, seed: bytes) -> bytes:
    """Encrypt by RSAES-OAEP (RFC 8017, 7.1.1) under the label that a TPM expects, whose NUL belongs to it."""
    numbers = key.public_numbers()
    size = key.key_size // 8
    label = hashlib.new(algorithm, b"IDENTITY\0").digest()
    padding = bytes(size - len(message) - 2 * len(label) - 2)
    block = label + padding + b"\x01" + message
    masked = _xor(block, _mgf1(algorithm, seed, len(block)))
    encoded = b"\0" + _xor(seed, _mgf1(algorithm, masked, len(seed))) + masked
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def _mgf1(algorithm: str, seed: bytes, size: int) -> bytes:
    mask = b""
    while len(mask) < size:
        count = len(mask) // len(seed)
        mask += hashlib.new(algorithm, seed + struct.pack(">I", count)).digest()
    return mask[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def _aes_cfb(key: bytes, text: bytes) -> bytes:
    """Encrypt by AES in CFB mode with an IV of zeros. The library has this mode only among what it retires."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - CFB is built of single blocks
    block, done = bytes(16), b""
    for start in range(0, len(text), 16):
        part = text[start : start + 16]
        block = _xor(part, encryptor.update(block)[: len(part)])
        done += block
    return done
