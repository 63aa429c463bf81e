"""What a run needs and can't make inside its namespace, which has no way out: keys, the installer and images.

They are kept in ~/.cache: a second run of the same code takes none of their minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from reconciler.app.image_build import entry, inspect
from reconciler.drivers.boot_images.definition import read_definition
from reconciler.drivers.boot_images.image import Build, SecureBootKey, build_image
from tests.machine.bmc import OVMF
from tests.machine.namespace import GATEWAY
from tests.machine.pki import Pki

ROOT = Path(__file__).parents[2]
VERSIONS = ("A", "B")
IMAGE = "machine"
_EXAMPLE = ROOT / "fleet-spec/image"
_SOURCES = (ROOT / "reconciler/installer", ROOT / "reconciler/drivers/boot_images", _EXAMPLE, Path(__file__))
_EPOCH = 1_700_000_000
_OWNER = "5a0e1f2c-0000-4222-8333-0000000000db"  # of the keys in the firmware's variables


def prepare() -> Path:
    """Build what is not built yet, and return its folder: keys, vars.fd, installer.iso, images/, measured.json."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "gpu-fleet-reconciler" / "machine" / _digest()
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        pki = Pki(home / "pki", GATEWAY)
        pki.make()
        measured = {"keys": _enrol(pki, home), "installer": _build_installer(pki, home)}
        measured |= {version: _build_image(pki, home, version) for version in VERSIONS}
        (home / "measured.json").write_text(json.dumps(measured, indent=1))
        (home / "done").touch()
    return home


def _digest() -> str:
    """Return a digest of all that the installer and the images are built from."""
    found = hashlib.sha256()
    for source in _SOURCES:
        for file in sorted(source.rglob("*") if source.is_dir() else [source]):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _enrol(pki: Pki, home: Path) -> Any:
    """Write the variables of a firmware that trusts our key alone, with Secure Boot on; return the keys' digests."""
    made, told = home / "vars.fd", home / "vars.json"
    ours = [word for option in ("--set-pk", "--add-kek", "--add-db") for word in (option, _OWNER, pki.boot_certificate)]
    virt_fw_vars = Path(sys.executable).with_name("virt-fw-vars")
    command = [
        virt_fw_vars,
        "--input",
        OVMF / "OVMF_VARS_4M.fd",
        *ours,
        "--sb",
        "--output",
        made,
        "--output-json",
        told,
    ]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    kept = {one["name"]: bytes.fromhex(one["data"]) for one in json.loads(told.read_text())["variables"]}
    names = {"pk": "PK", "kek": "KEK", "db": "db", "dbx": "dbx"}
    return {word: [hashlib.sha256(kept.get(name, b"")).hexdigest()] for word, name in names.items()}


def _build_installer(pki: Pki, home: Path) -> Any:
    command = [sys.executable, "-m", "reconciler", "installer", "build", "--out", str(home), "--ca", str(pki.ca)]
    # Of two consoles, the last one is where the init prints: here that is the serial port, which we read.
    trusted = ["--trusted-key", f"release={pki.home / 'release.pub'}", "--append", "console=ttyS0"]
    signed = ["--key", str(pki.boot_key), "--cert", str(pki.boot_certificate)]
    subprocess.run([*command, *trusted, *signed], check=True, cwd=ROOT)
    return json.loads((home / "installer.json").read_text())["measurements"]


def _build_image(pki: Pki, home: Path, version: str) -> Any:
    """Build the example of fleet-spec/ with our SSH key in it, and sign it."""
    work = home / f"definition-{version}"
    shutil.copytree(_EXAMPLE, work)
    text = re.sub(r"^name = .*$", f'name = "{IMAGE}"', (work / "image.toml").read_text(), flags=re.MULTILINE)
    (work / "image.toml").write_text(re.sub(r"^version = .*$", f'version = "{version}"', text, flags=re.MULTILINE))
    # The document has no place for the key of one user, and the reconciler's key has no certificate.
    with (work / "tree/etc/ssh/sshd_config.d/node.conf").open("a") as settings:
        settings.write("AuthorizedKeysFile /usr/share/reconciler/authorized_keys\n")
    keys = work / "tree/usr/share/reconciler/authorized_keys"
    keys.parent.mkdir(parents=True)
    shutil.copy(f"{pki.reconciler_ssh}.pub", keys)
    key = SecureBootKey(pki.boot_key, pki.boot_certificate)
    build = Build(read_definition(work / "image.toml"), work, home / "images", _EPOCH, key, print)
    made = build_image(build)
    measured = entry("", inspect(str(made))).measured
    sign(pki, made, version)
    return {"applications": list(measured.applications), "pcr11": dict(measured.pcr11)}


def sign(pki: Pki, image: Path, version: str) -> None:
    """Write the line that the signature is over, with the digest, and the signature beside an image."""
    with image.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    line = image.parent / f"{version}.line"
    line.write_text(f"{IMAGE} {version} {digest}\n")
    comment = f"image {IMAGE} version {version}"
    signature = image.parent / f"{version}.minisig"
    command = ["minisign", "-S", "-s", str(pki.minisign), "-m", str(line), "-x", str(signature), "-t", comment]
    subprocess.run(command, check=True, capture_output=True)
    image.rename(image.parent / f"{version}.raw.zst")
