"""Build the installer: the UKI and the boot medium that every machine of the fleet is installed from."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import reconciler
from reconciler.app.clocks import RealClock
from reconciler.app.documents import write_file
from reconciler.drivers.boot_images.debian import (
    DEFAULT_COMPONENTS,
    PackageSource,
    packages_for,
    running_suite,
    unpack_packages,
)
from reconciler.drivers.boot_images.initrd import Initrd, InitrdContent, build_initrd
from reconciler.drivers.boot_images.iso import build_iso
from reconciler.drivers.boot_images.kernel import find_kernel
from reconciler.drivers.boot_images.measure import authenticode, predict_pcr11
from reconciler.drivers.boot_images.tools import BuildFailed, need_tools
from reconciler.drivers.boot_images.trust import read_certificates, read_minisign_key
from reconciler.drivers.boot_images.uki import ARCHITECTURES, Architecture, assemble_uki, sign_efi, uki_parts
from reconciler.installer import MODULES, PROGRAMS
from reconciler.model.errors import UsageError

_TOOLS: Final = ("mmdebstrap", "depmod", "modinfo", "readelf", "zstd", "mkfs.vfat", "mmd", "mcopy", "xorriso")
ARCHITECTURE_NAMES: Final = tuple(ARCHITECTURES)


@dataclass(frozen=True, slots=True)
class InstallerRequest:
    """The parts of an installer. `trusted_keys`: files of minisign public keys, by the names that images use."""

    out: Path
    ca: Path
    trusted_keys: Mapping[str, Path]
    key: Path | None = None
    cert: Path | None = None
    arch: str = "x86_64"
    suite: str | None = None
    components: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    append: str = ""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a machine that boots the medium, as `installer.measurements` of the Fleet declares them.

    `applications`: digest of the EFI program, the UKI. `pcr11`: its value by phase: the init extends it no further than
    the stub did.
    """

    applications: tuple[str, ...]
    pcr11: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BuiltInstaller:
    """The installer that was built. `missing_firmware`: files by kernel module, which no configured package has."""

    iso: Path
    uki: Path
    sizes: Mapping[str, int]
    digests: Mapping[str, str]
    kernel: str
    signed: bool
    epoch: int
    placeholder: int
    packages: Mapping[str, str]
    missing_firmware: Mapping[str, tuple[str, ...]]
    measurements: Measurements

    def manifest(self) -> str:
        """Return what the installer was built from, as it is written beside it."""
        values = {
            "files": {name: {"bytes": self.sizes[name], "sha256": self.digests[name]} for name in sorted(self.sizes)},
            "kernel": self.kernel,
            "measurements": {
                "applications": list(self.measurements.applications),
                "pcr11": dict(self.measurements.pcr11),
            },
            "missing_firmware": {module: list(files) for module, files in self.missing_firmware.items()},
            "packages": dict(self.packages),
            "placeholder_offset": self.placeholder,
            "signed": self.signed,
            "source_date_epoch": self.epoch,
        }
        return json.dumps(values, indent=1, sort_keys=True) + "\n"


def source_date_epoch(environment: Mapping[str, str]) -> int:
    """Return the date that all files get: SOURCE_DATE_EPOCH, or now. Raise UsageError."""
    given = environment.get("SOURCE_DATE_EPOCH")
    if given is None:
        return int(RealClock().now().timestamp())
    if not given.isdecimal() or int(given) >= 1 << 32:
        raise UsageError(f"SOURCE_DATE_EPOCH is not a number of seconds since 1970: {given}")
    return int(given)


def build_installer(request: InstallerRequest, tell: Callable[[str], None]) -> BuiltInstaller:
    """Build installer.iso, installer.efi and installer.json in the request's folder. `tell` gets each step."""
    if (request.key is None) != (request.cert is None):
        raise UsageError("--key and --cert belong together: the signature needs the key, and firmware its certificate")
    architecture = ARCHITECTURES[request.arch]
    suite = request.suite or running_suite()
    source = PackageSource(suite, request.components or DEFAULT_COMPONENTS, request.mirrors)
    package = Path(reconciler.__file__).parent
    keys = {name: read_minisign_key(file) for name, file in request.trusted_keys.items()}
    content = InitrdContent(package, PROGRAMS, MODULES, read_certificates(request.ca), keys)
    epoch = source_date_epoch(os.environ)
    need_tools((*_TOOLS, *(("osslsigncode",) if request.key else ())))
    request.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=request.out, prefix=".build-") as folder:
        root, uki, iso = Path(folder, "root"), Path(folder, "installer.efi"), Path(folder, "installer.iso")
        names = packages_for(("python3", *PROGRAMS), architecture, source)
        tell(f"fetching packages of {suite} for {architecture.debian}: {' '.join(names)}")
        packages = unpack_packages(root, names, architecture, source)
        kernel = find_kernel(root)
        tell(f"packing the initrd: {len(packages)} packages, kernel {kernel.release}")
        initrd = build_initrd(root, kernel, content, Path(folder, "initrd"), epoch)
        uki.write_bytes(_uki(architecture, root, kernel.image.read_bytes(), kernel.release, initrd, request.append))
        if request.key is not None and request.cert is not None:
            tell(f"signing with {request.key}")
            sign_efi(uki, request.key, request.cert, epoch)
        tell("writing the ISO")
        placeholder = build_iso(uki, iso, architecture, epoch)
        for built in (uki, iso):
            built.replace(request.out / built.name)
    files = [request.out / uki.name, request.out / iso.name]
    done = BuiltInstaller(
        iso=files[1],
        uki=files[0],
        sizes={file.name: file.stat().st_size for file in files},
        digests={file.name: _digest(file) for file in files},
        kernel=kernel.release,
        signed=request.key is not None,
        epoch=epoch,
        placeholder=placeholder,
        packages=packages,
        missing_firmware=initrd.modules.missing_firmware,
        measurements=_measurements(files[0].read_bytes()),
    )
    write_file(request.out / "installer.json", done.manifest())
    return done


def _uki(architecture: Architecture, root: Path, kernel: bytes, release: str, initrd: Initrd, append: str) -> bytes:
    stub = root / architecture.stub_path
    if not stub.is_file():
        raise BuildFailed(f"systemd-boot-efi of this release has no {architecture.stub}")
    cmdline = f"console=tty0 console={architecture.serial_console},115200 panic=10 quiet {append}".strip()
    os_release = (
        f'ID=reconciler-installer\nNAME="reconciler installer"\nVERSION_ID={reconciler.__version__}\n'
        f'PRETTY_NAME="reconciler installer {reconciler.__version__}"\n'
    )
    parts = uki_parts(kernel=kernel, initrd=initrd.data, cmdline=cmdline, os_release=os_release, uname=release)
    return assemble_uki(stub.read_bytes(), parts)


def _measurements(uki: bytes) -> Measurements:
    return Measurements((authenticode(uki),), {"start": predict_pcr11(uki)[""]})


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
