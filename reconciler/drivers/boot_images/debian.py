"""Fetch packages of Debian with all that they depend on, and unpack them. No script of theirs runs; no root is needed.

apt verifies the archive's signature and each package's digest.
"""

from __future__ import annotations

import shlex
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.drivers.boot_images.tools import run_tool
from reconciler.drivers.boot_images.uki import Architecture
from reconciler.model.errors import UsageError

FIRMWARE_COMPONENT: Final = "non-free-firmware"
DEFAULT_COMPONENTS: Final = ("main", FIRMWARE_COMPONENT)
_RELEASE: Final = Path("/etc/os-release")

# program of an initrd -> the package that has it
PROGRAM_PACKAGES: Final[Mapping[str, str]] = {
    "addpart": "util-linux",
    "busybox": "busybox-static",
    "delpart": "util-linux",
    "hdparm": "hdparm",
    "mcopy": "mtools",
    "mdel": "mtools",
    "mdir": "mtools",
    "minisign": "minisign",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "mmd": "mtools",
    "mmove": "mtools",
    "modprobe": "kmod",
    "mount": "mount",
    "nvme": "nvme-cli",
    "python3": "python3-minimal",
    "sfdisk": "fdisk",
    "ssh-keygen": "openssh-client",
    "tpm2": "tpm2-tools",
    "umount": "mount",
    "zstd": "zstd",
}
_FIRMWARE_PACKAGES: Final = (
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-misc-nonfree",
    "firmware-qlogic",
    "firmware-realtek",
)


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The archives of packages: `mirrors`, URLs or lines as in sources.list, else Debian's own."""

    suite: str
    components: tuple[str, ...] = DEFAULT_COMPONENTS
    mirrors: tuple[str, ...] = ()


def running_suite(release: Path = _RELEASE) -> str:
    """Return the code name of the Debian that this machine runs. Raise UsageError on another system."""
    lines = release.read_text().splitlines() if release.is_file() else []
    values = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    if values.get("ID") != "debian" or "VERSION_CODENAME" not in values:
        raise UsageError(
            "this machine does not run Debian: name the release to build from with --suite, such as bookworm"
        )
    return values["VERSION_CODENAME"]


def packages_for(programs: Iterable[str], architecture: Architecture, source: PackageSource) -> tuple[str, ...]:
    """Return the packages that bring kernel, systemd-stub, firmware and these programs. Raise UsageError."""
    unknown = [program for program in programs if program not in PROGRAM_PACKAGES]
    if unknown:
        raise UsageError(f"no package is known for {', '.join(unknown)}: add it to PROGRAM_PACKAGES")
    firmware = _FIRMWARE_PACKAGES if FIRMWARE_COMPONENT in source.components else ()
    fixed = (architecture.kernel_package, "libpython3-stdlib", "systemd-boot-efi", *firmware)
    return tuple(sorted({*fixed, *(PROGRAM_PACKAGES[program] for program in programs)}))


def unpack_packages(
    root: Path, packages: Iterable[str], architecture: Architecture, source: PackageSource
) -> dict[str, str]:
    """Unpack packages and what they depend on into `root`. Return each one's version."""
    with tempfile.NamedTemporaryFile("r", prefix="reconciler-packages-") as listing:
        listed = f'ls "$1/var/cache/apt/archives" > {shlex.quote(listing.name)}'
        run_tool(
            "mmdebstrap", "--quiet", "--mode=chrootless", "--variant=extract",
            f"--architectures={architecture.debian}", f"--components={','.join(source.components)}",
            f"--include={','.join(packages)}", f"--extract-hook={listed}",
            source.suite, str(root), *source.mirrors,
        )  # fmt: skip
        files = [line.removesuffix(".deb").split("_") for line in listing.read().splitlines() if line.endswith(".deb")]
    return {name: urllib.parse.unquote(version) for name, version, _ in sorted(files)}
