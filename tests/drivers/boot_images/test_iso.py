"""The boot medium: the same bytes twice, one FAT filesystem that firmware finds, one placeholder in one piece."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.drivers.boot_images.iso import build_iso, placeholder_offset
from reconciler.drivers.boot_images.tools import BuildFailed
from reconciler.drivers.boot_images.uki import ARCHITECTURES, assemble_uki, uki_parts
from reconciler.model.install import CREDENTIAL_SIZE, MARKER, AttemptCredential, empty_credential, fill_credential
from tests.drivers.boot_images.stub import small_stub

X86 = ARCHITECTURES["x86_64"]
MISSING = [name for name in ("xorriso", "mkfs.vfat", "mcopy", "mmd") if shutil.which(name) is None]
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)}: not installed")
ESP = b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b"  # the type of an EFI system partition


@pytest.fixture
def built(tmp_path: Path) -> Callable[[str], Path]:
    def build(name: str, size: int = 70_000) -> Path:
        uki = tmp_path / "installer.efi"
        parts = uki_parts(kernel=b"K" * size, initrd=b"I" * 9000, cmdline="quiet", os_release="ID=x\n", uname="6.1")
        uki.write_bytes(assemble_uki(small_stub(), parts))
        build_iso(uki, tmp_path / name, X86, epoch=1_700_000_000)
        return tmp_path / name

    return build


def files_of(iso: Path, folder: Path) -> Path:
    """Extract the EFI system partition by the ISO's GPT, as a USB stick is read."""
    image = iso.read_bytes()
    entry = image.find(ESP, 1024)
    first, last = (int.from_bytes(image[entry + at : entry + at + 8], "little") for at in (32, 40))
    partition = folder / "esp.img"
    partition.write_bytes(image[first * 512 : (last + 1) * 512])
    subprocess.run(["mcopy", "-s", "-i", partition, "::EFI", folder], check=True)
    return folder / "EFI" / "BOOT"


@pytest.mark.tool
@needs_tools
@pytest.mark.parametrize("size", [70_000, 40 << 20], ids=["small", "over 32 MiB"])
def test_two_builds_are_the_same_bytes(built: Callable[..., Path], size: int) -> None:
    assert built("1.iso", size).read_bytes() == built("2.iso", size).read_bytes()


@pytest.mark.tool
@needs_tools
def test_the_medium_holds_the_uki_and_the_placeholder(built: Callable[..., Path], tmp_path: Path) -> None:
    iso = built("installer.iso")
    boot = files_of(iso, tmp_path)
    assert (boot / "BOOTX64.EFI").read_bytes() == (tmp_path / "installer.efi").read_bytes()
    assert (boot / "BOOTX64.EFI.extra.d" / "attempt.cred").read_bytes() == empty_credential()


@pytest.mark.tool
@needs_tools
def test_an_attempt_written_over_the_placeholder_is_read_by_the_machine(
    built: Callable[..., Path], tmp_path: Path
) -> None:
    iso = built("installer.iso")
    attempt = fill_credential(AttemptCredential(url="https://10.0.0.1:8443/token", address="10.0.0.7/24"))
    place = placeholder_offset(iso)
    served = bytearray(iso.read_bytes())
    served[place : place + CREDENTIAL_SIZE] = attempt
    iso.write_bytes(served)
    boot = files_of(iso, tmp_path)
    assert (boot / "BOOTX64.EFI.extra.d" / "attempt.cred").read_bytes() == attempt
    assert (boot / "BOOTX64.EFI").read_bytes() == (tmp_path / "installer.efi").read_bytes()


@pytest.mark.tool
@needs_tools
def test_firmware_finds_all_of_a_large_image_on_a_cd(built: Callable[..., Path]) -> None:
    """EDK2 takes an El Torito image of 0 sectors, too many for 16 bits, up to the end of the ISO's filesystem."""
    image = built("installer.iso", 40 << 20).read_bytes()
    volume, catalog = image[16 * 2048 :][:2048], int.from_bytes(image[17 * 2048 + 0x47 :][:4], "little")
    blocks = int.from_bytes(volume[80:84], "little")
    entry = image[catalog * 2048 + 32 :][:32]
    sectors, first = int.from_bytes(entry[6:8], "little"), int.from_bytes(entry[8:12], "little")
    assert sectors == 0
    assert (blocks - first) * 2048 > 40 << 20


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"nothing here", "has no placeholder"),
        (empty_credential() + bytes(512) + MARKER, "more than once"),
        (empty_credential()[:2048] + bytes(2048) + empty_credential()[2048:], "in pieces"),
    ],
)
def test_a_medium_that_can_not_be_filled_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    iso = tmp_path / "installer.iso"
    iso.write_bytes(bytes(4096) + content)
    with pytest.raises(BuildFailed, match=problem):
        placeholder_offset(iso)
