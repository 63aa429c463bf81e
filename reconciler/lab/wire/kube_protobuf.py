"""Read the one document that kubectl sends as Protobuf: the SelfSubjectAccessReview of `auth can-i`.

Numbers of fields are those of generated.proto in k8s.io/apimachinery/pkg/runtime and k8s.io/api/authorization/v1.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.lab.wire.kube_objects import Json

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_RAW, _SPEC, _ATTRIBUTES = 2, 2, 1  # of runtime.Unknown, of the review, of its spec
_NAMES = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}


def access_review(body: bytes) -> Json:
    """Return a SelfSubjectAccessReview as it would be in JSON. Raise ValueError when it is none."""
    if not body.startswith(_MAGIC):
        raise ValueError("a Protobuf body begins with k8s and a zero byte")
    spec = _inner(_inner(body[len(_MAGIC) :], _RAW), _SPEC)
    words = {_NAMES[number]: value.decode() for number, value in _fields(_inner(spec, _ATTRIBUTES)) if number in _NAMES}
    return {"spec": {"resourceAttributes": words}}


def _inner(message: bytes, wanted: int) -> bytes:
    return next((value for number, value in _fields(message) if number == wanted), b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of each field that has a length: texts and messages, which is all that a review has."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 != 2:
            raise ValueError(f"field {key >> 3} has wire type {key & 7}, not 2")
        size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError(f"field {key >> 3} is cut off")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    value = bits = 0
    while at < len(message):
        value |= (message[at] & 0x7F) << bits
        bits, at = bits + 7, at + 1
        if not message[at - 1] & 0x80:
            return value, at
    raise ValueError("a number is cut off")
