"""The findings of a look at a soak: the boot, the unit, the steps that ended, and whether the time is over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.model.gate import CommandResult

_RUN: Final = re.compile(r"(\d{1,9}) (\d{1,9}) (\d{1,4}) (\d{1,9}) (\d{1,9}) (\d{1,3})")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_KEYS: Final = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus")


@dataclass(frozen=True, slots=True)
class Run:
    """One step that ended. `began_s`, `ended_s`: since the soak began. `status`: 124, it was killed at its limit."""

    number: int
    round: int
    step: int
    began_s: int
    ended_s: int
    status: int


@dataclass(frozen=True, slots=True)
class Look:
    """`began`: boot id that the soak began in, "" where its files are gone. `lasted_s`: None while it goes on.

    `elapsed_s`: since it began; None where that can't be said.
    """

    boot: str
    unit: Mapping[str, str]
    began: str
    runs: tuple[Run, ...]
    lasted_s: int | None
    refused: str = ""
    elapsed_s: int | None = None

    @property
    def is_active(self) -> bool:
        return self.unit.get("ActiveState") in ("active", "activating") and self.unit.get("SubState") != "exited"


def read(output: CommandResult) -> Look | str:
    """Return what the look command printed; a sentence where it can't be read as a whole."""
    lines = output.stdout.splitlines()
    if output.timed_out or output.exit_status != 0 or not lines or lines[-1] != "end":
        return f"the state of the soak can't be read: exit status {output.exit_status}, {output.stderr.strip()[:200]}"
    words: dict[str, str] = {}
    unit: dict[str, str] = {}
    runs: list[Run] = []
    for line in lines[:-1]:
        key, _, rest = line.partition(" ")
        name, equals, value = line.partition("=")
        if key == "run":
            found = _RUN.fullmatch(rest)
            if found is None:
                return f"the soak has a line that can't be read: {line[:80]!r}"
            runs.append(Run(*map(int, found.groups())))
        elif equals and name in _KEYS:
            unit[name] = value
        elif key in ("now", "began", "elapsed", "done", "refused"):
            words[key] = rest
    if not words.get("now") or "ActiveState" not in unit or not _SECONDS.fullmatch(words.get("done", "0")):
        return "the state of the soak is incomplete"
    lasted = int(words["done"]) if "done" in words else None
    elapsed = int(words["elapsed"]) if _SECONDS.fullmatch(words.get("elapsed", "")) else None
    return Look(words["now"], unit, words.get("began", ""), tuple(runs), lasted, words.get("refused", ""), elapsed)
