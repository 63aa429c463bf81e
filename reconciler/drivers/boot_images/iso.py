"""Build the installer's boot medium: an ISO whose one partition is an EFI system partition with a UKI.

Firmware boots it as a CD (El Torito), as a USB stick (GPT) and from memory after HTTP boot. All three ways lead to the
same FAT filesystem, which is in the file once. It holds the placeholder that is filled in while the ISO is served.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Final

from reconciler.drivers.boot_images.tools import BuildFailed, run_tool
from reconciler.drivers.boot_images.uki import Architecture
from reconciler.model.install import CREDENTIAL_NAME, MARKER, empty_credential

LABEL: Final = "RECINST"
_ESP: Final = "esp.img"
_MIB: Final = 1 << 20
_SECTORS_PER_CLUSTER: Final = 8  # a cluster is as large as the placeholder, which can't be split then


def build_iso(uki: Path, output: Path, architecture: Architecture, epoch: int) -> int:
    """Write the ISO with this UKI. Return the offset of the placeholder in it."""
    with tempfile.TemporaryDirectory(prefix="reconciler-iso-") as folder:
        tree, credential = Path(folder, "tree"), Path(folder, CREDENTIAL_NAME)
        tree.mkdir()
        credential.write_bytes(empty_credential())
        _write_esp(tree / _ESP, uki, credential, architecture, epoch)
        for place in (tree / _ESP, tree):  # a folder after what is in it
            os.utime(place, (epoch, epoch))
        # A file of the ISO: where an image of over 32 MiB ends, firmware takes from the size of the ISO's filesystem,
        # and it finds nothing in a partition that is appended behind that.
        run_tool(
            "xorriso", "-as", "mkisofs", "-quiet", "-r", "-V", LABEL, "-e", _ESP, "-no-emul-boot", "-efi-boot-part",
            "--efi-boot-image", "--set_all_file_dates", "set_to_mtime", "-o", str(output), str(tree), env=_dated(epoch),
        )  # fmt: skip
    return placeholder_offset(output)


def placeholder_offset(iso: Path) -> int:
    """Return where the placeholder is in an ISO. Raise BuildFailed unless it is there once and in one piece."""
    with iso.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(MARKER)
        if place < 0:
            raise BuildFailed(f"{iso.name} has no placeholder for the attempt")
        if content.find(MARKER, place + 1) >= 0:
            raise BuildFailed(f"{iso.name} has the placeholder's marker more than once")
        if content[place : place + len(empty_credential())] != empty_credential():
            raise BuildFailed(f"{iso.name} has the placeholder in pieces")
        return place


def _write_esp(partition: Path, uki: Path, credential: Path, architecture: Architecture, epoch: int) -> None:
    size = uki.stat().st_size
    with partition.open("wb") as file:
        file.truncate(-(-(size + size // 256) // _MIB) * _MIB + _MIB)
    run_tool("mkfs.vfat", "--invariant", "-n", LABEL, "-s", str(_SECTORS_PER_CLUSTER), str(partition))
    boot = f"::EFI/BOOT/{architecture.boot_file}"
    on = ("-i", str(partition))
    run_tool("mmd", *on, "::EFI", "::EFI/BOOT", f"{boot}.extra.d", env=_dated(epoch))
    run_tool("mcopy", *on, str(credential), f"{boot}.extra.d/{CREDENTIAL_NAME}", env=_dated(epoch))
    run_tool("mcopy", *on, str(uki), boot, env=_dated(epoch))


def _dated(epoch: int) -> dict[str, str]:
    """Return what makes mtools and xorriso date what they write `epoch`."""
    return {"SOURCE_DATE_EPOCH": str(epoch)}
