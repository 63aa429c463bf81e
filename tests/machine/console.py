"""What the machine prints on its serial port, line by line, with the time at which each was read."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

_POLL_S = 0.1
_CONTROL = re.compile(r"\x1b\[[0-9;=?]*[A-Za-z]|[\r\0]")


class Console:
    """A reader of the file that QEMU writes. Times are those of time.monotonic()."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[tuple[float, str]] = []
        file.touch()
        self._ends = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        self._ends.set()
        self._reader.join()

    def seen(self, words: str, since: float = 0.0) -> float | None:
        """Return when a line with these words was first printed after `since`."""
        return next((at for at, line in list(self.lines) if at >= since and words in line), None)

    def count(self, words: str, since: float = 0.0) -> int:
        """Return how many lines with these words were printed after `since`."""
        return sum(at >= since and words in line for at, line in list(self.lines))

    def tail(self, count: int = 40) -> str:
        return "\n".join(line for _, line in self.lines[-count:])

    def _read(self) -> None:
        rest = ""
        with self.file.open(errors="replace") as text:
            while not self._ends.is_set():
                rest += text.read()
                *whole, rest = rest.split("\n")
                now = time.monotonic()
                self.lines.extend((now, plain) for line in whole if (plain := _CONTROL.sub("", line).strip()))
                time.sleep(_POLL_S)
