"""What a node gets that writes an image itself: a program that needs nothing else, its document, and one public key."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.actions.in_place import LAUNCHER, UNIT
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import KeySource, SecretsFile
from reconciler.lab.pki import ImageKey
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import InstallPhase, InstallStatus, load_contract
from tests.drivers.installer.conftest import DOCUMENT, Site

SIGNED = DOCUMENT.model_copy(update={"image": DOCUMENT.image.model_copy(update={"key": "release", "signature": "s"})})


def given(site: Site, folder: Path, document: Any = SIGNED) -> str:
    async def ask() -> str:
        async with site.serving() as installer:
            return installer.in_place(document, str(folder), UNIT)

    return asyncio.run(ask())


@pytest.fixture
def trusting(site: Site) -> Site:
    """A site whose secrets file has the public key of images."""
    keys = {"release": KeySource(value=ImageKey().public_text)}
    site.secrets = SecretStore(SecretsFile(secrets={}, keys=keys), site.folder / "secrets.yaml")
    return site


def test_the_program_needs_no_other_module(trusting: Site, tmp_path: Path) -> None:
    """It starts with Python's own library alone, by the launcher, and says in the contract's words why it ended."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    # As systemd-run does: the program is nobody's child, and the launcher ends.
    (bin_ / "systemd-run").write_text('#!/bin/sh\nshift 4\nenv -i PATH="$PATH" "$@" >"$RUN_LOG" 2>&1\nexit 0\n')
    (bin_ / "systemctl").write_text("#!/bin/sh\nexit 0\n")
    for tool in bin_.iterdir():
        tool.chmod(0o755)
    folder = tmp_path / "run" / SIGNED.nonce
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "RUN_LOG": str(tmp_path / "log")}
    subprocess.run(
        (sys.executable, "-c", LAUNCHER), input=given(trusting, folder), text=True, env=environment, check=True
    )
    status = load_contract(InstallStatus, (folder / "status.json").read_text())
    assert status.phase is InstallPhase.FAILED, (tmp_path / "log").read_text()
    assert "the document is for serial number S1" in status.detail
    assert (folder / "keys/release.pub").read_text().startswith("untrusted comment: ")


def test_the_same_program_each_time(trusting: Site, tmp_path: Path) -> None:
    one, two = (json.loads(given(trusting, tmp_path))["files"] for _ in range(2))
    assert one == two
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(one["program.pyz"]))) as packed:
        assert "reconciler/installer/in_place.py" in packed.namelist()
        assert not [name for name in packed.namelist() if "model" in name]


def test_a_key_that_nobody_knows_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="no public key release is known") as refused:
        given(site, tmp_path)
    assert refused.value.kind is Failure.REJECTED
