"""The spec's settings of the server of install documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstallerPolicy:
    """The server of install documents (DESIGN 7.5). `url`: its address as BMCs and installers reach it.

    `certificate`, `key` and `host_ca` are names from the secrets file; without a certificate it serves plain HTTP.
    """

    listen: str  # host:port; port 0 = any free one
    url: str | None  # None: that of `listen`
    iso: str  # URL or absolute path of the boot medium
    certificate: str | None = None
    key: str | None = None
    host_ca: str | None = None  # a secret, or a signer; None: no host key is certified
    host_certificate_s: float = 90 * 86400.0  # how long a certificate is valid
