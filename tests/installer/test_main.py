"""The program itself, in a mount namespace, with a busybox and a modprobe that only say how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.tool


def test_a_machine_without_an_attempt_is_switched_off() -> None:
    """Whatever goes wrong, the last thing that is run switches the machine off."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or Path("/.extra").exists():
        pytest.skip("a mount namespace takes root and unshare")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # the program covers /tmp and /run with its own
        for name in ("busybox", "modprobe"):
            program = Path(folder) / name
            program.write_text(f'#!/bin/sh\necho "called: {name} $*" >&2\n')
            program.chmod(0o755)
        done = subprocess.run(
            ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "reconciler.installer"),
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert "failed: the boot medium has no attempt (/.extra/credentials/attempt.cred): No such file" in done.stdout
    assert done.stderr.splitlines() == ["called: busybox poweroff -f"]
