"""The `host-keys` use cases: what the ledger knows of nodes' SSH host keys, for the SSH of people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.model.host_certificate import HostCertificate, read_host_certificate
from reconciler.model.install_progress import InstallAttempt

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A host key of a node, as type and base64. `since`: the beginning of the install that it is from.

    `certificate`: when its newest certificate is valid; None: it has none, as after an incident.
    """

    node: str
    state: str  # certified | replaced | revoked
    since: datetime
    key: str
    certificate: HostCertificate | None = None


def known_keys(installs: Iterable[InstallAttempt]) -> list[KnownKey]:
    """Return the keys of each node, oldest first. The last one that was certified is the node's own.

    A key that was revoked is revoked for all nodes and for ever, whoever certified it.
    """
    attempts = sorted(installs, key=lambda one: (one.node, one.begun_at))
    revoked = {key for one in attempts for key in one.revoked}
    own = {one.node: one.host_key for one in attempts if one.host_key and one.host_key not in revoked}
    certificates = {(one.node, one.host_key): _certificate(one) for one in attempts if one.certificate}
    found: dict[tuple[str, str], KnownKey] = {}
    for one in attempts:
        for key in dict.fromkeys((*((one.host_key,) if one.host_key else ()), *one.revoked)):
            state = "revoked" if key in revoked else "certified" if own.get(one.node) == key else "replaced"
            valid = certificates.get((one.node, key)) if state != "revoked" else None
            found.setdefault((one.node, key), KnownKey(one.node, state, one.begun_at, key, valid))
    return list(found.values())


def _certificate(attempt: InstallAttempt) -> HostCertificate | None:
    try:
        return read_host_certificate(attempt.host_key, attempt.certificate)
    except ValueError:  # of a lab, whose certificates are words
        return None


def export_krl(ledger: SqlLedger, place: Path) -> int:
    """Write the revoked keys as an OpenSSH KRL; return how many there are."""
    from reconciler.drivers.revocation_list import write_krl

    keys = tuple(dict.fromkeys(ledger.revoked_host_keys()))
    write_krl(keys, place)
    return len(keys)
