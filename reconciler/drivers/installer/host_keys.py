"""Certify the host key of an attempt: one key, once its image is written, and with measurements the quoted one alone.

Whoever has the token can ask, so a second key is an incident: nobody can tell which of the two is the machine's. The
attempt ends, and both keys are never trusted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from reconciler.drivers.installer.signer import CertificateRequest, Signer, check_certificate
from reconciler.model.install import InstallDocument
from reconciler.model.install_progress import SECOND_KEY, InstallAttempt, ended_by, other_keys, too_early
from reconciler.model.ledger_ports import InstallStore

_BACK_S: Final = 300.0  # a certificate is valid from then on: clocks differ


class EndedError(Exception):
    """The attempt was ended by an incident; the text says which."""


class TooEarlyError(Exception):
    """Something else must come before; the text says what."""


class HostKeys:
    """Certifies keys. `now`: the fleet's clock, for the ledger; certificates go by the time that their users have."""

    def __init__(
        self, store: InstallStore, authorities: Sequence[str], valid_s: float, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._authorities = authorities
        self._valid_s = valid_s
        self._now = now

    async def certify(self, attempt: InstallAttempt, document: InstallDocument, key: str, signer: Signer) -> str:
        """Return the certificate of `key`, the same whenever it is asked for, and save it before anybody has it."""
        self.refuse_others(attempt, key)
        if early := too_early(written=attempt.written, attest=document.attest, attested=attempt.attested_key):
            raise TooEarlyError(early)
        if attempt.certificate:
            return attempt.certificate
        line, request = await self.sign(document, key, signer)
        names = ", ".join(request.principals)
        told = f"certified host key {key} for {names} until {request.valid_before:%Y-%m-%d %H:%M} UTC"
        self._store.save_install(replace(attempt, host_key=key, certificate=line), self._now(), told)
        return line

    async def sign(self, document: InstallDocument, key: str, signer: Signer) -> tuple[str, CertificateRequest]:
        """Return a certificate of a key, as a line, for the names that the document gives, and what was asked for."""
        request = _request(document, key, self._valid_s)
        return check_certificate(await signer.sign(request), request, self._authorities), request

    def refuse_others(self, attempt: InstallAttempt, key: str) -> None:
        """End the attempt if another key was certified or quoted before."""
        others = other_keys(key, attempt.host_key, attempt.attested_key)
        if not others:
            return
        now = self._now()
        told = f"incident: {SECOND_KEY}; {others[0]} and {key} are revoked"
        self._store.save_install(ended_by(attempt, SECOND_KEY, (*others, key), now), now, told)
        raise EndedError(SECOND_KEY)


def _request(document: InstallDocument, key: str, valid_s: float) -> CertificateRequest:
    now = time.time()
    # A host name that is not the node's may be the name of another node, which this machine could then pass for.
    own = document.hostname.startswith(f"{document.node}.")
    return CertificateRequest(
        key,
        f"{document.node} {document.nonce[:8]}",
        (document.node, document.hostname) if own else (document.node,),
        datetime.fromtimestamp(now - _BACK_S, UTC),
        datetime.fromtimestamp(now + valid_s, UTC),
    )
