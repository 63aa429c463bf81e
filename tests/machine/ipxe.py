"""iPXE, which firmware loads over TFTP: it trusts the fleet's CA, and is signed for Secure Boot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.machine.pki import Pki

BOOT_FILE = "snponly.efi"  # it uses the network card by the firmware's own driver, whatever card it is
SOURCE = "IPXE_SOURCE"  # names a tree of https://github.com/ipxe/ipxe: no package is built with another CA


def source() -> Path | None:
    """Return the folder of iPXE's sources; None where none is given."""
    given = os.environ.get(SOURCE)
    return Path(given).resolve() / "src" if given else None


def build(sources: Path, pki: Pki, folder: Path) -> Path:
    """Build and sign iPXE into `folder`, as docs/how-to/installer.md says. It takes two minutes the first time."""
    made = f"bin-x86_64-efi/{BOOT_FILE}"
    _run("make", "-s", f"-j{os.cpu_count()}", "-C", sources, made, f"TRUST={pki.ca}", "NO_WERROR=1")
    signed = folder / BOOT_FILE
    _run("sbsign", "--key", pki.boot_key, "--cert", pki.boot_certificate, "--output", signed, sources / made)
    return signed


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
