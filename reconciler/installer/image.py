"""The image: its signature, before anything else; its bytes, over connections that break; what they decompress to."""

from __future__ import annotations

import hashlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, Request

from reconciler.installer.client import PASSING, Patience, reason
from reconciler.installer.documents import Image
from reconciler.installer.machine import Failed, Machine, say
from reconciler.installer.registry import Registry

BLOCK = 1 << 20
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def verify_signature(machine: Machine, image: Image) -> None:
    """Check the publisher's signature over `<name> <version> <sha256>` with a key of this initrd (L5)."""
    told = f"image {image.name} {image.version}"
    if image.signature is None or image.key is None:
        raise Failed(
            f"{told} is not signed: the document has no {'signature' if image.key else 'key'} for it", "signature"
        )
    if re.fullmatch(r"[0-9a-f]{64}", image.sha256) is None:
        raise Failed(f"{told}: its digest is no sha256", "signature")
    key = machine.trust / "keys" / f"{image.key}.pub"
    if _KEY.fullmatch(image.key) is None or not key.is_file():
        raise Failed(f"{told} is signed with the key {image.key}, which this installer does not have", "signature")
    message, signature = machine.work / "statement", machine.work / "statement.minisig"
    message.write_text(f"{image.name} {image.version} {image.sha256}\n")
    signature.write_text(image.signature)
    try:
        machine.run("minisign", "-V", "-q", "-p", str(key), "-m", str(message), "-x", str(signature))
    except Failed as error:
        raise Failed(
            f"the signature of {told} does not verify with the key {image.key}: {error}", "signature"
        ) from None


class Download:
    """The bytes of a file at a URL, from its first to its last, over as many connections as that takes."""

    def __init__(self, web: OpenerDirector, image: Image, patience: Patience, note: Callable[[str], None]) -> None:
        self._web, self._image, self._patience, self._note = web, image, patience, note
        self._registry = Registry(web, patience.call) if image.url.startswith("oci:") else None
        self.url = self._registry.locate(image) if self._registry else image.url
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise Failed(f"{image.url}: the image's URL is neither http, https nor oci", "document")
        self.digest = hashlib.sha256()
        self.at = 0
        self._size = image.size
        self._etag: str | None = None
        self._stop = threading.Event()

    def close(self) -> None:
        """Make whoever reads blocks in another thread end."""
        self._stop.set()

    def blocks(self) -> Iterator[bytes]:
        """Yield the file. Raise Failed when it can't be had whole, or is another one than when it began."""
        rests, pace = self._patience.rest, _Pace(self._patience)
        while True:
            begun = self.at
            try:
                for block in self._connection():
                    self.digest.update(block)
                    self.at += len(block)
                    pace.check(self.at)
                    yield block
                    if self._stop.is_set():
                        raise Failed("the download was ended")
                break
            except _Broken as error:
                rests = self._patience.rest if self.at > begun else min(rests * 2, self._patience.longest_rest)
                broken = f"; last: {error}"
                say(f"{self.url}: {error} at byte {self.at}; trying again")
                self._note(f"the image server: {error}")
            pace.check(self.at, told=broken)
            if self._stop.wait(rests):
                raise Failed("the download was ended")

    def check(self) -> None:
        """Compare the whole file with the digest that its publisher signed."""
        if self.digest.hexdigest() != self._image.sha256:
            came, signed = self.digest.hexdigest(), self._image.sha256
            raise Failed(f"the image's digest is {came}, and its publisher signed {signed}", "image")

    def _connection(self) -> Iterator[bytes]:
        """Yield what one connection gives from where the last one ended. Raise _Broken when another may give more."""
        request = Request(self.url, headers={"Accept-Encoding": "identity"})  # noqa: S310  checked above
        if self._registry:
            self._registry.sign_in(request)
        if self.at:
            request.add_header("Range", f"bytes={self.at}-")
        try:
            with self._web.open(request, timeout=self._patience.call) as answer:
                skip = self._agree(answer)
                while block := answer.read(BLOCK):
                    if skip >= len(block):
                        skip -= len(block)
                        continue
                    yield block[skip:]
                    skip = 0
        except HTTPError as error:
            with error:
                if error.code == 401 and self._registry and self._registry.answer(error.headers):
                    raise _Broken("the registry wants a token") from None
                if error.code not in PASSING and error.code < 500:
                    raise Failed(f"{self.url}: {error.code} {error.reason}", "fetch") from None
                raise _Broken(f"{error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            text = reason(error)
            if "certificate" in text:
                raise Failed(f"{self.url}: {text}", "fetch") from None
            raise _Broken(text) from None
        if self._size is not None and self.at < self._size:
            raise _Broken(f"the connection ended after {self.at} of {self._size} bytes")

    def _agree(self, answer: HTTPResponse) -> int:
        """Check that this is the file that was begun, and return how many bytes to skip."""
        start, total = 0, answer.headers.get("Content-Length")
        if answer.status == 206:
            told = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if told is None or int(told[1]) != self.at:
                raise Failed(f"{self.url}: asked for bytes from {self.at}, the server sent another range", "fetch")
            start, total = self.at, told[2] if told[2] != "*" else None
        size, etag = int(total) if total and total.isdigit() else None, answer.headers.get("ETag")
        if self._size is not None and size is not None and size != self._size:
            raise Failed(f"{self.url} has {size} bytes, and the image has {self._size}", "image")
        if self._etag is not None and etag != self._etag:
            raise Failed(f"{self.url} changed while it was fetched", "fetch")
        self._size, self._etag = self._size or size, self._etag or etag
        return self.at - start


class _Broken(Exception):
    """A connection ended before the file did."""


class _Pace:
    """Notices a server that gives too little for too long."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since, self._from = time.monotonic(), 0

    def check(self, at: int, told: str = "") -> None:
        elapsed = time.monotonic() - self._since
        if at - self._from >= self._patience.slowest * self._patience.stalled:
            self._since, self._from = time.monotonic(), at
        elif elapsed > self._patience.stalled:
            raise Failed(f"the image server is too slow: {at - self._from} bytes in {elapsed:.0f} s{told}", "fetch")


@contextmanager
def unpacked(download: Download, form: str) -> Iterator[Iterator[bytes]]:
    """Give the raw image's bytes. zstd works beside us: a thread feeds it what comes from the network."""
    if form == "raw":
        yield download.blocks()
        return
    if form != "raw+zstd":
        raise Failed(f"the image's format {form} is not known to this installer", "document")
    with subprocess.Popen(
        ("zstd", "-dcq", "--long=31", "--no-sparse"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as zstd:  # fmt: skip
        feeder = _Feeder(download, zstd)
        feeder.start()
        try:
            yield _read(zstd, feeder)
        finally:
            download.close()
            zstd.kill()
            feeder.join()


def _read(zstd: subprocess.Popen[bytes], feeder: _Feeder) -> Iterator[bytes]:
    out, words = _pipe(zstd.stdout), _pipe(zstd.stderr)
    while block := out.read(BLOCK):
        yield block
    told = words.read(2000).decode(errors="replace").strip().splitlines()
    status = zstd.wait()
    feeder.join()
    if feeder.failure is not None and not isinstance(feeder.failure, BrokenPipeError):
        raise feeder.failure
    if status:
        cause = "image" if status > 0 else ""  # a signal that ends zstd says nothing of the bytes
        raise Failed(f"the image can't be decompressed: {told[-1] if told else f'zstd ended with {status}'}", cause)


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None  # all three were asked for
    return end


class _Feeder(threading.Thread):
    """Carries the download into zstd, and keeps what stopped it."""

    def __init__(self, download: Download, zstd: subprocess.Popen[Any]) -> None:
        super().__init__(daemon=True)
        self._download, self._into = download, _pipe(zstd.stdin)
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with self._into as into:
                for block in self._download.blocks():
                    into.write(block)
        except (Failed, OSError) as error:
            self.failure = error
