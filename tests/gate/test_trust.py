"""Signatures of images: real minisign and openssl where they are installed, and every way not to be trusted."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from reconciler.gate.trust import (
    BadSignature,
    check_trust,
    statement,
    verify_cosign,
    verify_image,
    verify_minisign,
)
from reconciler.model.gate import Verdict
from tests import builders as b

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY_ID = b"12345678"
PUBLIC = base64.b64encode(b"Ed" + KEY_ID + PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def sign(message: bytes, *, algorithm: bytes = b"ED", comment: str = "image v1", key_id: bytes = KEY_ID) -> str:
    signed = hashlib.blake2b(message).digest() if algorithm == b"ED" else message
    proof = PRIVATE.sign(signed)
    seal = PRIVATE.sign(proof + comment.encode())
    blob = base64.b64encode(algorithm + key_id + proof).decode()
    return f"untrusted comment: x\n{blob}\ntrusted comment: {comment}\n{base64.b64encode(seal).decode()}\n"


@pytest.mark.parametrize("algorithm", [b"Ed", b"ED"])
def test_both_forms_hold(algorithm: bytes) -> None:
    assert verify_minisign(b"hello", sign(b"hello", algorithm=algorithm), PUBLIC) == "image v1"


def test_every_tampering_is_named() -> None:
    good = sign(b"hello")
    for message, signature, key, why in (
        (b"hellO", good, PUBLIC, "does not verify"),
        (b"hello", good.replace("image v1", "image v2"), PUBLIC, "does not verify"),
        (b"hello", sign(b"hello", key_id=b"87654321"), PUBLIC, "another key"),
        (b"hello", "", PUBLIC, "four lines"),
        (b"hello", good, "not base64!", "base64"),
        (b"hello", good, base64.b64encode(b"x" * 42).decode(), "not a minisign public key"),
        (b"hello", sign(b"hello", algorithm=b"XX"), PUBLIC, "algorithm"),
    ):
        with pytest.raises(BadSignature, match=why):
            verify_minisign(message, signature, key)


@given(st.data())
def test_a_changed_signature_never_holds(data: st.DataObject) -> None:
    good = sign(b"hello")
    at = data.draw(st.integers(good.index("\n") + 1, len(good) - 2))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != good[at]))
    try:
        verify_minisign(b"hello", good[:at] + other + good[at + 1 :], PUBLIC)
    except BadSignature:
        return
    # base64's last character carries unused bits, and lines may end in more than one way: it is the same signature
    assert good[at + 1 : at + 3].strip("=\n") == "" or good[at] in "=\n", (at, good[at], other)


def test_an_image_without_key_or_signature_is_not_trusted() -> None:
    image = replace(b.IMAGE, signature=sign(statement(b.IMAGE)))
    assert verify_image(image, PUBLIC) is True
    assert verify_image(image, None) is None
    assert verify_image(replace(image, signature=None), PUBLIC) is False
    assert verify_image(replace(image, key=None), PUBLIC) is False
    assert verify_image(replace(image, version="2026.10.1"), PUBLIC) is False, "a signature holds for one version"
    assert verify_image(replace(image, sha256="00" * 32), PUBLIC) is False


def test_check_trust() -> None:
    node, seen = b.node(), b.observed()
    assert check_trust(node, seen, True).valid
    assert check_trust(node, seen, None).verdict is Verdict.UNJUDGED
    assert check_trust(node, seen, False).verdict is Verdict.FAIL
    assert check_trust(node, b.observed(host=b.silent()), True).verdict is Verdict.ERROR
    assert check_trust(node, b.observed(inventory=b.inventory(secure_boot=None)), True).verdict is Verdict.UNJUDGED
    assert check_trust(node, b.observed(host=b.facts(secure_boot=False)), True).verdict is Verdict.FAIL
    assert check_trust(node, b.observed(host=b.facts(image=None)), True).verdict is Verdict.UNJUDGED


@pytest.mark.tool
def test_signatures_of_real_minisign_hold(tmp_path: Path) -> None:
    if shutil.which("minisign") is None:
        pytest.skip("minisign is not installed (apt-get install minisign)")
    (tmp_path / "statement").write_bytes(statement(b.IMAGE))
    run = {"cwd": tmp_path, "check": True, "capture_output": True}
    subprocess.run(["minisign", "-G", "-W", "-p", "key.pub", "-s", "key"], **run)  # type: ignore[call-overload]
    subprocess.run(["minisign", "-S", "-s", "key", "-m", "statement", "-t", "v1"], **run)  # type: ignore[call-overload]
    signature = (tmp_path / "statement.minisig").read_text()
    assert verify_minisign(statement(b.IMAGE), signature, (tmp_path / "key.pub").read_text()) == "v1"


COSIGN = ec.derive_private_key(7, ec.SECP256R1())
COSIGN_PUBLIC = COSIGN.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def cosign(message: bytes, *, key: ec.EllipticCurvePrivateKey = COSIGN) -> str:
    return base64.b64encode(key.sign(message, ec.ECDSA(hashes.SHA256()))).decode()


def bundles(signature: str) -> list[str]:
    """What cosign writes: the signature itself, --bundle, and --bundle with --new-bundle-format (sigstore's v0.3)."""
    return [
        signature + "\n",
        json.dumps({"base64Signature": signature, "cert": "", "rekorBundle": None}),
        json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
                "messageSignature": {
                    "messageDigest": {"algorithm": "SHA2_256", "digest": "eA=="}, "signature": signature,
                },
            }
        ),
    ]  # fmt: skip


def test_every_form_of_a_cosign_signature_counts_and_holds_for_one_image_alone() -> None:
    for bundle in bundles(cosign(statement(b.IMAGE))):
        image = replace(b.IMAGE, signature=bundle)
        assert verify_image(image, COSIGN_PUBLIC) is True, bundle
        assert verify_image(image, None) is None
        assert verify_image(image, PUBLIC) is False, "a key of minisign is no key of cosign"
        assert verify_image(replace(image, version="2026.10.1"), COSIGN_PUBLIC) is False
        assert verify_image(replace(image, sha256="00" * 32), COSIGN_PUBLIC) is False


def test_no_other_cosign_signature_holds() -> None:
    other, large = ec.derive_private_key(8, ec.SECP256R1()), ec.derive_private_key(8, ec.SECP384R1())
    wide = large.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for signature, key, why in (
        (cosign(b"hello", key=other), COSIGN_PUBLIC, "does not verify"),
        (cosign(b"hello", key=large), wide, "not an ECDSA P-256 key"),
        (cosign(b"hello"), "-----BEGIN PUBLIC KEY-----", "not a public key"),
        (base64.b64encode(b"\x30" + b"\x00" * 69).decode(), COSIGN_PUBLIC, "does not verify"),
        (base64.b64encode(b"x" * 64).decode(), COSIGN_PUBLIC, "not a cosign signature"),
        ("{}", COSIGN_PUBLIC, "not a cosign bundle"),
        ('{"messageSignature": []}', COSIGN_PUBLIC, "not a cosign bundle"),
        ("[" * 100_000, COSIGN_PUBLIC, "not base64"),
        ("{" * 100_000, COSIGN_PUBLIC, "not a cosign bundle"),
    ):
        with pytest.raises(BadSignature, match=why):
            verify_cosign(b"hello", signature, key)


@pytest.mark.tool
def test_openssl_makes_signatures_like_cosign_that_hold(tmp_path: Path) -> None:
    """`cosign sign-blob --key` signs a file's SHA-256 with ECDSA and prints base64 of DER; so does openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    (tmp_path / "statement").write_bytes(statement(b.IMAGE))
    key = COSIGN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key").write_bytes(key)
    argv = ["openssl", "dgst", "-sha256", "-sign", "key", "statement"]
    signature = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True).stdout
    assert verify_image(replace(b.IMAGE, signature=base64.b64encode(signature).decode()), COSIGN_PUBLIC) is True
