"""The address of a scheduler, and the certificates by which it, its workers and its leaders know one another.

Whoever has a certificate of that CA runs code on all of them: scheduler, workers and leaders are one trust domain.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler import __version__
from reconciler.drivers.secrets import default_path, others
from reconciler.model.addresses import split_authority
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from distributed import Security

_SITE: Final = "site:"
CONNECT_S: Final = 10.0
SOON: Final = timedelta(days=14)  # before its end, a certificate is told of
RENEW: Final = "have the CA of the engine sign a new one, put it in its place, and start again"
_SCHEME: Final = "tls://"
_PORT: Final = 8786
_SOURCES: Final = frozenset({".py", ".yaml", ".json"})  # quirks, signals and bars are tables
_PACKAGE: Final = Path(__file__).parents[2]


class EngineError(Exception):
    """Raised when a shard was not read. The message is the reason that its nodes are given."""


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """`url`: tls://host:port. `directory`: ca.pem, cert.pem and key.pem; None takes the user's configuration."""

    url: str
    directory: Path | None = None

    def check(self) -> None:
        """Raise UsageError unless the scheduler is reached over mutual TLS, and Dask is installed."""
        if not self.url.startswith(_SCHEME):
            raise UsageError(
                f"engine {self.url}: only tls:// is spoken with an engine, as whoever reaches one runs code on it: "
                f"{_SCHEME}host:{_PORT}"
            )
        try:
            split_authority(self.url.removeprefix(_SCHEME), _PORT)
        except ValueError as error:
            raise UsageError(f"engine {self.url}: {error}") from None
        distributed()
        self._check_files()

    @property
    def on_loopback(self) -> bool:
        host, _ = split_authority(self.url.removeprefix(_SCHEME), _PORT)
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False

    def security(self) -> Security:
        """Return what Dask is to demand of the other side, and to show of itself."""
        ca, certificate, key = map(str, self._files())
        roles = {f"tls_{role}_cert": certificate for role in ("client", "worker")}
        roles |= {f"tls_{role}_key": key for role in ("client", "worker")}
        found: Security = distributed().Security(require_encryption=True, tls_ca_file=ca, **roles)
        return found

    def _files(self) -> tuple[Path, Path, Path]:
        folder = self.directory or default_path().parent / "engine"
        return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"

    def lasts_until(self) -> Mapping[Path, datetime]:
        """Return when the certificates end: that of this process, and that of the CA."""
        ca, certificate, _ = self._files()
        return {certificate: _ends(certificate)[0], ca: max(_ends(ca))}

    def expiring(self) -> tuple[str, ...]:
        """Return a sentence for each of them that has expired or will soon, or that can't be read now."""
        try:
            told = tuple([expiry(str(path), until) for path, until in self.lasts_until().items()])
        except UsageError as error:
            return (str(error),)
        return tuple([one for one in told if one])

    def _check_files(self) -> None:
        ca, certificate, key = self._files()
        try:
            if key.stat().st_mode & others(key):
                raise UsageError(f"{key} is open to others; chmod 600 {key}")
            context = ssl.create_default_context(cafile=ca)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"the certificates of the engine can't be used: {error.strerror or error}: {ca.parent} must have "
                "ca.pem, cert.pem and key.pem (--engine-tls DIR)"
            ) from None
        for path, until in self.lasts_until().items():
            if until <= wall_clock():
                raise UsageError(f"{expiry(str(path), until)}: {RENEW}")


def wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - TLS goes by the wall clock, whatever time a lab has


def expiry(whose: str, until: datetime) -> str:
    """Say that a certificate has expired, or will soon. "": it lasts longer."""
    left, when = until - wall_clock(), f"{until:%Y-%m-%d %H:%M} UTC"
    if left <= timedelta():
        return f"the certificate of the engine {whose} expired on {when}"
    return f"the certificate of the engine {whose} expires in {left.days} days, on {when}" if left <= SOON else ""


def _ends(path: Path) -> list[datetime]:
    """Return the ends of the certificates of a file, of which there is one at least.

    The first of a chain is the member's own. Each of several CAs, as while one is exchanged, is trusted while it lasts.
    """
    from cryptography import x509  # 50 ms, which commands without an engine need not spend

    try:
        return [one.not_valid_after_utc for one in x509.load_pem_x509_certificates(path.read_bytes())]
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificate of the engine {path} can't be read: {error}") from None


def distributed() -> Any:
    """Return Dask distributed. Raise UsageError where it is not installed."""
    try:
        import distributed as found
    except ImportError:
        raise UsageError("an engine needs Dask: pip install '.[dask]' in the checkout") from None
    return found


@cache
def release() -> str:
    """Return the version of the reconciler with a digest of its code and tables: both sides must run the same."""
    digest = hashlib.sha256()
    for path in sorted(path for path in _PACKAGE.rglob("*") if path.suffix in _SOURCES):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{__version__} ({digest.hexdigest()[:12]})"


def label(site: str) -> str:
    """Return the resource that workers of a site have."""
    return f"{_SITE}{site}"


def site_of(resource: str) -> str | None:
    """Return the site of which this resource says that a worker is; None for another resource."""
    return resource.removeprefix(_SITE) if resource.startswith(_SITE) else None
