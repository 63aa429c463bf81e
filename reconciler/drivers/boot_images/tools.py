"""Run the programs that build boot media, and say which package brings one that is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from reconciler.model.errors import ReconcilerError, UsageError

# program -> the Debian package that has it
PACKAGES: Final[Mapping[str, str]] = {
    "depmod": "kmod",
    "mcopy": "mtools",
    "mdir": "mtools",
    "minisign": "minisign",
    "mke2fs": "e2fsprogs",
    "mkfs.erofs": "erofs-utils",
    "mkfs.vfat": "dosfstools",
    "mmd": "mtools",
    "mmdebstrap": "mmdebstrap",
    "modinfo": "kmod",
    "osslsigncode": "osslsigncode",
    "readelf": "binutils",
    "xorriso": "xorriso",
    "zstd": "zstd",
}
_LAST_LINES: Final = 5
_SEARCHED: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class BuildFailed(ReconcilerError):
    """A program that builds a part ended with an error, or a part is not as it must be."""


def need_tools(programs: Iterable[str]) -> None:
    """Raise UsageError if a program is not on this machine: it says what to install."""
    missing = [program for program in programs if shutil.which(program, path=_SEARCHED) is None]
    if missing:
        packages = sorted({PACKAGES[program] for program in missing})
        raise UsageError(f"missing here: {', '.join(missing)}; apt-get install {' '.join(packages)}")


def run_tool(*argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes:
    """Return what the program writes to stdout. Raise BuildFailed with its last lines when it fails."""
    need_tools(argv[:1])
    environment = {**os.environ, "PATH": _SEARCHED, "LC_ALL": "C.UTF-8", "TZ": "UTC", **(env or {})}
    done = subprocess.run(argv, input=stdin, capture_output=True, cwd=cwd, env=environment, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise BuildFailed(f"{argv[0]} ended with {done.returncode}: {' / '.join(said) or 'it said nothing'}")
    return done.stdout
