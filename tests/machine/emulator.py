"""`python -m tests.machine.emulator`: sushy-tools' emulator, whose machines boot over HTTP and may have a second drive.

Told to boot from a URI, sushy-tools fetches it itself and attaches it as a CD. Here the URI becomes the firmware's
BootNext, as on a BMC that has HttpBootUri, and the firmware fetches it.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main as sushy

from tests.machine.bmc import SECOND_DRIVE, SECOND_SERIAL
from tests.machine.firmware import boot_next
from tests.machine.machine import second_drive

_TARGET, _URI = "BootSourceOverrideTarget", "HttpBootUri"
_next: dict[str, str] = {}


def _extend(app: flask.Flask, firmware: Path, delivered: Path) -> None:
    """`firmware`: the variables of the one machine, which it has once it was on; they begin as `delivered`."""

    @app.before_request
    def _set() -> Any:
        if flask.request.method != "PATCH":
            return None
        boot = (flask.request.get_json(silent=True) or {}).get("Boot")
        if not boot:
            return None
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
        if flask.request.path.endswith(f"/{SECOND_DRIVE}"):
            response.set_data(json.dumps(body | {"SerialNumber": SECOND_SERIAL}))
        if isinstance(body, dict) and "Drives" in body and not second_drive(firmware.parent).exists():
            there = [one for one in body["Drives"] if not one["@odata.id"].endswith(f"/{SECOND_DRIVE}")]
            response.set_data(json.dumps(body | {"Drives": there}))
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
