"""Pick the modules of a kernel that an installer needs, with what they depend on and the firmware that they ask for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.drivers.boot_images.elf import resolve
from reconciler.drivers.boot_images.tools import BuildFailed, run_tool

# Network ports and disks of servers; what a bus of these finds, is loaded by its alias.
MODULE_FOLDERS: Final = (
    "kernel/drivers/ata",
    "kernel/drivers/net/ethernet",
    "kernel/drivers/net/phy",
    "kernel/drivers/nvme/host",
    "kernel/drivers/virtio",
)
MODULE_NAMES: Final = (
    "aacraid",
    "crc32c_generic",  # ext4 asks the kernel's crypto for it by name
    "crc32c_intel",
    "dm_mod",
    "dm_verity",
    "hpsa",
    "hv_netvsc",
    "hv_storvsc",
    "megaraid_sas",
    "mpi3mr",
    "mpt3sas",
    "mvsas",
    "pm80xx",
    "sd_mod",
    "smartpqi",
    "virtio_blk",
    "virtio_net",
    "virtio_scsi",
    "vmd",  # NVMe disks behind Intel's volume management
    "vmw_pvscsi",
)
_INDEXES: Final = ("modules.order", "modules.builtin", "modules.builtin.modinfo")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel in a root that packages were unpacked into. `modules` is its folder below lib/modules."""

    release: str
    image: Path
    modules: Path


@dataclass(frozen=True, slots=True)
class PickedModules:
    """How many modules were picked, the wanted ones that the kernel does not have, and firmware that no package has."""

    count: int
    absent: tuple[str, ...]
    missing_firmware: Mapping[str, tuple[str, ...]]  # by module


def find_kernel(root: Path) -> Kernel:
    """Return the one kernel of a root. Raise BuildFailed when there is none, or more than one."""
    images = sorted((root / "boot").glob("vmlinu[xz]-*"))
    if len(images) != 1:
        raise BuildFailed(f"{len(images)} kernels were unpacked in place of one")
    release = images[0].name.partition("-")[2]
    folder = next((root / lib for lib in ("lib", "usr/lib") if (root / lib / "modules" / release).is_dir()), None)
    if folder is None:
        raise BuildFailed(f"no modules were unpacked for the kernel {release}")
    return Kernel(release, images[0], folder / "modules" / release)


def pick_modules(root: Path, kernel: Kernel, names: Iterable[str], target: Path) -> PickedModules:
    """Copy modules and their firmware to `target`, an initrd's root, and write the indexes that modprobe reads."""
    run_tool("depmod", "-b", str(kernel.modules.parents[2]), kernel.release)
    needs = dict(_dependencies(kernel.modules))
    by_name = {_name(path): path for path in needs}
    builtin = {_name(line) for line in (kernel.modules / "modules.builtin").read_text().splitlines()}
    wanted = {_name(name) for name in (*names, *MODULE_NAMES)}
    picked = {path for path in needs if path.startswith(tuple(f"{folder}/" for folder in MODULE_FOLDERS))}
    picked |= {by_name[name] for name in wanted if name in by_name}
    picked |= {path for one in picked for path in needs[one]}  # modules.dep names what those need in turn too
    folder = target / "usr/lib/modules" / kernel.release
    for path in sorted(picked):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel.modules / path, place)
    for index in _INDEXES:
        shutil.copyfile(kernel.modules / index, folder / index)
    run_tool("depmod", "-b", str(target), kernel.release)
    missing = _copy_firmware(root, kernel, sorted(picked), target)
    return PickedModules(len(picked), tuple(sorted(wanted - by_name.keys() - builtin)), missing)


def _dependencies(modules: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        yield path, tuple(needs.split())


def _copy_firmware(root: Path, kernel: Kernel, picked: Iterable[str], target: Path) -> dict[str, tuple[str, ...]]:
    missing: dict[str, tuple[str, ...]] = {}
    for path in picked:
        absent = []
        for name in sorted(set(run_tool("modinfo", "-F", "firmware", str(kernel.modules / path)).decode().split())):
            source = resolve(root, f"lib/firmware/{name}") or resolve(root, f"usr/lib/firmware/{name}")
            if source is None:
                absent.append(name)
                continue
            place = target / "usr/lib/firmware" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        if absent:
            missing[_name(path)] = tuple(absent)
    return missing


def _name(module: str) -> str:
    """Return a module's name as modprobe compares it: without path and suffix, and with _ for -."""
    return Path(module).name.partition(".ko")[0].replace("-", "_")
