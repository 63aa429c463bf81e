"""Compare a work tree with a commit, without the index and the filters of its repository.

Git's own answer rests on the index, which may claim of any file that it is as committed, and on filters, which are
programs that the repository names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from git import Blob, Tree

LINK: Final = 0o120000
_CHUNK: Final = 1024 * 1024


def differences(tree: Tree | None, folder: Path, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yield files that differ from `tree`, and whether they are in it. Reads no more than the folder holds."""
    entries = {entry.name: entry for entry in os.scandir(folder) if entry.name != ".git"}
    for item in tree or ():
        name = str(item.path).rpartition("/")[2]
        entry = entries.pop(name, None)
        if item.type == "submodule":
            if entry is not None and entry.is_dir(follow_symlinks=False):
                yield from differences(None, folder / name, f"{prefix}{name}/")
        elif item.type == "tree":
            if entry is None or not entry.is_dir(follow_symlinks=False):
                yield prefix + name, True
            else:
                yield from differences(item, folder / name, f"{prefix}{name}/")
        elif entry is None or not _is_same(item, entry):
            yield prefix + name, True
    for name, entry in entries.items():
        if entry.is_dir(follow_symlinks=False):
            yield from differences(None, folder / name, f"{prefix}{name}/")
        else:
            yield prefix + name, False


def _is_same(blob: Blob, entry: os.DirEntry[str]) -> bool:
    """Say whether the entry is as committed. Line ends don't count: a checkout may write CRLF."""
    if blob.mode == LINK or entry.is_symlink():
        return blob.mode == LINK and entry.is_symlink() and _blob_id(os.fsencode(Path(entry).readlink())) == blob.hexsha
    if not entry.is_file(follow_symlinks=False):
        return False
    with Path(entry).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        first = file.read(_CHUNK)
        digest.update(first)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() == blob.hexsha:
        return True
    return size <= _CHUNK and _blob_id(first.replace(b"\r\n", b"\n")) == blob.hexsha


def _blob_id(data: bytes) -> str:
    """Return the blob id of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
