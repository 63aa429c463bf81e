"""Variables of OVMF, of a machine that is off: what its owner enrols, and what its BMC sets."""

from __future__ import annotations

import base64
import struct
import uuid
from pathlib import Path

from virt.firmware.efi import devpath, efivar
from virt.firmware.varstore.edk2 import Edk2VarStore

_TLS_CA = ("TlsCaCertificate", "fd2340d0-3dab-4349-a6c7-3b4f12b48eae")
_X509 = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072").bytes_le  # an EFI_SIGNATURE_LIST of one certificate
_ATTRIBUTES = 7  # kept, and readable before and after the boot
_ENTRY = 0x99


def trust_over_https(delivered: Path, ca: Path, made: Path) -> None:
    """Write the variables of a firmware that trusts a CA for HTTPS, as its owner enrols it once."""
    der = base64.b64decode("".join(ca.read_text().splitlines()[1:-1]))
    signature = uuid.uuid4().bytes_le + der
    store = Edk2VarStore(str(delivered))
    variables = store.get_varlist()
    name, guid = _TLS_CA
    data = _X509 + struct.pack("<III", 28 + len(signature), 0, len(signature)) + signature
    variables[name] = efivar.EfiVar(name, guid=uuid.UUID(guid), attr=_ATTRIBUTES, data=data)
    store.write_varstore(str(made), variables)


def boot_next(firmware: Path, uri: str) -> None:
    """Let the firmware of a machine that is off boot from a URI once."""
    store = Edk2VarStore(str(firmware))
    variables = store.get_varlist()
    variables.set_boot_entry(_ENTRY, uri.rpartition("/")[2], devpath.DevicePath.uri(uri))
    variables.set_boot_next(_ENTRY)
    store.write_varstore(str(firmware), variables)
