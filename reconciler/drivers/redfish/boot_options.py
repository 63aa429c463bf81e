"""Decode boot options: which kind of device each boots, as real BMCs tell it. Pure.

The standard has an Alias for that, and most BMCs leave it null (of the trees in NVIDIA/libredfish, tests/mockups, only
the DGX H100's has it). The UEFI device path tells the kind, and where there is none the display name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reconciler.drivers.redfish.fields import Document, boolean, need, stated, text
from reconciler.model.abilities import BootOption

_SHELL = "7C04A583-9E3E-4F1C-AD65-E05268D0B4D1"  # the shell's file in every build of EDK II
_SETUP = "462CAA21-7614-4503-836E-8AB6F4662331"  # UiApp, the setup menu of EDK II
# AMI shows this for a loader whose device it does not name: "DGX OS", "ubuntu", "Windows Boot Manager".
_LOADER = "99E275E7-75A0-4B37-A2E6-C5385E6C00CB"

# The first that is found in the path decides: a USB network card has a MAC behind its USB node.
_PATHS: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (_SHELL, "UefiShell"),
        (_SETUP, "BiosSetup"),
        (r"\b(iSCSI|NVMeoF)\(", "RemoteDrive"),
        (r"/Uri\(", "UefiHttp"),
        (r"\b(MAC|IPv4|IPv6)\(", "Pxe"),
        (r"\bCDROM\(", "Cd"),
        (r"\b(Usb|UsbClass|UsbWwid)\(", "Usb"),
        (r"\bFloppy\(", "Floppy"),
        (r"\b(SD|eMMC)\(", "SDCard"),
        (r"\b(HD|NVMe|Sata|Scsi|SAS|SasEx|UFS|Ata|Fibre|FibreEx)\(", "Hdd"),
    )
)
_NAMES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"\bshell\b", "UefiShell"),
        (r"\bHTTP", "UefiHttp"),
        (r"\bPXE|\bnetwork\b|\bNIC\b|\bLAN\b", "Pxe"),
        (r"\b(USB|virtual|remote)\b.*\b(CD|DVD|CDROM\d*|optical)\b|\bCD/?DVD|\bCD-?ROM|\bDVD|\bCD\b|\boptical\b", "Cd"),
        (r"\bfloppy\b", "Floppy"),
        (r"\bUSB\b", "Usb"),
        (r"\b(hard ?disk|hard drive|fixed disk|NVMe|SSD|SATA|RAID|disk)\b", "Hdd"),
        (r"\b(setup|UiApp)\b", "BiosSetup"),
    )
)


def option_of(document: Document) -> BootOption:
    reference = need(document, "BootOptionReference", lambda doc, name: text(doc, name) or text(doc, "Id"))
    name, path = text(document, "DisplayName") or text(document, "Name") or "", text(document, "UefiDevicePath") or ""
    kind = stated(document, "Alias") or kind_of(path, name)
    return BootOption(reference, kind, name, path, boolean(document, "BootOptionEnabled"))


def kind_of(path: str, name: str) -> str:
    """Return the kind of device; "" if nothing tells it."""
    kind = next((kind for pattern, kind in _PATHS if pattern.search(path)), "")
    named = next((kind for pattern, kind in _NAMES if pattern.search(name)), "")
    if kind == "Usb" and named == "Cd":
        return named  # virtual discs are USB drives
    if not kind and not named and _LOADER in path.upper():
        return "Hdd"  # a system wrote the entry for its loader; AMI's own begin with "UEFI:" and say what they boot
    return kind or named


def in_order(order: Sequence[str], described: Mapping[str, BootOption]) -> tuple[BootOption, ...]:
    """Return the entries of an order. One that the BMC does not describe has its reference alone."""
    return tuple(described.get(reference) or BootOption(reference) for reference in order)
