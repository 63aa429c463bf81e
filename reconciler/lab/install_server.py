"""The server of install documents within the lab's own process (contract v1), and what it has heard of each attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reconciler.model.install import AnyDocument, InstallPhase, InstallStatus, dump_contract, load_contract

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
    erasures: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class InstallServer:
    """Attempts by token. `away`: nothing is answered. `listening_since`: seconds on the machines' clock."""

    attempts: dict[str, Served] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    away: bool = False
    listening_since: float = 0.0
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
        token, _, call = url.removeprefix(f"{BASE}/").rpartition("/")
        token = self.offers.get(token.removeprefix("boot/"), token)
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
        return None

    def _certify(self, found: Served, key: str) -> str | None:
        if found.status is None or found.status.phase is not InstallPhase.WRITTEN:
            return None
        if found.host_key not in ("", key):
            found.incident = f"a second host key for {found.document.node}: {key}"
            return None
        found.host_key = key
        return f"certificate of {key}"
