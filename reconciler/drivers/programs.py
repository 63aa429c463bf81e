"""Run small programs, such as gpg."""

from __future__ import annotations

import shutil
import subprocess

_PATIENCE_S = 20.0


def ask(*argv: str) -> tuple[bool, str]:
    """Return whether the program succeeded, and its output; (False, "") when it is not on the PATH."""
    if shutil.which(argv[0]) is None:
        return False, ""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, (done.stdout or done.stderr).strip()
