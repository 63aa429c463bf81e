"""Find attempts by the MAC address that a machine boots from, for machines that DHCP points to our server.

A MAC address is no secret: whoever is on that network can ask in a machine's stead, and the medium that they get holds
the token. So an attempt is offered only where the spec wants PXE, only until its installer has its document, and only
to the address that asked first. What a token is good for is in docs/reference/installer-contract.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAC: Final = "{mac:[0-9A-Fa-f]{2}(?:[:-]?[0-9A-Fa-f]{2}){5}}"  # in a path; iPXE's ${mac:hexhyp} has dashes


@dataclass(slots=True)
class _Offer:
    token: str
    asker: str = ""  # the address that asked first


class PxeOffers:
    """The attempts that are offered by MAC address, in this process alone: a new leader offers them again."""

    def __init__(self) -> None:
        self._offers: dict[str, _Offer] = {}

    def offer(self, mac: str, token: str) -> None:
        known = self._offers.get(_digits(mac))
        if known is None or known.token != token:
            self._offers[_digits(mac)] = _Offer(token)

    def withdraw(self, token: str) -> None:
        for mac in [mac for mac, offer in self._offers.items() if offer.token == token]:
            del self._offers[mac]

    def token(self, mac: str, asker: str) -> str | None:
        """Return the token of the attempt at the machine with this MAC address; None if there is none for this asker.

        Firmware, iPXE and the boot from the medium ask with one address, since one DHCP lease lasts that long.
        """
        offer = self._offers.get(_digits(mac))
        if offer is None or offer.asker not in ("", asker):
            return None
        offer.asker = asker
        return offer.token


def script(url: str) -> str:
    """Return what iPXE does: it boots the medium, or goes on to the next boot entry. `url`: of the medium."""
    return f"#!ipxe\nsanboot --no-describe {url} || exit 1\n"


def _digits(mac: str) -> str:
    return mac.replace(":", "").replace("-", "").lower()
