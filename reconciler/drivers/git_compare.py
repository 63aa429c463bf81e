"""A work tree held against what a commit holds, without the index and the filters of its repository.

What git says of a work tree rests on its index, which may say of any file that it is as committed, and on filters,
which are programs that the repository names and may say the same.
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
    """Names of files that are not as in `tree`, and whether they are in it. Bounded by what lies in the folder."""
    there = {entry.name: entry for entry in os.scandir(folder) if entry.name != ".git"}
    for item in tree or ():
        name = str(item.path).rpartition("/")[2]
        entry = there.pop(name, None)
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
    for name, entry in there.items():
        if entry.is_dir(follow_symlinks=False):
            yield from differences(None, folder / name, f"{prefix}{name}/")
        else:
            yield prefix + name, False


def _is_same(blob: Blob, entry: os.DirEntry[str]) -> bool:
    """Whether the entry holds what was committed. Line ends don't count: a checkout may write CRLF."""
    if blob.mode == LINK or entry.is_symlink():
        return blob.mode == LINK and entry.is_symlink() and _name_of(os.fsencode(Path(entry).readlink())) == blob.hexsha
    if not entry.is_file(follow_symlinks=False):
        return False
    with Path(entry).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        name = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        first = file.read(_CHUNK)
        name.update(first)
        while chunk := file.read(_CHUNK):
            name.update(chunk)
    if name.hexdigest() == blob.hexsha:
        return True
    return size <= _CHUNK and _name_of(first.replace(b"\r\n", b"\n")) == blob.hexsha


def _name_of(data: bytes) -> str:
    """The blob id that git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
