"""Run a lab in its own process, as operators do, for the demo and for tests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.model.errors import UsageError

_START_S = 60.0  # for hundreds of nodes on a slow machine
_STOP_S = 10.0


@contextmanager
def lab_process(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `reconciler lab up --dir DIRECTORY OPTIONS...` until the block ends, and yield it once it is ready.

    Raise UsageError with the lab's log when it does not come up.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "lab.log"
    with log.open("wb") as out:
        lab = subprocess.Popen(
            (sys.executable, "-m", "reconciler", "lab", "up", "--dir", str(directory), *options),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes only to the command that uses the lab, which then ends the lab
        )
    try:
        give_up = time.monotonic() + _START_S
        while not (directory / "ready").exists():
            if lab.poll() is not None or time.monotonic() > give_up:
                raise UsageError(f"the lab did not come up:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield lab
    finally:
        lab.terminate()
        try:
            lab.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            lab.kill()
            lab.wait()
