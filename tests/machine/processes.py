"""Servers of other projects as children of the test, with their log, until told to stop."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_STOPS_S = 10.0


class Server:
    """A process that runs until `stop`. What it prints is in `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def wait_until(self, ready: Callable[[], bool], within_s: float) -> None:
        """Wait until `ready`. Raise AssertionError with the end of the log when the process ends or time is up."""
        deadline = time.monotonic() + within_s
        while not ready():
            if (ended := self._process.poll()) is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"{self._process.args!r} is not ready (status {ended}):\n{said}")
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
