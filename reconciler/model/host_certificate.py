"""SSH host certificates: what the ledger knows of a node's, and when it is to be renewed."""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from reconciler.model.privacy import Identifier

_KEY_FIELDS = {  # of the certified key, by the kind of certificate (PROTOCOL.certkeys of OpenSSH)
    "ssh-ed25519-cert-v01@openssh.com": 1,
    "ecdsa-sha2-nistp256-cert-v01@openssh.com": 2,
    "ecdsa-sha2-nistp384-cert-v01@openssh.com": 2,
    "ecdsa-sha2-nistp521-cert-v01@openssh.com": 2,
    "ssh-rsa-cert-v01@openssh.com": 2,
}
_LAST = datetime(9999, 12, 31, tzinfo=UTC)  # "forever", too


@dataclass(frozen=True, slots=True)
class HostCertificate:
    """The host key that an installation of a node recorded, as a line without comment, and its last certificate."""

    key: Identifier
    valid_after: datetime
    valid_before: datetime

    def renewal_at(self, node: str) -> datetime:
        """Return when to renew it: with a third of its time left, or later by up to half of that.

        Nodes that were installed together would else all be due at once; how much later goes by the node's name.
        """
        third = (self.valid_before - self.valid_after) / 3
        later = int.from_bytes(hashlib.sha256(node.encode()).digest()[:4]) / 2**32
        return self.valid_before - third + third / 2 * later


@lru_cache(maxsize=4096)
def read_host_certificate(key: str, line: str) -> HostCertificate:
    """Return what the line of an OpenSSH certificate says of its time. ValueError: it is none."""
    try:
        blob = memoryview(base64.b64decode(line.split()[1], validate=True))
        kind, rest = _string(blob)
        _nonce, rest = _string(rest)
        for _ in range(_KEY_FIELDS[bytes(kind).decode()]):
            _, rest = _string(rest)
        rest = rest[8 + 4 :]  # serial number and type
        _identity, rest = _string(rest)
        _principals, rest = _string(rest)
        after, before = struct.unpack_from(">QQ", rest)
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise ValueError(f"not an OpenSSH certificate: {error}") from None
    return HostCertificate(key, _instant(after), _instant(before))


def _string(blob: memoryview) -> tuple[memoryview, memoryview]:
    end = 4 + int.from_bytes(blob[:4])
    if len(blob) < end:
        raise ValueError("it is cut off")
    return blob[4:end], blob[end:]


def _instant(seconds: int) -> datetime:
    last = int(_LAST.timestamp())
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(seconds, last))
