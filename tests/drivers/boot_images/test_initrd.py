"""The parts of an initrd: the archive, the libraries of its programs, and where packages come from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.drivers.boot_images.cpio import pack_folder
from reconciler.drivers.boot_images.debian import PROGRAM_PACKAGES, PackageSource, packages_for, running_suite
from reconciler.drivers.boot_images.elf import find_program, libraries_of, resolve
from reconciler.drivers.boot_images.kernel import find_kernel
from reconciler.drivers.boot_images.tools import BuildFailed, need_tools
from reconciler.drivers.boot_images.uki import ARCHITECTURES
from reconciler.installer import PROGRAMS
from reconciler.model.errors import UsageError

X86 = ARCHITECTURES["x86_64"]


def write_tree(folder: Path, *, umask: int) -> Path:
    before = os.umask(umask)
    try:
        for name in ("usr/bin", "etc", "usr/bin-2"):
            (folder / name).mkdir(parents=True)
        (folder / "usr/bin/sh").write_bytes(b"\x7fELF")
        (folder / "usr/bin/sh").chmod(0o711)
        (folder / "etc/passwd").write_text("root\n")
        (folder / "bin").symlink_to("usr/bin")
    finally:
        os.umask(before)
    return folder


def test_an_archive_is_the_same_whoever_packs_it_and_when(tmp_path: Path) -> None:
    first = pack_folder(write_tree(tmp_path / "1", umask=0o022), 1_700_000_000)
    os.utime(tmp_path / "1/etc/passwd", (1, 1))
    assert pack_folder(write_tree(tmp_path / "2", umask=0o077), 1_700_000_000) == first


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
def test_cpio_reads_the_archive(tmp_path: Path) -> None:
    packed = pack_folder(write_tree(tmp_path / "1", umask=0o022), 1_700_000_000)
    listed = subprocess.run(
        ["cpio", "-tvn", "--quiet"], input=packed, capture_output=True, check=True, env={**os.environ, "TZ": "UTC"}
    ).stdout.decode()
    rows = [line.split() for line in listed.splitlines()]
    assert {" ".join(row[8:]): (row[0], row[2], row[3]) for row in rows} == {
        "bin -> usr/bin": ("lrwxrwxrwx", "0", "0"),
        "etc": ("drwxr-xr-x", "0", "0"),
        "etc/passwd": ("-rw-r--r--", "0", "0"),
        "usr": ("drwxr-xr-x", "0", "0"),
        "usr/bin": ("drwxr-xr-x", "0", "0"),
        "usr/bin/sh": ("-rwxr-xr-x", "0", "0"),
        "usr/bin-2": ("drwxr-xr-x", "0", "0"),
    }
    assert {tuple(row[5:8]) for row in rows} == {("Nov", "14", "2023")}


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_the_libraries_of_a_program_include_its_interpreter() -> None:
    """libc names the interpreter as a library too, which is looked for elsewhere; the kernel opens it by its path."""
    root = Path("/")
    program = find_program(root, "openssl" if shutil.which("openssl") else Path(sys.executable).name)
    found = libraries_of(root, [program])
    names = {Path(path).name for path in found}
    assert "libc.so.6" in names
    assert any(path.startswith(("lib64/ld-", "lib/ld-")) for path in found), found
    assert all(place.is_file() for place in found.values())


def test_links_are_followed_inside_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kmod").write_text("kmod")
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/modprobe").symlink_to("/bin/kmod")
    (tmp_path / "sbin/insmod").symlink_to("../bin/kmod")
    (tmp_path / "sbin/outside").symlink_to("../../../../bin/kmod")
    (tmp_path / "sbin/round").symlink_to("round")
    (tmp_path / "sbin/host").symlink_to(Path(__file__))
    for name in ("modprobe", "insmod", "outside"):
        assert resolve(tmp_path, f"sbin/{name}") == tmp_path / "bin/kmod"
    assert resolve(tmp_path, "sbin/round") is None
    assert resolve(tmp_path, "sbin/host") is None
    assert find_program(tmp_path, "modprobe") == tmp_path / "bin/kmod"
    with pytest.raises(BuildFailed, match="no unpacked package has the program rmmod"):
        find_program(tmp_path, "rmmod")


def test_a_root_without_its_one_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    with pytest.raises(BuildFailed, match="0 kernels"):
        find_kernel(tmp_path)
    (tmp_path / "boot/vmlinuz-6.1.0-1-amd64").touch()
    with pytest.raises(BuildFailed, match=r"no modules were unpacked for the kernel 6\.1\.0-1-amd64"):
        find_kernel(tmp_path)
    (tmp_path / "lib/modules/6.1.0-1-amd64").mkdir(parents=True)
    assert find_kernel(tmp_path).release == "6.1.0-1-amd64"


def test_every_program_of_the_installer_has_a_package() -> None:
    assert set(PROGRAMS) <= set(PROGRAM_PACKAGES)


def test_firmware_is_left_out_where_its_component_is() -> None:
    free = packages_for(PROGRAMS, X86, PackageSource("bookworm", ("main",)))
    assert not [name for name in free if name.startswith("firmware-")]
    assert "linux-image-amd64" in free
    assert "firmware-misc-nonfree" in packages_for(PROGRAMS, X86, PackageSource("bookworm"))


def test_the_release_of_this_machine_is_asked_for_where_it_is_not_debian(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    assert running_suite(release) == "bookworm"
    release.write_text("ID=fedora\n")
    with pytest.raises(UsageError, match="--suite"):
        running_suite(release)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("reconciler.drivers.boot_images.tools._SEARCHED", str(tmp_path))
    with pytest.raises(UsageError, match=r"missing here: mcopy, xorriso; apt-get install mtools xorriso"):
        need_tools(("mcopy", "xorriso"))
