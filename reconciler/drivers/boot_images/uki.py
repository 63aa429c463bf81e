"""Assemble a unified kernel image (UKI): systemd-stub with kernel, initrd, command line and os-release as PE sections.

The firmware loads one file, checks its one signature, and the stub finds its sections by their names.
https://uapi-group.org/specifications/specs/unified_kernel_image/
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.drivers.boot_images.tools import run_tool
from reconciler.model.errors import UsageError

_PAGE: Final = 4096  # old stubs state an alignment of 512, with which no kernel could map what is code and what is data
_SIGNATURE: Final = b"PE\0\0"
_PE32_PLUS: Final = 0x20B
_COFF = struct.Struct("<HHIIIHH")  # machine, sections, time, symbol table, symbols, size of optional header, flags
_SECTION = struct.Struct("<8sIIIIIIHHI")
_SYMBOL: Final = 18  # bytes of a symbol
_SYMBOLS_STRIPPED: Final = 0x0008
_CODE: Final = 0x60000020  # readable, executable, has code
_DATA: Final = 0x40000040  # readable, has initialised data


@dataclass(frozen=True, slots=True)
class Architecture:
    """The names that differ between processors. `debian` is Debian's name of the processor."""

    debian: str
    stub: str
    boot_file: str
    kernel_package: str
    serial_console: str

    @property
    def stub_path(self) -> Path:
        return Path("usr/lib/systemd/boot/efi", self.stub)


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture("amd64", "linuxx64.efi.stub", "BOOTX64.EFI", "linux-image-amd64", "ttyS0"),
    "aarch64": Architecture("arm64", "linuxaa64.efi.stub", "BOOTAA64.EFI", "linux-image-arm64", "ttyAMA0"),
}


class BadStub(UsageError):
    """The file is no PE image that sections can be added to."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a PE image. `address` and `size` are those in memory, `offset` and `stored` those in the file."""

    name: str
    address: int
    size: int
    offset: int
    stored: int

    def content(self, image: bytes) -> bytes:
        """Return the section's bytes as they are in memory, without the padding of the file."""
        return image[self.offset : self.offset + min(self.size, self.stored)].ljust(self.size, b"\0")


@dataclass(frozen=True, slots=True)
class PeLayout:
    """The offsets in a PE image of its headers, and its sections in the order of its table."""

    coff: int
    optional: int
    table: int
    sections: tuple[Section, ...]


def read_pe(image: bytes) -> PeLayout:
    """Return where the headers and sections of a PE32+ image are. Raise BadStub."""
    try:
        start = struct.unpack_from("<I", image, 0x3C)[0]
        coff, optional = start + 4, start + 4 + _COFF.size
        _, count, _, _, _, optional_size, _ = _COFF.unpack_from(image, coff)
        magic = struct.unpack_from("<H", image, optional)[0]
        table = optional + optional_size
        rows = [_SECTION.unpack_from(image, table + index * _SECTION.size) for index in range(count)]
    except struct.error:
        raise BadStub("no PE image: it ends within its headers") from None
    if image[:2] != b"MZ" or image[start:coff] != _SIGNATURE or magic != _PE32_PLUS:
        raise BadStub("no 64-bit PE image")
    sections = tuple(
        Section(name.rstrip(b"\0").decode("ascii", "replace"), address, size, offset, stored)
        for name, size, address, stored, offset, *_ in rows
    )
    return PeLayout(coff, optional, table, sections)


def assemble_uki(stub: bytes, parts: Mapping[str, bytes]) -> bytes:
    """Return the stub with a section for each of `parts`, by their names (.linux, .initrd, ...) and in their order.

    Sections lie one after another in memory, behind those of the stub, each at the start of a page: they can't overlap.
    """
    pe = read_pe(stub)
    alignment, file_alignment = struct.unpack_from("<II", stub, pe.optional + 32)
    headers = struct.unpack_from("<I", stub, pe.optional + 60)[0]
    if pe.table + (len(pe.sections) + len(parts)) * _SECTION.size > headers:
        raise BadStub(f"the stub's headers have no room for {len(parts)} more sections")
    if struct.unpack_from("<I", stub, pe.optional + 112 + 4 * 8)[0]:
        raise BadStub("the stub is signed: a signature can't cover what is added")
    present = {section.name for section in pe.sections} & parts.keys()
    if present:
        raise BadStub(f"the stub has a section {', '.join(sorted(present))} already")
    image = bytearray(_without_symbols(stub, pe))
    alignment = max(alignment, _PAGE)
    end = max(section.address + section.size for section in pe.sections)
    added = code = data = 0
    for name, content in parts.items():
        image += bytes(-len(image) % file_alignment)
        offset, stored, address = len(image), _up(len(content), file_alignment), _up(end, alignment)
        if address + len(content) > 0x7FFFFFFF:
            raise BadStub(f"section {name} does not fit below 2 GiB")
        row = (name.encode(), len(content), address, stored, offset, 0, 0, 0, 0)
        place = pe.table + (len(pe.sections) + added) * _SECTION.size
        _SECTION.pack_into(image, place, *row, _CODE if name == ".linux" else _DATA)
        image += content + bytes(stored - len(content))
        end, added = address + len(content), added + 1
        code, data = (code + stored, data) if name == ".linux" else (code, data + stored)
    struct.pack_into("<H", image, pe.coff + 2, len(pe.sections) + added)
    size_of_code, size_of_data = struct.unpack_from("<II", stub, pe.optional + 4)
    struct.pack_into("<II", image, pe.optional + 4, size_of_code + code, size_of_data + data)
    struct.pack_into("<I", image, pe.optional + 56, _up(end, alignment))  # SizeOfImage
    struct.pack_into("<I", image, pe.optional + 64, 0)  # CheckSum: no firmware looks at it
    return bytes(image)


def uki_parts(
    *, kernel: bytes, initrd: bytes, cmdline: str, os_release: str, uname: str, extra: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """Return the sections of a UKI for assemble_uki. `extra` has those such as .pcrpkey and .pcrsig."""
    return {
        ".osrel": os_release.encode(),
        ".cmdline": cmdline.encode(),
        ".uname": uname.encode(),
        **(extra or {}),
        ".linux": kernel,
        ".initrd": initrd,
    }


def sign_efi(image: Path, key: Path, certificate: Path, epoch: int) -> None:
    """Sign a PE image for Secure Boot, in place. The signature says `epoch`, and is the same each time.

    sbsign would write the clock's time, and can't be told another one.
    """
    signed = image.with_suffix(image.suffix + ".signed")
    signed.unlink(missing_ok=True)
    argv = ("osslsigncode", "sign", "-h", "sha256", "-st", str(epoch), "-key", str(key), "-certs", str(certificate))
    try:
        run_tool(*argv, "-in", str(image), "-out", str(signed))
        signed.replace(image)
    finally:
        signed.unlink(missing_ok=True)


def _without_symbols(stub: bytes, pe: PeLayout) -> bytes:
    """Return the stub without its symbol table, which no PE image should have, if that is what the file ends with."""
    _, _, _, table, symbols, _, flags = _COFF.unpack_from(stub, pe.coff)
    if not table:
        return stub
    strings = struct.unpack_from("<I", stub, table + symbols * _SYMBOL)[0]
    if table + symbols * _SYMBOL + strings != len(stub):
        return stub
    image = bytearray(stub[:table])
    struct.pack_into("<II", image, pe.coff + 8, 0, 0)
    struct.pack_into("<H", image, pe.coff + 18, flags | _SYMBOLS_STRIPPED)
    return bytes(image)


def _up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment
