"""Loop devices as disks of a machine, and tiny images that real tools made: what the init's tests write."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

MIB = 1 << 20
TOOLS = ("losetup", "sfdisk", "mkfs.ext4", "mkfs.vfat", "zstd", "minisign", "busybox", "addpart", "mcopy", "ssh-keygen")
ROOT_TYPE, VERITY_TYPE = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5"
ESP_TYPE = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"


def need_disks() -> None:
    """Skip a test where no disk can be played."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"without {', '.join(missing)} no disk can be written")
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("a disk is a loop device here, which takes root")


def run(*command: str, stdin: str = "") -> str:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


@contextmanager
def loop_disk(folder: Path, size: int, sector: int = 512) -> Iterator[Path]:
    """Give a disk of zeros as a loop device, which knows partitions."""
    backing = folder / "backing"
    backing.touch()
    os.truncate(backing, size)
    sector_size = () if sector == 512 else ("--sector-size", str(sector))
    device = run("losetup", "--find", "--show", "--partscan", *sector_size, str(backing)).strip()
    try:
        yield Path(device)
    finally:
        run("losetup", "--detach", device)


def kernel(command_line: str, body: bytes = b"") -> bytes:
    """Return a PE file with no code and a section .cmdline: as much of a UKI as is read of one."""
    text = command_line.encode()
    head = bytearray(1024)
    head[0:2], head[0x3C:0x40] = b"MZ", (64).to_bytes(4, "little")
    head[64:68], head[70:72] = b"PE\0\0", (1).to_bytes(2, "little")
    entry = b".cmdline" + b"".join(value.to_bytes(4, "little") for value in (len(text), 0, len(text), 1024))
    head[88 : 88 + len(entry)] = entry
    return bytes(head) + text + b"\0" + body


@dataclass(frozen=True)
class BuiltImage:
    """An image file, compressed, and what it has inside."""

    path: Path
    raw: Path
    sha256: str
    root_uuid: str
    verity_uuid: str
    command_line: str
    partitions: dict[str, tuple[int, int]]  # start and size in bytes

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def part(self, name: str) -> bytes:
        start, size = self.partitions[name]
        with self.raw.open("rb") as file:
            file.seek(start)
            return file.read(size)


def build_image(folder: Path, name: str, seed: int, *, verity: bool = True, arguments: str = "quiet") -> BuiltImage:
    """Build an image: an ESP with a boot loader and a kernel, a root file system, and its hash tree (random bytes)."""
    folder.mkdir(parents=True, exist_ok=True)
    root_uuid, verity_uuid = (f"{seed:08x}-{tail:04x}-4000-8000-00000000000{tail}" for tail in (1, 2))
    command_line = f"root=PARTUUID={root_uuid} {arguments}"
    raw = folder / f"{name}.raw"
    sizes = {"esp": 8 * MIB, "root": 12 * MIB} | ({"verity": MIB} if verity else {})
    kinds = {"esp": ESP_TYPE, "root": ROOT_TYPE, "verity": VERITY_TYPE}
    ids = {"esp": f"{seed:08x}-0003-4000-8000-000000000003", "root": root_uuid, "verity": verity_uuid}
    at, script, places = MIB, "label: gpt\n", {}
    for part, size in sizes.items():
        script += f'start={at // 512},size={size // 512},type={kinds[part]},uuid={ids[part]},name="{name}-{part}"\n'
        places[part] = (at, size)
        at += size
    raw.touch()
    os.truncate(raw, at + MIB)
    run("sfdisk", "--quiet", str(raw), stdin=script)
    contents = {"esp": _esp(folder, command_line, seed), "root": _root(folder, name, sizes["root"])}
    if verity:
        contents["verity"] = hashlib.shake_256(str(seed).encode()).digest(sizes["verity"])
    with raw.open("r+b") as file:
        for part, data in contents.items():
            assert len(data) <= sizes[part]
            file.seek(places[part][0])
            file.write(data)
    packed = folder / f"{name}.raw.zst"
    run("zstd", "-q", "-f", str(raw), "-o", str(packed))
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    return BuiltImage(packed, raw, digest, root_uuid, verity_uuid, command_line, places)


def _esp(folder: Path, command_line: str, seed: int) -> bytes:
    path = folder / "esp"
    path.write_bytes(bytes(8 * MIB))
    run("mkfs.vfat", "-n", "ESP", str(path))
    (folder / "loader.efi").write_bytes(b"MZ systemd-boot")
    (folder / "kernel.efi").write_bytes(kernel(command_line, hashlib.shake_256(b"k%d" % seed).digest(MIB)))
    for made in ("EFI", "EFI/BOOT", "EFI/Linux", "loader"):
        run("mmd", "-i", str(path), f"::{made}")
    (folder / "loader.conf").write_text("timeout 0\n")
    run("mcopy", "-i", str(path), str(folder / "loader.efi"), "::EFI/BOOT/BOOTX64.EFI")
    run("mcopy", "-i", str(path), str(folder / "kernel.efi"), "::EFI/Linux/image.efi")
    run("mcopy", "-i", str(path), str(folder / "loader.conf"), "::loader/loader.conf")
    return path.read_bytes()


def _root(folder: Path, name: str, size: int) -> bytes:
    tree, path = folder / "tree", folder / "root"
    (tree / "etc").mkdir(parents=True, exist_ok=True)
    (tree / "etc/os-release").write_text(f"IMAGE_ID={name}\n")
    (tree / "etc/noise").write_bytes(hashlib.shake_256(name.encode()).digest(4 * MIB))
    run("mkfs.ext4", "-q", "-F", "-d", str(tree), str(path), f"{size // 1024}k")
    return path.read_bytes()
