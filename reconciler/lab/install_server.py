"""The server of install documents within the lab's own process (contract v1), and what it has heard of each attempt."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from reconciler.model.attestor import Attestor
from reconciler.model.errors import DriverError
from reconciler.model.install import (
    AnyDocument,
    AttestationBegin,
    AttestationFinish,
    ContractError,
    InstallDocument,
    InstallPhase,
    InstallStatus,
    dump_contract,
    load_contract,
)
from reconciler.model.install_progress import SECOND_KEY, other_keys, too_early

T = TypeVar("T")

BASE = "http://installer.lab.invalid"


@dataclass(slots=True)
class Served:
    """An attempt. `at`: seconds on the machines' clock, of its installer's last call."""

    document: AnyDocument
    fetched: bool = False
    status: InstallStatus | None = None
    host_key: str = ""
    incident: str = ""
    at: float | None = None
    attested: str = ""  # the host key that a quote vouches for
    erasures: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class InstallServer:
    """Attempts by token. `away`: nothing is answered. `listening_since`: seconds on the machines' clock."""

    attempts: dict[str, Served] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    away: bool = False
    listening_since: float = 0.0
    attestor: Attestor | None = None  # None: nobody is judged, as in a rehearsal
    offers: dict[str, str] = field(default_factory=dict)  # MAC address -> token, for PXE

    def publish(self, token: str, document: AnyDocument, mac: str = "") -> None:
        self.attempts.setdefault(token, Served(document))
        self.served.add(token)
        if mac:
            self.offers[mac] = token

    def withdraw(self, token: str) -> None:
        self.served.discard(token)
        self.offers = {mac: offered for mac, offered in self.offers.items() if offered != token}
        self.attempts.pop(token, None)

    def dies(self, now: float) -> None:
        """Stop serving, as the process does that dies now. What it had heard is in its ledger."""
        self.served.clear()
        self.listening_since = now

    def goes_away(self) -> None:
        self.away = True

    def comes_back(self, now: float) -> None:
        self.away, self.listening_since = False, now

    def answer(self, url: str, body: str | None, now: float) -> str | None:
        """Answer a call of an installer; None: it gets no answer, or is refused."""
        token, _, call = url.removeprefix(f"{BASE}/").removeprefix("boot/").partition("/")
        token = self.offers.get(token, token)
        found = self.attempts.get(token) if token in self.served and not self.away else None
        if found is None or found.incident:
            return None
        found.at = now
        if call == "install.json" and body is None:
            found.fetched = True
            return dump_contract(found.document)
        if call == "status" and body is not None:
            found.status = load_contract(InstallStatus, body)
            if (one := found.status.erasure) is not None:
                found.erasures[one.serial] = one.model_dump(mode="json")
            return ""
        if call == "hostkey" and body is not None:
            return self._certify(found, body)
        if call.startswith("attest/") and body is not None and isinstance(found.document, InstallDocument):
            return "" if self.attestor is None else _attested(self.attestor, found, found.document, call, body)
        return None

    def _certify(self, found: Served, key: str) -> str | None:
        if other_keys(key, found.host_key, found.attested):
            found.incident = SECOND_KEY
            return None
        written = found.status is not None and found.status.phase is InstallPhase.WRITTEN
        asked = isinstance(found.document, InstallDocument) and found.document.attest and self.attestor is not None
        if too_early(written=written, attest=asked, attested=found.attested):
            return None
        found.host_key = key
        return f"certificate of {key}"


def _attested(attestor: Attestor, found: Served, document: InstallDocument, call: str, body: str) -> str | None:
    try:
        if call == "attest/begin":
            return dump_contract(_at_once(attestor.begin(document, load_contract(AttestationBegin, body))))
        finish = load_contract(AttestationFinish, body)
        trusted = _at_once(attestor.finish(document, finish)).trusted
    except (ContractError, DriverError):
        return None
    if not trusted:
        return None
    if other_keys(finish.host_key, found.host_key, found.attested):
        found.incident = SECOND_KEY
        return None
    found.attested = finish.host_key
    return ""


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine does that waits for nothing, as those of an attestor."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("an attestor waits for nobody")
