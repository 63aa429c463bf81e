"""Read the files of a spec within bounds, as a pull request may contain anything."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from reconciler.model.errors import Position
from reconciler.spec.kinds.operators import VALUES_FILE
from reconciler.strict_yaml.parse import UnreadableFile

_MIB: Final = 1024 * 1024
MAX_YAML_BYTES: Final = _MIB
MAX_OTHER_BYTES: Final = 16 * _MIB
# For all files of a spec together. The YAML of 60,000 nodes, one entry each, is 8 MiB, which takes minutes to parse;
# the CSV files of 200,000 nodes are 30 MiB.
MAX_YAML_BYTES_IN_ALL: Final = 8 * _MIB
MAX_BYTES_IN_ALL: Final = 64 * _MIB
MAX_ENTRIES: Final = 100_000  # files and folders; the sources of Linux, a large repository, have 90,000
MAX_FOLDERS: Final = 32  # nested in one another


class SpecTooLarge(UnreadableFile):
    """The spec as a whole is larger than a spec may be, so the rest of it is not read."""


class SpecTree:
    """The files of a spec: a directory, or their contents by relative path, as a git revision gives them."""

    def __init__(self, source: Path | Mapping[str, bytes], directory: str) -> None:
        self._source = source
        self._prefix = "" if directory in {"", "."} else directory.rstrip("/") + "/"
        self._counted: set[str] = set()  # names of the files read
        self._yaml_bytes, self._all_bytes = 0, 0

    def where(self, name: str, line: int = 0, column: int = 0) -> Position:
        shown = (self._prefix + name).rstrip("/") or "."
        return Position(shown.encode(errors="replace").decode(), line, column)  # names of files need not be UTF-8

    def yaml_names(self) -> list[str]:
        """Return the names of YAML files, and of links for `read` to refuse, but none that begins with a dot.

        Files of values for charts are left out: they are read where a resource names them.
        """
        if isinstance(self._source, Path):
            entries = self.entries()
            return sorted(name for name, entry in entries if _holds_resources(name) or entry.is_symlink())
        return sorted(name for name in self._source if _holds_resources(name) and not re.search(r"(^|/)\.", name))

    def json_names(self, folder: str) -> list[str]:
        """Return the names of JSON files in a folder, which is named with a slash at its end."""
        if isinstance(self._source, Path):
            if not (self._source / folder).is_dir():
                return []
            names = [name for name, _ in self.entries()]
        else:
            names = list(self._source)
        return sorted(name for name in names if name.startswith(folder) and name.endswith(".json"))

    def entries(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files and links of the directory by their path below it, without dotfiles.

        Raise UnreadableFile for a folder that can't be listed, SpecTooLarge as `SpecWalk` does.
        """
        if not isinstance(self._source, Path):
            return
        try:
            yield from _entries(self._source, "", self.walk(), 0)
        except OSError as error:
            raise UnreadableFile(self.where(""), f"{error.filename}: {error.strerror}") from None

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raise UnreadableFile when it is no plain file of the tree, or too large."""
        limit = most_bytes(name)
        source = self._source
        data = self._read_file(source, name, limit) if isinstance(source, Path) else source.get(name)
        if data is None:
            raise UnreadableFile(self.where(name), "no such file in the spec directory")
        self.check_size(name, len(data))
        self._count(name, len(data))
        return data

    def walk(self) -> SpecWalk:
        return SpecWalk(self)

    def check_size(self, name: str, size: int) -> None:
        """Raise UnreadableFile if a file of `size` bytes is larger than a file of a spec may be."""
        limit = most_bytes(name)
        if size > limit:
            raise UnreadableFile(self.where(name), f"larger than {limit // _MIB} MiB")

    def text(self, name: str) -> str:
        data = self.read(name)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            column = error.start - data.rfind(b"\n", 0, error.start)
            raise UnreadableFile(self.where(name, line, column), "not UTF-8 text") from None

    def _count(self, name: str, size: int) -> None:
        if name in self._counted:
            return
        self._counted.add(name)
        self._all_bytes += size
        self._yaml_bytes += size * is_yaml(name)
        if self._yaml_bytes > MAX_YAML_BYTES_IN_ALL:
            problem = f"with this file the spec has more than {MAX_YAML_BYTES_IN_ALL // _MIB} MiB of YAML"
            raise SpecTooLarge(self.where(name), problem, "list nodes in CSV files, and keep other YAML elsewhere")
        if self._all_bytes > MAX_BYTES_IN_ALL:
            problem = f"with this file the spec is larger than {MAX_BYTES_IN_ALL // _MIB} MiB"
            raise SpecTooLarge(self.where(name), problem, "a fleet this large needs several specs")

    def _read_file(self, root: Path, name: str, limit: int) -> bytes | None:
        path = root
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise UnreadableFile(self.where(name), "a symbolic link", "a spec holds plain files only")
        try:
            # Without O_NONBLOCK, opening a FIFO would wait for a writer. The type is that of the file that was opened.
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableFile(self.where(name), str(error.strerror)) from None
        with os.fdopen(opened, "rb", closefd=True) as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise UnreadableFile(self.where(name), "not a plain file", "a spec holds plain files only")
            try:
                return file.read(limit + 1)
            except OSError as error:
                raise UnreadableFile(self.where(name), str(error.strerror)) from None


class SpecWalk:
    """Bounds one walk through the folders of a spec, on a disk or in a commit."""

    def __init__(self, tree: SpecTree) -> None:
        self.tree = tree
        self._visited = 0

    def visit(self, name: str, depth: int) -> None:
        """Count a file or folder nested in `depth` folders. Raise SpecTooLarge beyond what a spec may have."""
        self._visited += 1
        hint = "keep the spec in a folder of its own, and give that"
        if self._visited > MAX_ENTRIES:
            raise SpecTooLarge(self.tree.where(name), f"there are more than {MAX_ENTRIES} files and folders", hint)
        if depth > MAX_FOLDERS:
            raise SpecTooLarge(self.tree.where(name), f"below more than {MAX_FOLDERS} folders", hint)


def is_yaml(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _holds_resources(name: str) -> bool:
    return is_yaml(name) and not name.endswith(VALUES_FILE)


def most_bytes(name: str) -> int:
    return MAX_YAML_BYTES if is_yaml(name) else MAX_OTHER_BYTES


def _entries(folder: Path, prefix: str, walk: SpecWalk, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            walk.visit(prefix + entry.name, depth)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(folder / entry.name, f"{prefix}{entry.name}/", walk, depth + 1)
            else:
                yield prefix + entry.name, entry
