"""Build, sign and inspect images: the `reconciler image` use cases."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reconciler.app.installer_build import source_date_epoch
from reconciler.drivers.boot_images.definition import read_definition
from reconciler.drivers.boot_images.image import Build, SecureBootKey, build_image
from reconciler.drivers.boot_images.inspection import inspect_image
from reconciler.drivers.boot_images.measure import authenticode
from reconciler.drivers.boot_images.signature import sign_statement
from reconciler.drivers.oci import download
from reconciler.model.errors import UsageError
from reconciler.model.images import ImageInspection
from reconciler.model.units import format_size
from reconciler.model.vocab import ImageFormat
from reconciler.render.golden_image import GoldenImageEntry, Measured

_URL = "https://images.example.com/"
_LATE_PHASES = ("sysinit", "ready")  # SSH answers in one of them


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A request to build an image. `key` and `certificate`: PEM files for Secure Boot, or neither."""

    definition: Path
    out: Path
    key: Path | None = None
    certificate: Path | None = None


@dataclass(frozen=True, slots=True)
class SignRequest:
    """A request to sign an image. `key`: minisign's secret key file, whose public half the spec calls `key_name`."""

    file: Path
    key: Path
    key_name: str
    name: str
    version: str


def build(request: BuildRequest, say: Callable[[str], None]) -> tuple[Path, ImageInspection]:
    """Build an image; return its file and what is in it."""
    if (request.key is None) != (request.certificate is None):
        raise UsageError("--key and --cert belong together: firmware checks by the certificate what the key signed")
    key = SecureBootKey(request.key, request.certificate) if request.key and request.certificate else None
    definition = read_definition(request.definition)
    beside = request.definition.resolve().parent
    made = build_image(Build(definition, beside, request.out, source_date_epoch(os.environ), key, say))
    return made, inspect(str(made))


def inspect(source: str) -> ImageInspection:
    """Return what is in an image, which is a file or at a URL (http, https, oci). Raise UsageError or DriverError."""
    with tempfile.TemporaryDirectory(prefix="reconciler-image-") as directory:
        work = Path(directory)
        path = Path(source)
        if "://" in source:
            path = work / "image"
            asyncio.run(download(source, path))
        return inspect_image(path, work)


def digest(file: Path) -> str:
    """Return the Authenticode digest of an EFI program. Raise UsageError where the file is none."""
    try:
        return authenticode(file.read_bytes())
    except UsageError as error:
        raise UsageError(f"{file} is no EFI program: {error}") from None


def sign(request: SignRequest) -> GoldenImageEntry:
    """Sign an image with minisign, beside it; return its entry. Raise UsageError for one that would not boot."""
    inspection = inspect(str(request.file))
    if inspection.problems:
        raise UsageError(f"{request.file} is not signed: {inspection.problems[0]}")
    for uki in inspection.ukis:
        said = (uki.os_release.get("IMAGE_ID"), uki.os_release.get("IMAGE_VERSION"))
        if None not in said and said != (request.name, request.version):
            raise UsageError(f"the image says that it is {said[0]} {said[1]}, not {request.name} {request.version}")
    statement = f"{request.name} {request.version} {inspection.file.sha256}\n"
    signature = sign_statement(request.file, statement, request.key)
    return entry(request.file.name, inspection, request.name, request.version, signature, request.key_name)


def entry(
    file: str, inspection: ImageInspection, name: str = "", version: str = "", signature: str = "", key: str = ""
) -> GoldenImageEntry:
    """Return the entry of a GoldenImage for an image, with what is known of it."""
    uki = inspection.ukis[0] if inspection.ukis else None
    release = uki.os_release if uki is not None else {}
    by_phase = uki.pcr11 if uki is not None else {}
    return GoldenImageEntry(
        name=name or release.get("IMAGE_ID", "image"),
        version=version or release.get("IMAGE_VERSION", "1"),
        url=file if "://" in file else _URL + file,
        sha256=inspection.file.sha256,
        format=inspection.file.format if inspection.file.format is not ImageFormat.RAW_ZSTD else None,
        size=format_size(inspection.file.size),
        signature=signature,
        key=key,
        contents={"kernel": uki.kernel} if uki is not None and uki.kernel else {},
        measured=Measured(
            tuple(uki.applications.values()) if uki is not None else (),
            {path: value for path, value in by_phase.items() if path.rpartition(":")[2] in _LATE_PHASES},
        ),
        command_line=uki.cmdline.strip() if uki is not None else "",
    )
