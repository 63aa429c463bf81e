"""Read what `cosign sign-blob --key` writes: a bare signature, or a bundle of cosign or of sigstore, which hold one.

A bundle may hold a certificate and the entry of a transparency log too. They prove who signed for those who trust an
issuer; here a key that is named outside the spec does, so they are not looked at.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from reconciler.model.json_text import parse_json


def read_bundle(text: str) -> bytes:
    """Return the signature, in DER. Raise ValueError for what is neither a bundle nor base64 of a signature."""
    text = text.strip()
    if text.startswith("{"):
        try:
            text = _signature(parse_json(text))
        except ValueError:
            raise ValueError("not a cosign bundle: it has no base64Signature or messageSignature.signature") from None
    try:
        signature = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not a cosign signature: it is not base64") from None
    if not 8 <= len(signature) <= 72 or signature[0] != 0x30:
        raise ValueError("not a cosign signature of an ECDSA P-256 key")
    return signature


def _signature(bundle: Any) -> str:
    """`cosign --bundle` writes the first form, and with --new-bundle-format the second."""
    message = bundle.get("messageSignature")
    found = message.get("signature") if isinstance(message, dict) else bundle.get("base64Signature")
    if isinstance(found, str):
        return found
    raise ValueError("no signature")
