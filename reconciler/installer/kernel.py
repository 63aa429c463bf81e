"""Read the command line of a unified kernel image (UKI): a PE file with a section for each of its parts."""

from __future__ import annotations

import struct

from reconciler.installer.machine import Failed


def command_line(kernel: bytes) -> str:
    """Return the section .cmdline, "" when there is none."""
    try:
        at = struct.unpack_from("<I", kernel, 0x3C)[0]
        sections, optional = struct.unpack_from("<H12xH", kernel, at + 6)
        for which in range(sections):
            name, size, _, _, offset = struct.unpack_from("<8sIIII", kernel, at + 24 + optional + 40 * which)
            if name.rstrip(b"\0") == b".cmdline":
                return kernel[offset : offset + size].decode(errors="replace").strip("\0\n ")
    except struct.error:
        pass  # it is cut short, or no PE file
    return ""


def check_arguments(kernel: bytes, wanted: tuple[str, ...]) -> None:
    """Refuse an image whose kernel would boot without an argument that the document wants.

    The command line is within what is signed and measured, so an installer can't add to it.
    """
    there = command_line(kernel).split()
    missing = [argument for argument in wanted if argument not in there]
    if missing:
        raise Failed(f"the image's kernel boots without {' '.join(missing)}: build the image with it", "image")
