"""Find programs and the shared libraries that they need in a root that packages were unpacked into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from reconciler.drivers.boot_images.tools import BuildFailed, run_tool

_BIN: Final = ("usr/bin", "usr/sbin", "bin", "sbin")
_LIB: Final = ("usr/lib", "lib")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
_INTERPRETER = re.compile(r"program interpreter: (\S+)\]")
_DEEPEST: Final = 40  # links of links


def resolve(root: Path, path: str) -> Path | None:
    """Return the file that a path means inside `root`, where absolute links begin there too. None: there is none."""
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    at = PurePosixPath()
    for _ in range(_DEEPEST + len(parts)):
        if not parts:
            return root / at if (root / at).is_file() else None
        part = parts.pop(0)
        step = root / at / part
        if part == "..":
            at = at.parent
        elif step.is_symlink():
            target = PurePosixPath(step.readlink())
            at = PurePosixPath() if target.is_absolute() else at
            parts[:0] = [one for one in target.parts if one != "/"]
        else:
            at /= part
    return None


def find_program(root: Path, name: str) -> Path:
    """Return the program's file in `root`. Raise BuildFailed."""
    found = next((place for folder in _BIN if (place := resolve(root, f"{folder}/{name}"))), None)
    if found is None:
        raise BuildFailed(f"no unpacked package has the program {name}")
    return found


def libraries_of(root: Path, files: Iterable[Path], loaded: Iterable[str] = ()) -> dict[str, Path]:
    """Return the shared libraries that files need, and those of `loaded`, by the paths at which they are looked for.

    `loaded` are libraries that programs open by name, which no header says.
    """
    found: dict[str, Path] = {}
    waiting = list(files)
    for name in loaded:
        waiting.append(_add(root, name, found))
    while waiting:
        for needed in _needs(waiting.pop()):
            # The interpreter is opened by its path, and is a library that others name too.
            there = {path if needed.startswith("/") else PurePosixPath(path).name for path in found}
            if needed.lstrip("/") not in there:
                waiting.append(_add(root, needed, found))
    return found


def _needs(file: Path) -> Iterator[str]:
    text = run_tool("readelf", "--wide", "-d", "-l", str(file)).decode()
    yield from _NEEDED.findall(text)
    yield from _INTERPRETER.findall(text)


def _add(root: Path, needed: str, found: dict[str, Path]) -> Path:
    name = PurePosixPath(needed).name
    folders = [str(PurePosixPath(needed).parent)] if needed.startswith("/") else []
    for base in _LIB:
        folders += [str(place.relative_to(root)) for place in sorted((root / base).glob("*-linux-gnu*"))] + [base]
    for folder in folders:
        place = resolve(root, f"{folder}/{name}") or resolve(root, f"usr/{folder.lstrip('/')}/{name}")
        if place is not None:
            found[f"{folder.lstrip('/')}/{name}"] = place
            return place
    raise BuildFailed(f"no unpacked package has the library {needed}")
