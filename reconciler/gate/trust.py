"""Verify that an image is the one that its publisher signed: minisign or cosign over `name version sha256`.

The public key comes from outside the spec: whoever can change a signature in the spec could change a key there, too.
Both forms of minisign are read, "Ed" (of the message) and "ED" (of its BLAKE2b-512), and the global signature over the
trusted comment is checked as well. Of cosign, `cosign sign-blob --key` of that line with an ECDSA P-256 key is read. An
image that can't be checked is not trusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from reconciler.model.cosign import read_bundle
from reconciler.model.desired import Desired, DesiredImage
from reconciler.model.gate import GateJudgement, Verdict
from reconciler.model.observed import Observed, Silent


class BadSignature(ValueError):
    """A signature is not valid. The message says why."""


def statement(image: DesiredImage) -> bytes:
    """Return the signed message: one line that ties the name and version to the content."""
    return f"{image.name} {image.version} {image.sha256}\n".encode()


def verify_minisign(message: bytes, signature: str, public_key: str) -> str:
    """Return the trusted comment of a valid signature. Raise BadSignature for any other."""
    key_id, key = _public_key(public_key)
    lines = [line.strip() for line in signature.strip().splitlines()]
    if len(lines) != 4 or not lines[2].startswith("trusted comment: "):
        raise BadSignature("not a minisign signature of four lines")
    blob, seal = _decode(lines[1], 74), _decode(lines[3], 64)
    algorithm, signed_by, proof = blob[:2], blob[2:10], blob[10:]
    if algorithm not in (b"Ed", b"ED"):
        raise BadSignature(f"unknown signature algorithm {algorithm!r}")
    if signed_by != key_id:
        raise BadSignature("signed with another key")
    comment = lines[2].removeprefix("trusted comment: ")
    signed = hashlib.blake2b(message).digest() if algorithm == b"ED" else message
    try:
        key.verify(proof, signed)
        key.verify(seal, proof + comment.encode())
    except InvalidSignature:
        raise BadSignature("the signature does not verify") from None
    return comment


def verify_cosign(message: bytes, bundle: str, public_key: str) -> None:
    """Raise BadSignature unless a cosign signature, bare or in a bundle, is one of `message` by this key in PEM."""
    try:
        key = load_pem_public_key(public_key.encode())
    except ValueError:
        raise BadSignature("not a public key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadSignature("not an ECDSA P-256 key")
    try:
        key.verify(read_bundle(bundle), message, ec.ECDSA(hashes.SHA256()))
    except ValueError as error:
        raise BadSignature(str(error)) from None
    except InvalidSignature:
        raise BadSignature("the signature does not verify") from None


def _public_key(text: str) -> tuple[bytes, Ed25519PublicKey]:
    lines = [line.strip() for line in text.strip().splitlines() if not line.startswith("untrusted comment:")]
    blob = _decode(lines[-1] if lines else "", 42)
    if blob[:2] != b"Ed":
        raise BadSignature("not a minisign public key")
    return blob[2:10], Ed25519PublicKey.from_public_bytes(blob[10:])


def _decode(text: str, size: int) -> bytes:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadSignature("not base64") from None
    if len(blob) != size:
        raise BadSignature(f"{len(blob)} bytes where {size} belong")
    return blob


def verify_image(image: DesiredImage, public_key: str | None) -> bool | None:
    """Return whether the image is signed by this key; None when the key is not known."""
    if image.key is None or image.signature is None:
        return False
    if public_key is None:
        return None
    try:
        if image.signature.startswith("untrusted comment: "):
            verify_minisign(statement(image), image.signature, public_key)
        else:
            verify_cosign(statement(image), image.signature, public_key)
    except BadSignature:
        return False
    return True


def check_trust(desired: Desired, observed: Observed, verified: bool | None) -> GateJudgement:
    """Judge whether the node runs the declared image, signed and with the declared secure boot.

    `verified` is the result of `verify_image`.
    """
    image = desired.profile.image
    if isinstance(observed.host, Silent):
        return GateJudgement(False, Verdict.ERROR, (f"the host does not answer: {observed.host.reason}",))
    facts = observed.host.value
    if image is not None:
        if facts.image is None or facts.image.sha256 is None:
            return GateJudgement(False, Verdict.UNJUDGED, ("the host does not say which image it runs",))
        if facts.image.sha256 != image.sha256:
            return GateJudgement(
                False, Verdict.FAIL, (f"runs image digest {facts.image.sha256}, {image.sha256} is declared",)
            )
        if verified is None:
            return GateJudgement(
                False, Verdict.UNJUDGED, (f"no public key {image.key!r} is configured outside the spec",)
            )
        if not verified:
            return GateJudgement(False, Verdict.FAIL, ("the image's signature does not verify",))
    if desired.profile.secure_boot is not None:
        bmc = None if isinstance(observed.inventory, Silent) else observed.inventory.value.secure_boot
        if bmc is None:
            return GateJudgement(False, Verdict.UNJUDGED, ("the BMC does not say whether secure boot is on",))
        for source, state in (("BMC", bmc), ("host", facts.secure_boot)):
            if state is not None and state != desired.profile.secure_boot:
                reason = f"the {source} says that secure boot is {'on' if state else 'off'}"
                return GateJudgement(False, Verdict.FAIL, (reason,))
    return GateJudgement(True, Verdict.PASS)
