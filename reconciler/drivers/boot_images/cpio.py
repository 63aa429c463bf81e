"""Write a folder as a cpio archive (newc) that is the same bytes for the same files: the form of an initrd."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BLOCK: Final = 512
_END: Final = "TRAILER!!!"


def pack_folder(folder: Path, epoch: int) -> bytes:
    """Return all of a folder as an archive: sorted, owned by root, dated `epoch`, with inodes counted from 1.

    What a file may do is reduced to 0755 and 0644, so that the umask of who builds doesn't show.
    """
    packed = bytearray()
    for inode, (path, place) in enumerate(_files(folder), 1):
        mode = place.lstat().st_mode
        if stat.S_ISLNK(mode):
            packed += _entry(inode, path, stat.S_IFLNK | 0o777, epoch, str(place.readlink()).encode())
        elif stat.S_ISDIR(mode):
            packed += _entry(inode, path, stat.S_IFDIR | 0o755, epoch, b"")
        else:
            rights = 0o755 if mode & stat.S_IXUSR else 0o644
            packed += _entry(inode, path, stat.S_IFREG | rights, epoch, place.read_bytes())
    packed += _entry(0, _END, 0, 0, b"")
    return bytes(packed + bytes(-len(packed) % _BLOCK))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is in a folder with its path, a folder before what is in it."""
    found = {str(place.relative_to(folder)): place for place in folder.rglob("*")}
    yield from sorted(found.items(), key=lambda item: item[0].split("/"))


def _entry(inode: int, path: str, mode: int, mtime: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, mtime, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    head += bytes(-len(head) % 4)
    return head + content + bytes(-len(content) % 4)
