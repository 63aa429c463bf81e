"""Read whom an installer is to trust: certificates of CAs, and public keys that sign images."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from reconciler.model.errors import UsageError

_KEY_BYTES: Final = 42  # of a minisign public key: algorithm, id and Ed25519 key


def read_certificates(file: Path) -> bytes:
    """Return the certificates of a PEM file and nothing else of it: a private key beside them must not get out."""
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file}: no certificate in PEM: {error}") from None
    return b"".join(one.public_bytes(Encoding.PEM) for one in found)


def read_minisign_key(file: Path) -> bytes:
    """Return a file with a minisign public key as it is. Raise UsageError for any other."""
    text = file.read_bytes()
    lines = text.strip().splitlines()
    try:
        blob = base64.b64decode(lines[-1] if lines else b"", validate=True)
    except binascii.Error:
        blob = b""
    if len(blob) != _KEY_BYTES or not blob.startswith(b"Ed"):
        raise UsageError(f"{file}: not a minisign public key, as in minisign.pub")
    return text
