"""Write parts of an image to a disk, and read them back from the medium."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.installer.machine import Failed

FLUSH: Final = 128 << 20  # bytes after which the disk must have what it was given: its errors come in time
BUFFER: Final = 4 << 20
ALIGNED: Final = 4096  # what O_DIRECT wants of offsets and lengths, at most


@dataclass(frozen=True)
class Piece:
    """A stretch of the image, and the file or disk and offset that it goes to."""

    start: int
    size: int
    to: Path
    offset: int


@dataclass(frozen=True)
class Written:
    """A piece as it was written, with the digest of its bytes."""

    piece: Piece
    sha256: str


def write_pieces(blocks: Iterator[bytes], pieces: Sequence[Piece], progress: Callable[[int], None]) -> list[Written]:
    """Write the pieces of a stream, all of which is read. `progress` is told how many bytes of it have passed."""
    ordered = sorted(pieces, key=lambda piece: piece.start)
    sinks: dict[Path, _Sink] = {}
    digests = [hashlib.sha256() for _ in ordered]
    at, current = 0, 0
    try:
        for piece in ordered:
            if piece.to not in sinks:
                sinks[piece.to] = _Sink(piece.to)
        for block in blocks:
            ends = at + len(block)
            for which in range(current, len(ordered)):
                piece = ordered[which]
                if piece.start >= ends:
                    break
                begin, end = max(piece.start, at), min(piece.start + piece.size, ends)
                if begin < end:
                    part = memoryview(block)[begin - at : end - at]
                    digests[which].update(part)
                    sinks[piece.to].write(part, piece.offset + begin - piece.start)
                if piece.start + piece.size <= ends:
                    current = which + 1
            at = ends
            progress(at)
        if current < len(ordered):
            raise Failed(f"the image ends after {at} bytes, before its partitions do", "image")
        for sink in sinks.values():
            sink.flush()
    finally:
        for sink in sinks.values():
            sink.close()
    return [Written(piece, digest.hexdigest()) for piece, digest in zip(ordered, digests, strict=True)]


class _Sink:
    """A disk or a file that is written to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_disk = path.is_block_device()
        try:
            how = os.O_EXCL if self._is_disk else os.O_CREAT | os.O_TRUNC  # what is mounted can't be had exclusively
            self._fd = os.open(path, os.O_WRONLY | how, 0o600)
        except OSError as error:
            raise Failed(f"{path} can't be written: {error.strerror}") from None
        self._unflushed = 0

    def write(self, part: memoryview, offset: int) -> None:
        if not self._is_disk and bytes(part) == bytes(len(part)):  # a hole: the initrd's files are memory
            if offset + len(part) > os.fstat(self._fd).st_size:
                os.ftruncate(self._fd, offset + len(part))
            return
        at = 0
        try:
            while at < len(part):
                at += os.pwrite(self._fd, part[at:], offset + at)
            self._unflushed += len(part)
            if self._unflushed >= FLUSH and self._is_disk:
                self.flush()
        except OSError as error:
            raise self._failure(error, offset + at) from None

    def flush(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._failure(error) from None
        self._unflushed = 0

    def close(self) -> None:
        os.close(self._fd)

    def _failure(self, error: OSError, at: int | None = None) -> Failed:
        where = "" if at is None else f" at byte {at}"
        return Failed(f"{self._path}: the disk failed while it was written{where}: {error.strerror}", "disk")


def read_back(written: Sequence[Written], progress: Callable[[int], None]) -> None:
    """Compare what the disk gives with what it was given. Raise Failed for the first piece that differs."""
    done = 0
    for one in written:
        piece = one.piece
        digest = digest_of(piece.to, piece.offset, piece.size, _behind(done, progress))
        done += piece.size
        if digest != one.sha256:
            where = f"between {piece.offset} and {piece.offset + piece.size}"
            raise Failed(f"{piece.to} gives other bytes than were written {where}", "disk")


def _behind(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: progress(before + done)


def digest_of(path: Path, offset: int, size: int, progress: Callable[[int], None]) -> str:
    """Return the SHA-256 of what the medium has. `progress` is told how many bytes were read."""
    digest, done = hashlib.sha256(), 0
    for block in _medium(path, offset, size):
        digest.update(block)
        done += len(block)
        progress(done)
    return digest.hexdigest()


def _medium(path: Path, offset: int, size: int) -> Iterator[memoryview]:
    """Yield bytes as the medium has them: past the cache of the kernel, which would give back what we wrote."""
    try:
        device = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise Failed(f"{path} can't be read: {error.strerror}") from None
    try:
        view, at = memoryview(mmap.mmap(-1, BUFFER)), offset // ALIGNED * ALIGNED  # a buffer that starts with a page
        while at < offset + size:
            got = os.preadv(device, [view[: min(BUFFER, -(-(offset + size - at) // ALIGNED) * ALIGNED)]], at)
            if got == 0:
                return  # what is missing makes the digest another
            yield view[max(offset - at, 0) : min(got, offset + size - at)]
            at += got
    except OSError as error:
        raise Failed(f"{path}: the disk failed while it was read back at byte {at}: {error.strerror}", "disk") from None
    finally:
        os.close(device)
