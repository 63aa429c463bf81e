"""Predict what a TPM will have measured of an image once it has booted.

PCR 11 is systemd-stub's and systemd-pcrphase's alone, so its values follow from the UKI (systemd-measure(1)). PCR 4 has
what firmware and boot loader start, by the digest that Secure Boot signs (Authenticode): firmware adds events of its
own, so digests of the programs are predicted, to be found in the event log.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from typing import Final

from reconciler.drivers.boot_images.uki import PeLayout, Section, read_pe

# The order in which stubs measure sections; .uname and .sbat from version 254 on. .pcrsig is never measured.
_SECTIONS: Final = (".linux", ".osrel", ".cmdline", ".initrd", ".splash", ".dtb", ".uname", ".sbat", ".pcrpkey")
_SINCE_254: Final = frozenset({".uname", ".sbat"})
_VERSION: Final = re.compile(rb"#### LoaderInfo: systemd-stub ([0-9]+)")
_CHECKSUM: Final = 64  # offsets in the optional header of PE32+
_CERTIFICATES: Final = 144

# phase -> the words that systemd-pcrphase has extended PCR 11 with by then
PHASES: Final[Mapping[str, tuple[str, ...]]] = {
    "enter-initrd": ("enter-initrd",),
    "leave-initrd": ("enter-initrd", "leave-initrd"),
    "sysinit": ("enter-initrd", "leave-initrd", "sysinit"),
    "ready": ("enter-initrd", "leave-initrd", "sysinit", "ready"),
}


def predict_pcr11(uki: bytes) -> dict[str, str]:
    """Return PCR 11 of the SHA-256 bank by phase; "" is what the stub leaves before the first."""
    sections = {section.name: section for section in read_pe(uki).sections}
    value = bytes(32)
    for name in _measured(uki):
        if name in sections and sections[name].size:
            value = _extend(value, name.encode() + b"\0")
            value = _extend(value, sections[name].content(uki))
    values = {"": value.hex()}
    for phase, words in PHASES.items():
        now = value
        for word in words:
            now = _extend(now, word.encode())
        values[phase] = now.hex()
    return values


def stub_version(uki: bytes) -> int:
    """Return the version of the systemd-stub in an image; 0 when it does not say."""
    found = _VERSION.search(uki)
    return int(found[1]) if found else 0


def _measured(uki: bytes) -> tuple[str, ...]:
    old = stub_version(uki) < 254
    return tuple(name for name in _SECTIONS if not (old and name in _SINCE_254))


def _extend(value: bytes, data: bytes) -> bytes:
    return hashlib.sha256(value + hashlib.sha256(data).digest()).digest()


def authenticode(image: bytes) -> str:
    """Return the SHA-256 digest of a PE image that its signature covers: all but checksum and signatures."""
    pe = read_pe(image)
    checksum, entry = pe.optional + _CHECKSUM, pe.optional + _CERTIFICATES
    headers = struct.unpack_from("<I", image, pe.optional + 60)[0]
    digest = hashlib.sha256(image[:checksum] + image[checksum + 4 : entry] + image[entry + 8 : headers])
    end = headers
    for section in _stored(pe):
        digest.update(image[section.offset : section.offset + section.stored])
        end += section.stored
    digest.update(image[end : len(image) - struct.unpack_from("<I", image, entry + 4)[0]])
    return digest.hexdigest()


def _stored(pe: PeLayout) -> list[Section]:
    return sorted((section for section in pe.sections if section.stored), key=lambda section: section.offset)
