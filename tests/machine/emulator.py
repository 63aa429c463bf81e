"""`python -m tests.machine.emulator`: sushy-tools' emulator, whose machines really boot over HTTP.

Told to boot from a URI, sushy-tools fetches it itself and attaches it as a CD. Here the URI becomes the firmware's
BootNext, as on a BMC that has HttpBootUri, and the firmware fetches it.
"""

from __future__ import annotations

import base64
import json
import logging
import shutil
import struct
import sys
import uuid
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main as sushy
from virt.firmware.efi import devpath, efivar
from virt.firmware.varstore.edk2 import Edk2VarStore

_TLS_CA = ("TlsCaCertificate", "fd2340d0-3dab-4349-a6c7-3b4f12b48eae")
_X509 = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072").bytes_le  # an EFI_SIGNATURE_LIST of one certificate
_ATTRIBUTES = 7  # kept, and readable before and after the boot
_ENTRY = 0x99
_TARGET, _URI = "BootSourceOverrideTarget", "HttpBootUri"
_next: dict[str, str] = {}


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


def _extend(app: flask.Flask, firmware: Path, delivered: Path) -> None:
    """`firmware`: the variables of the one machine, which it has once it was on; they begin as `delivered`."""

    @app.before_request
    def _set() -> Any:
        if flask.request.method != "PATCH":
            return None
        boot = (flask.request.get_json(silent=True) or {}).get("Boot", {})
        _next.update({key: boot[key] for key in (_URI, _TARGET) if key in boot})
        if boot.get(_TARGET) == "UefiHttp":
            if not firmware.exists():
                shutil.copy(delivered, firmware)
            boot_next(firmware, _next[_URI])
        elif _TARGET in boot:
            return None
        return "", 204

    @app.after_request
    def _show(response: flask.Response) -> flask.Response:
        if flask.request.method != "GET" or not response.is_json:
            return response
        body = json.loads(response.get_data())
        if isinstance(body, dict) and _TARGET in body.get("Boot", {}):
            shown = {key: value for key, value in _next.items() if key == _URI or value == "UefiHttp"}
            body["Boot"] |= shown
            response.set_data(json.dumps(body))
        return response


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    firmware, delivered = sys.argv.pop(1), sys.argv.pop(1)
    _extend(sushy.app, Path(firmware), Path(delivered))
    sys.exit(sushy.main())
