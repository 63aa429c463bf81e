"""Fetch the files that firmware is flashed from, and verify their digests (pitfall F11).

A file is streamed to a folder of this process and hashed on its way; it is never whole in memory. No proxy is used and
no redirect followed: what is verified is what the URL itself serves, to us as to a BMC. What was found counts for ten
minutes for all nodes. After that the server is asked whether the file has changed, by its ETag where it gives one.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

from aiohttp import ClientConnectorCertificateError, ClientError, ClientResponse, ClientSession, ClientTimeout

from reconciler.model.errors import DriverError, Failure
from reconciler.model.ports import FirmwareFile
from reconciler.model.printable import shown_url

LARGEST = 2 * 2**30  # bytes; bundles for a whole tray have some 400 MiB
KEPT = 8 * 2**30  # bytes of all files together
FRESH_S = 600.0
_FAILURE_S = 60.0  # how long a server that gave no file is not asked again
_AT_ONCE = 4
_CHUNK = 1 << 20
_PLAIN = {"Accept-Encoding": "identity"}
_TIMEOUT = ClientTimeout(total=1800, connect=10, sock_read=30)
_HINT = (
    "the reconciler fetches firmware to verify its digest; where only BMCs reach the file server, "
    "set `verifiedBy: bmc` for the component"
)


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a fetch. `until`: by the monotonic clock. `asks`: headers that ask whether the file has changed."""

    until: float
    path: Path | None = None
    size: int = 0
    failure: tuple[Failure, str] | None = None
    asks: Mapping[str, str] = field(default_factory=dict)


def _as_given(url: str, sha256: str) -> tuple[str, str]:
    return url, sha256


class HttpFirmwareFiles:
    """Implements ports.FirmwareFiles. `locate` returns the address to fetch from, and the digest expected there."""

    def __init__(self, locate: Callable[[str, str], tuple[str, str]] = _as_given) -> None:
        self._locate = locate
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._found: dict[tuple[str, str], _Found] = {}  # the oldest first
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._count = 0

    async def fetch(self, url: str, sha256: str) -> FirmwareFile:
        key = url, sha256
        async with self._locks[key]:
            found = self._found.get(key)
            if found is None or time.monotonic() >= found.until:
                async with self._slots:
                    found = await self._look(url, sha256, found)
                self._keep(key, found)
        if found.failure is not None:
            raise DriverError(*found.failure)
        return FirmwareFile(url, str(found.path), found.size)

    async def close(self) -> None:
        """Delete all copies."""
        self._found.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _look(self, url: str, sha256: str, before: _Found | None) -> _Found:
        """Fetch a file unless the copy of `before` is still what the server has."""
        address, wanted = self._locate(url, sha256)
        asks = before.asks if before is not None and before.path is not None else {}
        now, shown = time.monotonic(), shown_url(url)
        try:
            async with (
                ClientSession(timeout=_TIMEOUT, auto_decompress=False) as session,
                session.get(address, headers={**_PLAIN, **asks}, allow_redirects=False) as answer,
            ):
                if answer.status == HTTPStatus.NOT_MODIFIED and before is not None:
                    return replace(before, until=time.monotonic() + FRESH_S)
                if answer.status != HTTPStatus.OK:
                    kind, why = _refusal(answer)
                    return _Found(now + _FAILURE_S, failure=(kind, f"{shown}: {why}; {_HINT}"))
                copy = await self._save(answer)
                asks = _conditions(answer)
        except _TooLargeError:
            return _Found(now + FRESH_S, failure=(Failure.REJECTED, f"{shown} serves more than {LARGEST >> 20} MiB"))
        except ClientConnectorCertificateError as error:
            return _Found(now + _FAILURE_S, failure=(Failure.AUTH, f"{shown}: its certificate is not trusted: {error}"))
        except TimeoutError:
            why = f"{shown}: the file server does not answer in time, or sends too slowly; {_HINT}"
            return _Found(now + _FAILURE_S, failure=(Failure.TIMEOUT, why))
        except ClientError as error:
            return _Found(now + _FAILURE_S, failure=(Failure.UNREACHABLE, f"{shown}: {error}; {_HINT}"))
        except OSError as error:
            why = f"{shown} can't be kept in {tempfile.gettempdir()} (TMPDIR): {error.strerror}"
            return _Found(now + _FAILURE_S, failure=(Failure.UNREACHABLE, why))
        if copy.digest != wanted:
            copy.drop()
            why = f"{shown} serves a file with sha256 {copy.digest}, the spec says {wanted}: nothing is flashed from it"
            return _Found(time.monotonic() + FRESH_S, failure=(Failure.REJECTED, why))
        return _Found(time.monotonic() + FRESH_S, copy.path, copy.size, asks=asks)

    async def _save(self, answer: ClientResponse) -> _Copy:
        """Save the body. Raise _TooLargeError."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="reconciler-firmware-", ignore_cleanup_errors=True)
        self._count += 1
        copy = _Copy(Path(self._folder.name, str(self._count)))
        try:
            copy.expect(answer.content_length or 0)
            async for chunk in answer.content.iter_chunked(_CHUNK):
                await asyncio.to_thread(copy.add, chunk)
        except BaseException:  # a cancellation too: half a file must not stay
            copy.drop()
            raise
        finally:
            copy.close()
        return copy

    def _keep(self, key: tuple[str, str], found: _Found) -> None:
        """Keep what was found last, and drop the copies that were looked at longest ago where there are too many.

        A BMC that is being sent a dropped copy goes on reading it.
        """
        before = self._found.pop(key, None)
        self._found[key] = found
        outdated = [before] if before is not None and before.path != found.path else []
        while sum(one.size for one in self._found.values()) > KEPT and len(self._found) > 1:
            outdated.append(self._found.pop(next(iter(self._found))))
        for one in outdated:
            if one.path is not None:
                one.path.unlink(missing_ok=True)


class _TooLargeError(Exception):
    """The file is larger than any firmware."""


class _Copy:
    """A file that is written and hashed piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._digest = hashlib.sha256()
        self._file = path.open("xb")

    def expect(self, size: int) -> None:
        if size > LARGEST:
            raise _TooLargeError

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.expect(self.size)
        self._digest.update(chunk)
        self._file.write(chunk)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


def _refusal(answer: ClientResponse) -> tuple[Failure, str]:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        return Failure.REJECTED, f"HTTP {answer.status} redirects, and BMCs may not follow: give the file's own address"
    later = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.TOO_MANY_REQUESTS
    return Failure.UNREACHABLE if later else Failure.REJECTED, f"HTTP {answer.status}"


def _conditions(answer: ClientResponse) -> dict[str, str]:
    """Return headers that ask for the file only if it has changed; {} where the server gives nothing to ask by."""
    headers = {"If-None-Match": answer.headers.get("ETag"), "If-Modified-Since": answer.headers.get("Last-Modified")}
    return {name: value for name, value in headers.items() if value}
