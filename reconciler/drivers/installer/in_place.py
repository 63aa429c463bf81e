"""Pack the installer for a node that writes an image itself: its program, the document, and the key that it trusts."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from functools import cache
from pathlib import Path

import reconciler
from reconciler.model.install import InstallDocument, dump_contract

_MAIN = "from reconciler.installer.in_place import main\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date that a zip file can have: the same bytes each time


@cache
def program() -> bytes:
    """Return the program as a zip file that Python runs. It needs nothing but Python's own library."""
    package = Path(reconciler.__file__).parent / "installer"
    files = {"__main__.py": _MAIN, "reconciler/__init__.py": ""}
    for path in sorted(package.glob("*.py")):
        files[f"reconciler/installer/{path.name}"] = path.read_text(encoding="utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def attempt_files(document: InstallDocument, public_key: str, folder: str, unit: str) -> str:
    """Return the files of an attempt in place, as `ports.Installer.in_place` gives them."""
    files = {
        "program.pyz": program(),
        "document.json": dump_contract(document).encode(),
        f"keys/{document.image.key}.pub": f"untrusted comment: minisign public key\n{public_key}\n".encode(),
    }
    packed = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return json.dumps({"folder": folder, "unit": unit, "files": packed})
