"""The EFI system partition, through mtools, which need neither a mount nor the kernel's FAT and its code pages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from reconciler.installer.machine import Failed, Machine


@dataclass(frozen=True)
class Esp:
    """A FAT file system on a device or in a file. Paths are relative to its root. What is changed is on the medium."""

    machine: Machine
    device: Path

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, none when it is not there."""
        try:
            told = self._run("mdir", "-b", f"::/{folder}/").decode(errors="replace")
        except Failed as error:
            if "not found" in str(error):
                return []
            raise
        return sorted(PurePosixPath(line).name for line in told.splitlines() if line and not line.endswith("/"))

    def read(self, path: str) -> bytes:
        return self._run("mcopy", "-n", f"::/{path}", "-")

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and compare what is there then."""
        self._run("mcopy", "-o", "-", f"::/{path}", stdin=data)
        self._sync()
        if self.read(path) != data:
            raise Failed(f"the ESP gives other bytes of {path} than were written")

    def move(self, path: str, folder: str) -> None:
        """Move a file into another folder. Within one folder, mren of mtools 4.0.32 aborts where names were deleted."""
        self._run("mmove", f"::/{path}", f"::/{folder}/")
        self._sync()

    def remove(self, path: str) -> None:
        self._run("mdel", f"::/{path}")
        self._sync()

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it."""
        for above in (*reversed(PurePosixPath(folder).parents[:-1]), PurePosixPath(folder)):
            names = self._run("mdir", "-b", f"::/{above.parent}/" if above.parent.name else "::/").decode(
                errors="replace"
            )
            if above.name.lower() not in (PurePosixPath(line).name.lower() for line in names.splitlines()):
                self._run("mmd", f"::/{above}")

    def copy_tree(self, source: Esp) -> None:
        """Copy all files of another ESP."""
        with TemporaryDirectory(dir=self.machine.work) as scratch:
            source._run("mcopy", "-s", "-n", "::/*", scratch)
            for entry in sorted(Path(scratch).iterdir()):
                self._run("mcopy", "-s", "-o", str(entry), "::/")
        self._sync()

    def _run(self, command: str, *words: str, stdin: bytes = b"") -> bytes:
        return self.machine.run(command, "-i", str(self.device), *words, stdin=stdin)

    def _sync(self) -> None:
        handle = os.open(self.device, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
