"""The public keys that a lab knows, for the images of its spec."""

from __future__ import annotations

import base64
import binascii

from reconciler.model.desired import Fleet

# Signs the example images of fleet-spec and nothing else; its private half is public on purpose.
EXAMPLE = "RWQv3CgBSQ17mwuc/T+z/W+jXVakvKm6aGjhz38M86CoZ8gjW2Gq0g9e"


def known_keys(fleet: Fleet, *more: str) -> dict[str, str]:
    """Return key name in the spec -> public key, for signatures made with one of the known keys."""
    ours = {_key_id(key): key for key in (EXAMPLE, *more)}
    found = {}
    for profile in {desired.profile.digest: desired.profile for desired in fleet.nodes.values()}.values():
        image = profile.image
        if image is None or image.key is None or image.signature is None:
            continue
        lines = image.signature.split("\n")
        public = ours.get(_key_id(lines[1])) if len(lines) > 1 else None
        if public is not None:
            found[image.key] = public
    return found


def _key_id(text: str) -> bytes:
    """Return the key's id: eight bytes after the two of the algorithm, in public keys and signatures alike."""
    try:
        return base64.b64decode(text)[2:10]
    except binascii.Error:
        return b""
