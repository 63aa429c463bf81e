"""Build a disk image whose every byte is checked: firmware checks the UKI, which has the root hash of the rest.

    esp          systemd-boot as the removable medium's loader, and the UKI with its three tries
    root         erofs under dm-verity, or ext4 without
    root-verity  the hash tree

Equal packages, definition and SOURCE_DATE_EPOCH give equal bytes, but for the ext4 of a root without verity, in which
e2fsprogs of before 1.47.1 writes times of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from reconciler.drivers.boot_images.definition import ImageDefinition
from reconciler.drivers.boot_images.partitions import (
    ESP,
    MIB,
    ROOT,
    ROOT_VERITY,
    arranged,
    ids_of_roothash,
    write_table,
)
from reconciler.drivers.boot_images.tools import BuildFailed, need_tools, run_tool
from reconciler.drivers.boot_images.uki import ARCHITECTURES, Architecture, assemble_uki, sign_efi, uki_parts
from reconciler.drivers.boot_images.verity import write_hash_tree
from reconciler.model.errors import UsageError

TRIES: Final = "+3-0"  # systemd-boot counts them down, until systemd-bless-boot takes them off the name
_LOADER: Final = "timeout 0\neditor no\n"
_DRACUT: Final = (
    'for modules in "$1"/lib/modules/*; do chroot "$1" dracut --quiet --force --kver "${modules##*/}"; done'
)
_SLACK_MIB: Final = 128  # of a root that can be written


@dataclass(frozen=True, slots=True)
class SecureBootKey:
    """The key that firmware trusts, and its certificate: PEM files."""

    key: Path
    certificate: Path


@dataclass(frozen=True, slots=True)
class Build:
    """One build. `beside`: the definition's folder. `say` is told each step."""

    definition: ImageDefinition
    beside: Path
    out: Path
    epoch: int
    key: SecureBootKey | None
    say: Callable[[str], None]

    @property
    def identity(self) -> UUID:
        return uuid5(NAMESPACE_URL, f"image:{self.definition.name}:{self.definition.version}")

    def id_of(self, part: str) -> UUID:
        return uuid5(self.identity, part)

    @property
    def environment(self) -> dict[str, str]:
        return {"SOURCE_DATE_EPOCH": str(self.epoch), "E2FSPROGS_FAKE_TIME": str(self.epoch)}


def build_image(build: Build) -> Path:
    """Build the image; return the file, a compressed disk. Raise UsageError or BuildFailed."""
    definition = build.definition
    architecture = next((one for one in ARCHITECTURES.values() if one.debian == definition.architecture), None)
    if architecture is None:
        raise UsageError(f"no architecture {definition.architecture!r}; there are amd64 and arm64")
    filesystem = "mkfs.erofs" if definition.verity else "mke2fs"
    need_tools(["mmdebstrap", "mkfs.vfat", "mcopy", "zstd", filesystem, *(["osslsigncode"] if build.key else [])])
    if os.geteuid() != 0:
        raise UsageError("an image is built as root: its files belong to root and to system users")
    build.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".image-", dir=build.out) as directory:
        work = Path(directory)
        root = _root(build, work)
        kernel = _the_one(root / "boot", "vmlinuz-*")
        initrd = _the_one(root / "boot", "initrd.img-*")
        boot = _Boot(architecture, kernel.read_bytes(), initrd.read_bytes(), kernel.name.removeprefix("vmlinuz-"))
        _empty(root / "boot")  # they are in the UKI
        return _compressed(build, _disk(build, boot, root, work))


@dataclass(frozen=True, slots=True)
class _Boot:
    architecture: Architecture
    kernel: bytes
    initrd: bytes
    release: str


# --- root ----------------------------------------------------------------------------------------------------------


def _root(build: Build, work: Path) -> Path:
    """Install the packages, lay the tree over them, run the script and make the initrd; return the folder."""
    definition = build.definition
    build.say(f"installing {len(definition.packages)} packages of {definition.suite} and what they need")
    hooks = []
    if definition.tree is not None:
        _pack(build.beside / definition.tree, work / "tree.tar", build.epoch)
        hooks.append(f"tar-in {work / 'tree.tar'} /")
    if definition.setup is not None:
        hooks += [f"upload {build.beside / definition.setup} /setup", 'chroot "$1" sh /setup', 'rm "$1/setup"']
    hooks.append(_DRACUT)
    run_tool(
        "mmdebstrap", "--quiet", "--variant=minbase", f"--architectures={definition.architecture}",
        f"--components={','.join(definition.components)}", f"--include={','.join(definition.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")),
        *(f"--customize-hook={hook}" for hook in hooks),
        definition.suite, str(work / "root.tar"), *([definition.mirror] if definition.mirror else []),
        env=build.environment,
    )  # fmt: skip
    root = work / "root"
    root.mkdir()
    # By way of the archive, in which no file is younger than the epoch.
    run_tool(
        "tar", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", str(work / "root.tar"), "-C", str(root)
    )
    (work / "root.tar").unlink()
    release = root / "usr/lib/os-release"
    named = f"IMAGE_ID={definition.name}\nIMAGE_VERSION={definition.version}\n"
    release.write_text(release.read_text() + named)
    os.utime(release, (build.epoch, build.epoch))
    return root


def _pack(tree: Path, archive: Path, epoch: int) -> None:
    """Pack the files of a folder as root's, in order, so that who checked them out, and when, is not seen."""

    def as_roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime, entry.mode = epoch, 0o755 if entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(archive, "w") as packed:
        for path in sorted(tree.rglob("*")):
            if not path.is_dir() or path.is_symlink():
                packed.add(path, path.relative_to(tree).as_posix(), recursive=False, filter=as_roots)


def _the_one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise BuildFailed(f"an image has one kernel, and this has {len(found)} files {pattern} in /boot")
    return found[0]


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# --- the disk ------------------------------------------------------------------------------------------------------


def _disk(build: Build, boot: _Boot, root: Path, work: Path) -> Path:
    """Make the file systems and the UKI, and put them into a disk image."""
    build.say("making the file systems")
    definition = build.definition
    stub = (root / boot.architecture.stub_path).read_bytes()
    loader = boot.architecture.stub_path.with_name(f"systemd-{boot.architecture.boot_file.lower()}")
    shutil.copyfile(root / loader, work / "loader.efi")
    os_release = (root / "usr/lib/os-release").read_text()
    volume = work / "root.img"
    parts = {"root": (ROOT[definition.architecture], build.id_of("root"), volume)}
    if definition.verity:
        _erofs(build, root, volume)
        tree = work / "tree.img"
        salt = hashlib.sha256(build.identity.bytes).digest()
        roothash = write_hash_tree(volume, tree, salt, build.id_of("verity"))
        first, last = ids_of_roothash(roothash)
        parts["root"] = (ROOT[definition.architecture], first, volume)
        parts["root-verity"] = (ROOT_VERITY[definition.architecture], last, tree)
        arguments = ["root=/dev/mapper/root", f"roothash={roothash}", "ro"]
    else:
        _ext4(build, root, volume)
        arguments = [f"root=PARTUUID={build.id_of('root')}", "rw"]
    cmdline = " ".join([*arguments, *definition.kernel_arguments])
    sections = uki_parts(
        kernel=boot.kernel, initrd=boot.initrd, cmdline=cmdline, os_release=os_release, uname=boot.release
    )
    (work / "uki.efi").write_bytes(assemble_uki(stub, sections))
    if build.key is not None:
        for name in ("loader.efi", "uki.efi"):
            sign_efi(work / name, build.key.key, build.key.certificate, build.epoch)
    _esp(build, boot.architecture, work)
    parts = {"esp": (ESP, build.id_of("esp"), work / "esp.img"), **parts}
    disk = work / "disk.raw"
    placed = arranged([(name, kind, identity, file.stat().st_size) for name, (kind, identity, file) in parts.items()])
    write_table(disk, build.identity, placed)
    for partition, (_, _, file) in zip(placed, parts.values(), strict=True):
        run_tool("dd", f"if={file}", f"of={disk}", "bs=1M", f"seek={partition.start // MIB}", "conv=notrunc,sparse")
    return disk


def _erofs(build: Build, root: Path, volume: Path) -> None:
    run_tool(
        "mkfs.erofs", "--quiet", "-zlz4hc", f"-T{build.epoch}", f"-U{build.id_of('root')}", str(volume), str(root),
        env=build.environment,
    )  # fmt: skip


def _ext4(build: Build, root: Path, volume: Path) -> None:
    needed = int(run_tool("du", "-s", "--block-size=1M", str(root)).split()[0])
    size = build.definition.root_mib or needed + needed // 4 + _SLACK_MIB
    identity = build.id_of("root")
    run_tool(
        "mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-U", str(identity), "-E", f"hash_seed={identity}",
        "-d", str(root), str(volume), f"{size}M", env=build.environment,
    )  # fmt: skip


def _esp(build: Build, architecture: Architecture, work: Path) -> None:
    definition, image = build.definition, str(work / "esp.img")
    (work / "loader.conf").write_text(_LOADER)
    files = {
        f"EFI/BOOT/{architecture.boot_file}": work / "loader.efi",
        f"EFI/Linux/{definition.name}_{definition.version}{TRIES}.efi": work / "uki.efi",
        "loader/loader.conf": work / "loader.conf",
    }
    number = f"{build.id_of('esp').int & 0xFFFFFFFF:08x}"
    # 32-bit FAT has clusters of 512 bytes here, so that a small ESP has the clusters that firmware expects of it.
    options = ("-F", "32", "-s", "1", "-n", "ESP", "-i", number, "--invariant")
    run_tool("mkfs.vfat", *options, "-C", image, str(definition.esp_mib * 1024), env=build.environment)
    for folder in ("EFI", "EFI/BOOT", "EFI/Linux", "loader"):
        run_tool("mmd", "-i", image, f"::{folder}", env=build.environment)
    for name, path in files.items():
        os.utime(path, (build.epoch, build.epoch))
        run_tool("mcopy", "-m", "-i", image, str(path), f"::{name}", env=build.environment)


def _compressed(build: Build, disk: Path) -> Path:
    build.say(f"compressing {disk.stat().st_size / 1e6:,.0f} MB")
    target = build.out / f"{build.definition.name}_{build.definition.version}.raw.zst"
    partial = disk.with_suffix(".zst")
    run_tool("zstd", "--quiet", "-T0", "-9", str(disk), "-o", str(partial))
    partial.replace(target)
    return target
