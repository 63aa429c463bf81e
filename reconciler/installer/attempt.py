"""Read the attempt from the boot medium. Anybody on the way may have written it, so it is trusted with nothing.

It says where to ask. What answers there must have a certificate of our CA, and nothing else of /.extra is read.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from reconciler.installer.documents import Attempt, Malformed, load
from reconciler.installer.machine import Failed, Machine

SIZE = 4096  # bytes of the file; the server fills all of them
MARKER = b"@@RECONCILER-ATTEMPT@@"  # of a medium that no server has filled in
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)


def read_attempt(machine: Machine) -> Attempt:
    """Return the attempt that systemd-stub took from the boot medium."""
    path = machine.extra / "credentials/attempt.cred"
    try:
        with path.open("rb") as file:
            text = file.read(SIZE + 1)
    except OSError as error:
        raise Failed(f"the boot medium has no attempt ({path}): {error.strerror}") from None
    if text.startswith(MARKER):
        raise Failed("the boot medium's attempt is not filled in: it was not served by the reconciler")
    if len(text) > SIZE:
        raise Failed(f"the boot medium's attempt is longer than {SIZE} bytes")
    try:
        attempt = load(Attempt, text)
        _check(attempt)
    except ValueError as error:  # Malformed, and what ipaddress and urlsplit raise
        raise Failed(f"the boot medium's attempt is not the contract's: {error}") from None
    return attempt


def _check(attempt: Attempt) -> None:
    """Raise ValueError for a value that no program should see."""
    check_url(attempt.url)
    if attempt.mac is not None and _MAC.fullmatch(attempt.mac) is None:
        raise Malformed("mac: not six pairs of digits")
    if attempt.address is not None:
        ipaddress.ip_interface(attempt.address)
    for address in (*attempt.dns, *((attempt.gateway,) if attempt.gateway else ())):
        ipaddress.ip_address(address)
    if attempt.proxy is not None and not attempt.proxy.startswith("http://"):
        raise Malformed("proxy: not http://host:port")
    if attempt.vlan is not None and not 1 <= attempt.vlan <= 4094:
        raise Malformed("vlan: not within 1 and 4094")


def check_url(url: str) -> None:
    """Refuse any scheme but https, and http beyond this machine: a lab on loopback has no certificates."""
    parts = urlsplit(url)
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return
    if parts.scheme != "https" or not parts.hostname or not url.isprintable() or " " in url:
        raise Malformed("url: not https://host:port/token")


def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine itself. A name is not: DNS says what it likes."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
