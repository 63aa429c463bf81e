"""The lines that a reset of GPUs leaves in the kernel log, so that whoever reads it knows which messages it answered.

Counters of the driver end with a reset, but its messages stay in the log until the next boot. The first line is written
before the reset and the second one when it is proved: messages before the first are answered, those after it are new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BEGINS: Final = "reconciler-gpu-reset begins"
DONE: Final = "reconciler-gpu-reset done"
SWITCHES: Final = "nvswitch"  # beside PCI addresses: the switches between the GPUs were reset with them


def line(word: str, devices: Iterable[str]) -> str:
    """Return a line: `word` is BEGINS or DONE, `devices` PCI addresses, as 00000000:1B:00.0, and maybe SWITCHES."""
    return f"{word} {','.join(devices)}"


def read(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (word, devices) of a line of the log; None for any other line."""
    for word in (BEGINS, DONE):
        _, found, devices = text.partition(f"{word} ")
        if found:
            return word, tuple(devices.split(","))
    return None
