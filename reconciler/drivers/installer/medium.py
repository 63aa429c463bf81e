"""The boot medium: one file for all attempts, in which each attempt finds its own credential.

The file has one placeholder (model.install.empty_credential). What is read of it is replaced by the attempt's
credential, whatever part of it a range covers, so that BMCs may fetch the medium in any slices and start again.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import re
import tempfile
import time
import weakref
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import CREDENTIAL_SIZE, MARKER, empty_credential
from reconciler.model.printable import shown_url

LARGEST: Final = 8 * 2**30  # bytes
FRESH_S: Final = 60.0  # how long the server of a medium isn't asked whether it has changed
_CHUNK: Final = 1 << 20
_TIMEOUT: Final = ClientTimeout(total=1800, connect=10, sock_read=30)
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class UnsatisfiableError(ValueError):
    """Raised for a range that begins behind the end."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a Range header and the one behind its last; None for the whole file.

    A header of several ranges, or one that can't be read, is ignored, as HTTP allows.
    """
    match = _RANGE.fullmatch((header or "").strip())
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < begin:
            return None
    if begin >= size or begin >= end:
        raise UnsatisfiableError
    return begin, end


@dataclass(frozen=True)
class Medium:
    """An open boot medium. It stays as it is when another file takes its name. `place`: of the placeholder."""

    name: str
    file: int
    size: int
    changed: int
    place: int
    digest: str

    @classmethod
    def open(cls, path: Path, name: str) -> Medium:
        """Open and search a file, which takes time. REJECTED unless it has exactly one placeholder."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise DriverError(Failure.REJECTED, f"the boot medium {name} can't be read: {error.strerror}") from error
        try:
            stat = os.fstat(file)
            place, digest = _search(file, name)
        except BaseException:  # a cancellation too: the open file has no other owner yet
            os.close(file)
            raise
        found = cls(name, file, stat.st_size, stat.st_mtime_ns, place, digest)
        weakref.finalize(found, os.close, file)
        return found

    def unchanged(self) -> bool:
        """Return whether nobody has written into the file since it was opened."""
        stat = os.fstat(self.file)
        return (stat.st_size, stat.st_mtime_ns) == (self.size, self.changed)

    def etag(self, credential: bytes) -> str:
        """Return the name of what one attempt is served: any server with the same medium gives it the same."""
        return f'"{self.digest[:24]}-{hashlib.sha256(credential).hexdigest()[:24]}"'

    def read(self, begin: int, end: int, credential: bytes) -> bytes:
        """Return the bytes from `begin` until `end`, with the credential in the placeholder's stead."""
        data = os.pread(self.file, end - begin, begin)
        if len(data) != end - begin:
            raise OSError(f"the boot medium {self.name} became shorter while it was served")
        first, last = max(begin, self.place), min(end, self.place + CREDENTIAL_SIZE)
        if first >= last:
            return data
        own = credential[first - self.place : last - self.place]
        return b"".join((data[: first - begin], own, data[last - begin :]))


def _search(file: int, name: str) -> tuple[int, str]:
    """Return the place of the placeholder, and the digest of the file."""
    wanted = empty_credential()
    try:
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as contents:
            place = contents.find(wanted)
            more = contents.find(wanted, place + 1) if place >= 0 else -1
            digest = hashlib.sha256(contents).hexdigest()
    except (ValueError, OSError) as error:  # ValueError: it is empty
        raise DriverError(Failure.REJECTED, f"the boot medium {name} can't be read: {error}") from error
    if place < 0:
        why = f"has no placeholder for an attempt ({CREDENTIAL_SIZE} bytes that begin with {MARKER.decode()})"
    elif more >= 0:
        why = f"has more than one placeholder for an attempt, at bytes {place} and {more}"
    else:
        return place, digest
    why = f"the boot medium {name} {why}: name one that `reconciler installer build` made in Fleet.installer.iso"
    raise DriverError(Failure.REJECTED, why)


class MediumSource:
    """The medium that the spec names: a file, or a URL of which a copy is kept and checked for changes."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._medium: Medium | None = None
        self._key: tuple[int, ...] = ()  # of the file that was searched
        self._lock = asyncio.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._version: dict[str, str] = {}  # headers that ask for a changed file only
        self._fresh_until = 0.0

    async def current(self) -> Medium:
        """Return the medium as it is now. DriverError: it can't be had, or is no boot medium."""
        async with self._lock:
            remote = "://" in self._place
            path = await self._copy() if remote else Path(self._place)
            try:
                stat = path.stat()
            except OSError as error:
                raise DriverError(Failure.REJECTED, f"the boot medium {path}: {error.strerror}") from error
            key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._medium is None or key != self._key:
                self._medium = await asyncio.to_thread(Medium.open, path, shown_url(self._place))
                self._key = key
            return self._medium

    def close(self) -> None:
        self._medium = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _copy(self) -> Path:
        """Return our copy of what the URL serves; fetch it unless it is still that."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="reconciler-medium-")
            self._version = {}
            self._fresh_until = 0.0
        path = Path(self._folder.name) / "boot.iso"
        fetched = path.exists()
        if fetched and time.monotonic() < self._fresh_until:
            return path
        shown = shown_url(self._place)
        try:
            await self._fetch(path, fetched=fetched)
        except TimeoutError:
            raise DriverError(Failure.TIMEOUT, f"the boot medium {shown}: its server does not answer in time") from None
        except ClientError as error:
            raise DriverError(Failure.UNREACHABLE, f"the boot medium {shown}: {error}") from error
        except OSError as error:
            why = f"the boot medium {shown} can't be kept in {tempfile.gettempdir()} (TMPDIR): {error.strerror}"
            raise DriverError(Failure.UNREACHABLE, why) from error
        self._fresh_until = time.monotonic() + FRESH_S
        return path

    async def _fetch(self, path: Path, *, fetched: bool) -> None:
        asks = self._version if fetched else {}
        async with (
            ClientSession(timeout=_TIMEOUT, auto_decompress=False) as session,
            session.get(self._place, headers={"Accept-Encoding": "identity", **asks}) as answer,
        ):
            if answer.status == HTTPStatus.NOT_MODIFIED:
                return
            shown = f"the boot medium {shown_url(self._place)}"
            if answer.status != HTTPStatus.OK:
                kind = Failure.UNREACHABLE if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else Failure.REJECTED
                raise DriverError(kind, f"{shown}: its server answers {answer.status}")
            partial, size = path.with_suffix(".part"), 0
            with partial.open("wb") as file:
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    size += len(chunk)
                    if size > LARGEST:
                        raise DriverError(Failure.REJECTED, f"{shown} has more than {LARGEST >> 30} GiB")
                    file.write(chunk)
            partial.replace(path)
            names = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))
            self._version = {ask: answer.headers[name] for name, ask in names if name in answer.headers}
