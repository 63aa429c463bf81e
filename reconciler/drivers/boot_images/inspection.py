"""Read a disk image back: its partitions, what its UKI says, and what a machine that boots it will measure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from reconciler.drivers.boot_images.measure import authenticode, predict_pcr11, stub_version
from reconciler.drivers.boot_images.partitions import ESP, ROOT, ROOT_VERITY, Partition, ids_of_roothash, read_table
from reconciler.drivers.boot_images.tools import run_tool
from reconciler.drivers.boot_images.uki import ARCHITECTURES, BadStub, read_pe
from reconciler.drivers.boot_images.verity import BLOCK, read_superblock, root_hash_of
from reconciler.model.errors import UsageError
from reconciler.model.images import ImageFile, ImageInspection, ImagePartition, ImageUki
from reconciler.model.vocab import ImageFormat

_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def inspect_image(path: Path, work: Path) -> ImageInspection:
    """Return what is in a disk image, which may be compressed. Raise UsageError for what is none."""
    file = _file(path)
    disk = path
    if file.format is ImageFormat.RAW_ZSTD:
        disk = work / "disk.raw"
        run_tool("zstd", "--quiet", "--decompress", "--force", "--sparse", str(path), "-o", str(disk))
    partitions = read_table(disk)
    shown = tuple(ImagePartition(part.name, str(part.type), str(part.id), part.start, part.size) for part in partitions)
    esps = [part for part in partitions if part.type == ESP]
    if len(esps) != 1:
        return ImageInspection(file, shown, (), (f"it has {len(esps)} EFI system partitions, and not one",))
    esp = f"{disk}@@{esps[0].start}"
    names = [line.removeprefix("::/") for line in run_tool("mdir", "-b", "-/", "-i", esp, "::").decode().split()]
    boot_files = {one.boot_file for one in ARCHITECTURES.values()}
    loaders = [name for name in names if name.upper().removeprefix("EFI/BOOT/") in boot_files]
    paths = [name for name in names if name.startswith("EFI/Linux/") and name.endswith(".efi")]
    problems = []
    if not loaders:
        problems.append("no firmware starts it: the ESP has no EFI/BOOT/BOOTX64.EFI")
    if not paths:
        problems.append("the ESP has no UKI in EFI/Linux")
    loader = _read(esp, loaders[0]) if loaders else None
    ukis = []
    for name in paths:
        try:
            ukis.append(_uki(name, _read(esp, name), loader))
        except BadStub as error:
            problems.append(f"{name}: {error}")
    problems += [problem for uki in ukis for problem in _verity_problems(disk, partitions, uki)]
    return ImageInspection(file, shown, tuple(ukis), tuple(problems))


def _file(path: Path) -> ImageFile:
    try:
        with path.open("rb") as file:
            compressed = file.read(4) == _ZSTD
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return ImageFile(digest, path.stat().st_size, ImageFormat.RAW_ZSTD if compressed else ImageFormat.RAW)


def _read(esp: str, name: str) -> bytes:
    return run_tool("mcopy", "-i", esp, f"::/{name}", "-")


def _uki(path: str, image: bytes, loader: bytes | None) -> ImageUki:
    sections = {section.name: section for section in read_pe(image).sections}

    def text(name: str) -> str:
        return sections[name].content(image).decode(errors="replace").rstrip("\0\n") if name in sections else ""

    lines = (line.partition("=") for line in text(".osrel").splitlines())
    # With Secure Boot on, the stub starts the kernel past the firmware's checks, and so past its measurements (seen on
    # OVMF with systemd 252): PCR 4 has these two. Only with it off is there a third.
    programs = {"boot loader": loader, "UKI": image}
    return ImageUki(
        path=path,
        sections={name: section.size for name, section in sections.items()},
        os_release={key: value.strip("\"'") for key, _, value in lines if key},
        kernel=text(".uname"),
        cmdline=text(".cmdline"),
        stub=stub_version(image),
        pcr11=predict_pcr11(image),
        applications={name: authenticode(program) for name, program in programs.items() if program is not None},
    )


def _verity_problems(disk: Path, partitions: tuple[Partition, ...], uki: ImageUki) -> list[str]:
    """Return why systemd would not find or accept the root of the UKI's root hash."""
    if uki.roothash is None:
        return []
    try:
        ids = ids_of_roothash(uki.roothash)
    except ValueError:
        return [f"{uki.path}: its roothash= is no root hash"]
    data = _found(partitions, ids[0], ROOT)
    tree = _found(partitions, ids[1], ROOT_VERITY)
    if data is None or tree is None:
        return [f"{uki.path}: no partitions with the ids {ids[0]} and {ids[1]} of its root hash"]
    with disk.open("rb") as file:
        file.seek(tree.start)
        head = file.read(2 * BLOCK)
    superblock = read_superblock(head)
    if superblock is None or superblock.data_blocks * BLOCK > data.size:
        return [f"{uki.path}: partition {tree.name} is no hash tree of {data.name}"]
    if root_hash_of(head, superblock.salt) != uki.roothash:
        return [f"{uki.path}: partition {tree.name} has another root hash than the UKI"]
    return []


def _found(partitions: tuple[Partition, ...], identity: UUID, types: Mapping[str, UUID]) -> Partition | None:
    return next((part for part in partitions if part.id == identity and part.type in types.values()), None)
