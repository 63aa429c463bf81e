"""Bring addresses of nodes to one form, so that equal addresses are equal texts.

A BMC is `https://host[:port]`, an SSH endpoint `host:port`; host is an IPv4 address, a bracketed IPv6 address or a
DNS name. Functions raise ValueError, which says what is wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address

SSH_PORT = 22
HTTPS_PORT = 443

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::([0-9]{1,5}))?")
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
# Resolvers take these for IPv4 addresses in another notation: 0x0a.20.1.1, 10.20.257, 167772161. No DNS name ends so.
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_DNS = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


def split_authority(text: str, default_port: int) -> tuple[str, int]:
    """Return the host, in lower case and without brackets, and the port of `host[:port]`."""
    if "@" in text:  # what stands before it may be a password, which no sentence repeats
        raise ValueError("an address has no user or password")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an address; write host or host:port")
    port = int(match[3] or default_port)
    if not 0 < port < 65536:
        raise ValueError(f"{text!r} has no valid port")
    if match[1]:
        return str(_ipv6(match[1])), port
    host = match[2].lower()
    if not (_IPV4 if _NUMERIC.fullmatch(host) else _DNS).fullmatch(host):
        raise ValueError(f"{text!r} is not an address; {host!r} is neither an IP address nor a DNS name")
    return host, port


@lru_cache
def _ipv6(text: str) -> IPv6Address:
    try:
        return IPv6Address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv6 address") from None


def join_authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def normalise_host(text: str) -> str:
    """Return an SSH endpoint as `host:port`, always with a port."""
    return join_authority(*split_authority(text, SSH_PORT))


def normalise_bmc(text: str) -> str:
    """Return the URL of a BMC as `https://host[:port]`, without port 443."""
    if "@" in text:
        raise ValueError("the URL of a BMC has no user or password; name a secret in redfish.credentials of the Fleet")
    if not text.lower().startswith("https://"):
        raise ValueError(f"{text!r} is not the URL of a BMC; it starts with https://")
    rest = text[len("https://") :].removesuffix("/")
    if "/" in rest or "?" in rest or "#" in rest:
        raise ValueError(f"{text!r} is not the URL of a BMC; nothing follows the host and port")
    host, port = split_authority(rest, HTTPS_PORT)
    name = f"[{host}]" if ":" in host else host
    return f"https://{name}" if port == HTTPS_PORT else f"https://{name}:{port}"
