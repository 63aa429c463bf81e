"""The progress of an installation, as the calls of its installer tell it, and how each call changes that."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from reconciler.model.install import InstallCause, InstallDocument, InstallPhase, InstallStatus
from reconciler.model.vocab import ImageFormat

DETAIL_CHARACTERS: Final = 1000
SECOND_KEY: Final = "a second, different SSH host key was presented: somebody else has the attempt's URL"
_RATE: Final = re.compile(r"\d{1,6}(\.\d)? [kMG]B/s")
_ON_DISK: Final = (InstallPhase.WRITTEN, InstallPhase.INSTALLED)
_LAST: Final = (InstallPhase.INSTALLED, InstallPhase.ERASED, InstallPhase.FAILED)
_MEASURED_AFTER_S: Final = 1.0  # between two reports whose difference is a rate


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """How far an installer is, as it reported it. Nobody else vouches for it: the booted system proves the image.

    `listening_since`: the server could be reached from then until now, without a gap. Silence counts from the later of
    it and `at`.
    """

    listening_since: datetime
    fetched: bool = False  # the installer has its document
    phase: InstallPhase | None = None  # None: it has reported nothing
    detail: str = ""
    percent: int | None = None
    at: datetime | None = None  # of the installer's last call; None: it made none
    incident: str = ""  # why the attempt was ended: a second host key, ...
    erasures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # evidence by a drive's serial number
    cause: InstallCause | None = None  # of `failed`
    certified: bool = False  # the machine's host key is: it is asked for before the disk boots, and trusted by no other

    @property
    def ended(self) -> bool:
        """Return whether the installer said its last words, or an incident ended the attempt."""
        return bool(self.incident) or self.phase in _LAST

    @property
    def may_boot(self) -> bool:
        """Return whether what is written may boot: never before its host key was certified (contract v1)."""
        return self.phase is InstallPhase.INSTALLED or (self.phase is InstallPhase.WRITTEN and self.certified)


@dataclass(frozen=True, slots=True)
class InstallAttempt:
    """An attempt at an installation, as the ledger keeps it: enough for any leader to serve it, and what became of it.

    Keys are lines of type and base64, without a comment. `revoked` outlives the attempt.
    """

    digest: str  # of the token: what finds the attempt, also when the token is forgotten
    node: str
    document: str  # JSON, as it is served
    network: str  # JSON of the boot medium's credential, less its URL; "" = DHCP
    begun_at: datetime
    token: str = ""  # while it is served
    closed_at: datetime | None = None
    fetched: bool = False
    phase: InstallPhase | None = None
    detail: str = ""
    percent: int | None = None
    at: datetime | None = None
    incident: str = ""
    host_key: str = ""  # what was certified
    certificate: str = ""
    attested_key: str = ""  # the host key that a quote of the TPM vouches for
    revoked: tuple[str, ...] = ()
    erasures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cause: InstallCause | None = None

    def progress(self, listening_since: datetime) -> InstallProgress:
        return InstallProgress(
            listening_since,
            self.fetched,
            self.phase,
            self.detail,
            self.percent,
            self.at,
            self.incident,
            self.erasures,
            self.cause,
            self.certificate != "",
        )

    @property
    def ended(self) -> bool:
        return bool(self.incident) or self.phase in _LAST

    @property
    def written(self) -> bool:
        """Return whether the image is on the disk, as the installer says."""
        return not self.incident and self.phase in _ON_DISK


def progress_words(attempt: InstallAttempt) -> str:
    """Return phase, percent and rate in words of ours: `detail` may name the machine's parts."""
    if attempt.phase is None:
        return "its installer has begun" if attempt.fetched else "waits for its installer"
    rate = _RATE.search(attempt.detail)
    parts = [f"{attempt.phase}{'' if attempt.percent is None else f' {attempt.percent} %'}"]
    return ", ".join([*parts, *([rate[0]] if rate else [])])


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def closed(attempt: InstallAttempt, now: datetime) -> InstallAttempt:
    """Return the attempt after it is withdrawn. Its token is forgotten."""
    return replace(attempt, token="", closed_at=attempt.closed_at or now)


def asked(attempt: InstallAttempt, now: datetime) -> InstallAttempt:
    """Return the attempt after its installer fetched the document."""
    return replace(attempt, fetched=True, at=now)


def reported(
    attempt: InstallAttempt, status: InstallStatus, document: InstallDocument | None, now: datetime
) -> InstallAttempt:
    """Return the attempt after a report. Nothing changes an attempt that has ended but the time of the call.

    Where the report has no rate of its own, the bytes of the image between this one and the last are told.
    """
    if attempt.ended:
        return replace(attempt, at=now)
    same = attempt.phase is status.phase
    percent = status.percent if status.percent is not None or not same else attempt.percent
    detail = status.detail.replace(attempt.token, "***") if attempt.token else status.detail
    rate = _rate(attempt, percent, document, now) if same and status.phase is InstallPhase.WRITING else ""
    if rate and "/s" not in detail:
        detail = f"{detail}, {rate}" if detail else rate
    erasures = attempt.erasures
    if status.erasure is not None:
        erasures = {**erasures, status.erasure.serial: status.erasure.model_dump(mode="json")}
    return replace(
        attempt,
        fetched=True,
        phase=status.phase,
        detail=detail[:DETAIL_CHARACTERS],
        percent=percent,
        at=now,
        erasures=erasures,
        cause=status.cause,
    )


def _rate(attempt: InstallAttempt, percent: int | None, document: InstallDocument | None, now: datetime) -> str:
    size = document.image.size if document is not None else None
    if size is None or attempt.at is None or attempt.percent is None or percent is None or percent <= attempt.percent:
        return ""
    seconds = (now - attempt.at).total_seconds()
    if seconds < _MEASURED_AFTER_S:
        return ""
    compressed = document is not None and document.image.format is not ImageFormat.RAW
    return f"{(percent - attempt.percent) * size / 100e6 / seconds:.1f} MB/s{' compressed' if compressed else ''}"


def other_keys(key: str, certified: str, attested: str) -> tuple[str, ...]:
    """Return the host keys that were certified or quoted before and are not this one. Any is an incident."""
    return tuple(dict.fromkeys(one for one in (certified, attested) if one not in ("", key)))


def too_early(*, written: bool, attest: bool, attested: str) -> str:
    """Return what must come before a host key is certified, "" when nothing has to."""
    if not written:
        return "a host key is certified once the image is written, and no sooner"
    if attest and not attested:
        return "a host key is certified once the TPM has vouched for it, and no sooner"
    return ""


def ended_by(attempt: InstallAttempt, incident: str, keys: tuple[str, ...], now: datetime) -> InstallAttempt:
    """Return the attempt after an incident ended it. `keys`: host keys that are never trusted again."""
    revoked = tuple(dict.fromkeys((*attempt.revoked, *keys)))
    return replace(attempt, incident=attempt.incident or incident, certificate="", revoked=revoked, at=now)
