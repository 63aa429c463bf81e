"""Build the installer's initrd from unpacked packages: its programs, Python, kernel modules, and whom it trusts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from reconciler.drivers.boot_images.cpio import pack_folder
from reconciler.drivers.boot_images.elf import find_program, libraries_of, resolve
from reconciler.drivers.boot_images.kernel import Kernel, PickedModules, pick_modules
from reconciler.drivers.boot_images.tools import BuildFailed, run_tool

# The kernel starts it with the console as its output. A machine whose installer ended, however it did, is switched off.
_INIT: Final = """\
#!/bin/busybox sh
export PATH=/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
python3 -m reconciler.installer
busybox poweroff -f
"""
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",  # ssh-keygen asks who it is
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
_FOLDERS: Final = ("dev", "mnt", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64", "var")
_LINKS: Final = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/sbin": "bin"}
_COPIED: Final = ("etc/mke2fs.conf",)
_OPENED_BY_NAME: Final = ("libgcc_s.so.1", "libtss2-tcti-device.so.0")
# Names on a FAT are in a code page, which mtools can't do without.
_CODE_PAGE: Final = ("gconv-modules", "gconv-modules.d/gconv-modules-extra.conf", "IBM850.so")
_NO_USE: Final = (
    "__pycache__", "curses", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "sqlite3", "test", "tkinter",
    "turtledemo", "venv", "_codecs_*", "_crypt.*", "_curses*", "_dbm.*", "_lsprof.*", "_sqlite3.*", "_test*", "_xx*",
    "audioop.*", "nis.*", "ossaudiodev.*", "readline.*", "xxlimited*",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class InitrdContent:
    """The parts that come from no package. `package` is the folder of this project's Python package."""

    package: Path
    programs: tuple[str, ...]
    modules: tuple[str, ...]
    ca: bytes
    keys: Mapping[str, bytes]  # minisign public keys by name


@dataclass(frozen=True, slots=True)
class Initrd:
    data: bytes
    unpacked: int  # bytes that it takes in the machine's memory
    modules: PickedModules


def build_initrd(root: Path, kernel: Kernel, content: InitrdContent, target: Path, epoch: int) -> Initrd:
    """Gather an initrd in the folder `target` from packages unpacked into `root`, and pack it."""
    for folder in _FOLDERS:
        (target / folder).mkdir(parents=True)
    for link, to in _LINKS.items():
        (target / link).symlink_to(to)
    programs = {name: find_program(root, name) for name in ("python3", *content.programs)}
    for name, source in programs.items():  # by its own name: kmod and mke2fs do what they are called
        _copy(source, target / "usr/bin" / name)
    extensions = _copy_python(root, target)
    for path, source in libraries_of(root, [*programs.values(), *extensions], _OPENED_BY_NAME).items():
        _copy(source, target / path)
    converters = [place.relative_to(root) for place in sorted((root / "usr/lib").glob("*/gconv"))]
    for path in (*_COPIED, *(f"{folder}/{name}" for folder in converters for name in _CODE_PAGE)):
        found = resolve(root, path)
        if found is None:
            raise BuildFailed(f"no unpacked package has /{path}")
        _copy(found, target / path)
    picked = pick_modules(root, kernel, content.modules, target)
    _write_own(content, target)
    packed = pack_folder(target, epoch)
    compressed = run_tool("zstd", "--quiet", "-12", "-T0", "--stdout", "-", stdin=packed)
    return Initrd(compressed, len(packed), picked)


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    place.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _copy_python(root: Path, target: Path) -> list[Path]:
    """Copy Python's own library. Return its extension modules."""
    libraries = sorted((root / "usr/lib").glob("python3.*"))
    if len(libraries) != 1:
        raise BuildFailed(f"{len(libraries)} versions of Python were unpacked in place of one")
    place = target / "usr/lib" / libraries[0].name

    def of_no_use(_: str, names: list[str]) -> list[str]:
        return [name for name in names if any(fnmatch(name, pattern) for pattern in _NO_USE)]

    shutil.copytree(libraries[0], place, ignore=of_no_use, ignore_dangling_symlinks=True)
    return sorted((place / "lib-dynload").glob("*.so"))


def _write_own(content: InitrdContent, target: Path) -> None:
    package = target / "usr/lib/python3/dist-packages" / content.package.name
    package.mkdir(parents=True)
    shutil.copyfile(content.package / "__init__.py", package / "__init__.py")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(content.package / "installer", package / "installer", ignore=ignored)
    trust = target / "etc/reconciler"
    (trust / "keys").mkdir(parents=True)
    (trust / "ca.pem").write_bytes(content.ca)
    for name, key in content.keys.items():
        (trust / "keys" / f"{name}.pub").write_bytes(key)
    for path, text in _FILES.items():
        (target / path).write_text(text)
    (target / "init").write_text(_INIT)
    (target / "init").chmod(0o755)
