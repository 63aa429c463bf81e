"""The definition of a fact: a POSIX sh command, a timeout, and a pure parser of the command's result.

A parser returns the value, with notes about unknown parts of it, or raises `Unreadable`, and nothing else for any text:
a node that prints garbage must not abort the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from reconciler.model.fact_framing import MAX_BYTES
from reconciler.model.gate import CommandResult
from reconciler.model.vocab import UnknownReason

T = TypeVar("T")

_DENIED = re.compile(r"permission denied|operation not permitted|insufficient permissions", re.IGNORECASE)
_LACKING = re.compile(r"not supported|no such file or directory|can't cd|has not been booted with", re.IGNORECASE)
_JSON_STARTS = 20  # brackets in banners that are tried before the document
_MOST_DIGITS = 39  # of 2**128, the largest counter of NVMe


class Unreadable(ValueError):
    """Raised for an answer without a value. The text says why; `reason` is its class."""

    def __init__(self, detail: str, reason: UnknownReason = UnknownReason.MALFORMED) -> None:
        super().__init__(f"{reason.value}: {detail}")


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """A value. `notes`: why a field of HostFacts, or a part of it (dotted), is unknown."""

    value: T
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    name: str
    command: str
    parse: Callable[[CommandResult], Parsed[T]]
    fields: tuple[str, ...]  # fields of HostFacts that are unknown when the fact is
    timeout_s: float = 5.0
    statuses: frozenset[int] = frozenset({0})  # exit statuses whose output is worth parsing

    def read(self, answers: Mapping[str, CommandResult]) -> Parsed[T | None]:
        """Return the value, or None with the reason under each of the fact's fields."""
        try:
            parsed = self.parse(self._usable(answers.get(self.name)))
        except Unreadable as error:
            return Parsed(None, dict.fromkeys(self.fields, str(error)))
        return Parsed(parsed.value, parsed.notes)

    def _usable(self, answer: CommandResult | None) -> CommandResult:
        if answer is None:
            raise Unreadable(f"the facts program gave no answer for {self.name}")
        if answer.timed_out:
            raise Unreadable(f"{self.name} did not end in time and was killed", UnknownReason.TIMEOUT)
        if len(answer.stdout) * 4 >= MAX_BYTES and len(answer.stdout.encode()) >= MAX_BYTES:
            raise Unreadable(f"{self.name} printed more than {MAX_BYTES} bytes, which were cut")
        if answer.exit_status not in self.statuses:
            raise _failed(self.name, answer)
        return answer


def _failed(name: str, answer: CommandResult) -> Unreadable:
    output = excerpt(answer.stderr) or excerpt(answer.stdout) or "it printed nothing"
    reason = UnknownReason.MALFORMED
    if _DENIED.search(output):
        reason = UnknownReason.AUTH
    elif answer.exit_status == 127 or _LACKING.search(output):
        reason = UnknownReason.UNSUPPORTED
    return Unreadable(f"{name} ended with exit status {answer.exit_status}: {output}", reason)


def excerpt(text: str, limit: int = 200) -> str:
    """Return one short, printable line of a node's output. It is still untrusted."""
    return "".join(char for char in " ".join(text[: 4 * limit].split()) if char.isprintable())[:limit]


def find_json(text: str) -> Any:
    """Return the first JSON array or object in a text, after any banners and warnings (acceptance rule 5)."""
    decoder = json.JSONDecoder()
    for start in islice(re.finditer(r"[\[{]", text), _JSON_STARTS):
        try:
            return decoder.raw_decode(text, start.start())[0]
        except (ValueError, RecursionError):  # ValueError is also raised for an integer of more than 4300 digits
            continue
    raise Unreadable(f"no JSON document in {excerpt(text, 80)!r}")


def whole_number(value: object) -> int | None:
    """Parse a count as tools print it: 3, 3.0, "3", "0x4", "1,234"; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        digits = value.strip().replace(",", "")
        if len(digits) > _MOST_DIGITS:  # a shortened number would be a wrong one
            return None
        try:
            value = int(digits, 16 if digits[:2].lower() == "0x" else 10)
        except ValueError:
            return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and 0 <= value < 1 << 128 else None
