"""Compare a work tree with a commit, without the index and the filters of its repository.

Git's own answer rests on the index, which may claim of any file that it is as committed, and on filters, which are
programs that the repository names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

LINK: Final = 0o120000
FOLDER_MODE: Final = 0o040000
_SUBMODULE: Final = 0o160000
_SHA1_DIGITS: Final = 40
_CHUNK: Final = 1024 * 1024


class Entry(NamedTuple):
    """An entry of a folder of a commit. `id`: of the object that the file or folder is."""

    name: str
    mode: int
    id: str


def differences(
    entries: Iterable[Entry], read: Callable[[str], Iterable[Entry]], folder: Path, prefix: str
) -> Iterator[tuple[str, bool]]:
    """Yield files below `folder` that differ from the commit's `entries`, and whether they are in it.

    Reads no more than the folder holds. `read` returns the entries of a committed folder by its id.
    """
    present = {entry.name: entry for entry in os.scandir(folder) if entry.name != ".git"}
    for item in entries:
        name = item.name
        entry = present.pop(name, None)
        if item.mode == _SUBMODULE:
            if entry is not None and entry.is_dir(follow_symlinks=False):
                yield from differences((), read, folder / name, f"{prefix}{name}/")
        elif item.mode == FOLDER_MODE:
            if entry is None or not entry.is_dir(follow_symlinks=False):
                yield prefix + name, True
            else:
                yield from differences(read(item.id), read, folder / name, f"{prefix}{name}/")
        elif entry is None or not _is_same(item, entry):
            yield prefix + name, True
    for name, entry in present.items():
        if entry.is_dir(follow_symlinks=False):
            yield from differences((), read, folder / name, f"{prefix}{name}/")
        else:
            yield prefix + name, False


def _is_same(blob: Entry, entry: os.DirEntry[str]) -> bool:
    """Say whether the entry is as committed. Line ends don't count: a checkout may write CRLF."""
    if blob.mode == LINK or entry.is_symlink():
        return (
            blob.mode == LINK and entry.is_symlink() and _blob_id(os.fsencode(Path(entry).readlink()), blob) == blob.id
        )
    if not entry.is_file(follow_symlinks=False):
        return False
    with Path(entry).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.new(_algorithm(blob), b"blob %d\0" % size, usedforsecurity=False)
        first = file.read(_CHUNK)
        digest.update(first)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() == blob.id:
        return True
    return size <= _CHUNK and _blob_id(first.replace(b"\r\n", b"\n"), blob) == blob.id


def _blob_id(data: bytes, like: Entry) -> str:
    """Return the blob id of this content, in a repository that has `like`."""
    return hashlib.new(_algorithm(like), b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _algorithm(entry: Entry) -> str:
    return "sha1" if len(entry.id) == _SHA1_DIGITS else "sha256"
