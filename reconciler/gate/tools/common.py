"""The parts that the judges of all tools share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.gate.certificate import finite, worse
from reconciler.gate.tools.mpi import Launch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.observed import Observed

EVIDENCE = 4000  # characters of a tool's output that are kept
_SIGKILL = 137  # as a shell on the node says it; where the tool is our own child, the number is negative
LONGEST = 300  # characters of one reason
# Plain decimals only: float() takes "1_000" and the digits of every script as well.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Tool:
    """An acceptance tool.

    `commands` returns the argv of each run, () when the observation alone is judged, or a sentence when the tool can't
    run on this node. `serve` returns the command that answers `commands` on a partner, and `launch` a program that runs
    on args.group nodes at once in place of `commands`, or why it can't; both None: it tests one node alone.
    """

    commands: Callable[[GateTest, Desired, Observed], tuple[tuple[str, ...], ...] | str]
    judge: Callable[[GateTest, Desired, Observed, Sequence[CommandResult]], TestResult]
    serve: Callable[[GateTest], tuple[str, ...]] | None = None
    launch: Callable[[GateTest, Desired], Launch | str] | None = None


@dataclass(slots=True)
class ResultBuilder:
    """Builds the result of a test. The verdict starts at pass and can only get worse."""

    verdict: Verdict = Verdict.PASS
    reasons: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    version: str = ""
    units: dict[str, str] = field(default_factory=dict)  # of metrics whose tool prints the unit

    def fail(self, reason: str) -> None:
        self._note(Verdict.FAIL, reason)

    def unjudged(self, reason: str) -> None:
        self._note(Verdict.UNJUDGED, reason)

    def error(self, reason: str) -> None:
        self._note(Verdict.ERROR, reason)

    def note(self, verdict: Verdict, reasons: Sequence[str]) -> None:
        """Note the verdict on a part of the test, and why."""
        self.verdict = worse(self.verdict, verdict)
        self.reasons += [storable(reason[:LONGEST]) for reason in reasons]

    def _note(self, verdict: Verdict, reason: str) -> None:
        self.verdict = worse(self.verdict, verdict)
        self.reasons.append(storable(reason[:LONGEST]))

    def parts(self, metric: str, values: Mapping[str, float], *, worst: Callable[..., float] = min) -> None:
        """Keep what each part of the node measured, the worst of them, and by how many percent it lags the best."""
        if not values:
            self.unjudged(f"{metric}: no part was measured")
            return
        self.metrics |= {f"{metric}.{part}": value for part, value in values.items()}
        self.metrics[metric] = worst(values.values())
        high, low = max(values.values()), min(values.values())
        self.metrics[f"{metric}.spread"] = 100 * (high - low) / high if high > 0 else 0.0

    def check_version(self, test: GateTest, known: tuple[str, ...]) -> None:
        """Note a version that is not allowed or known: it may have renamed fields (rule 7)."""
        allowed = test.versions or known
        if not self.version:
            self.unjudged("the tool does not say its version")
        elif not any(is_or_below(self.version, prefix) for prefix in allowed):
            self.unjudged(f"version {self.version[:40]} is not among those that are known: {', '.join(allowed)}")

    def result(self, test: GateTest, outputs: Sequence[CommandResult], *, evidence: str | None = None) -> TestResult:
        """Return the result, with finite metrics alone, and text that a database and a file can hold."""
        for name in [name for name, value in self.metrics.items() if finite(value) is None]:
            del self.metrics[name]
            self.unjudged(f"{name} is not a finite number")
        shown = "\n".join(output.stdout[:EVIDENCE] for output in outputs) if evidence is None else evidence
        return TestResult(
            test=test.name,
            tool=test.tool,
            verdict=self.verdict,
            reasons=tuple(self.reasons[:20]),
            metrics=self.metrics,
            tool_version=storable(self.version[:LONGEST]),
            evidence=storable(shown[:EVIDENCE]),
            units=self.units,
        )


def is_or_below(version: str, prefix: str) -> bool:
    """Return whether a version has this prefix: "4" covers 4.2.3, but not 40."""
    version, prefix = version.lower().lstrip("v"), prefix.lower().lstrip("v").rstrip(".")
    return version == prefix or version.startswith((prefix + ".", prefix + "-"))


def note_if_killed(builder: ResultBuilder, output: CommandResult) -> bool:
    """Note a run that was killed or whose tool is missing: an error of the gate, no verdict on the hardware."""
    if output.timed_out:
        builder.error("killed at its timeout")
    elif output.exit_status == 127:
        builder.error("not installed: " + (output.stderr.strip().splitlines() or ["command not found"])[0])
    elif output.exit_status < 0 or output.exit_status == _SIGKILL:
        builder.error(f"killed, as the kernel does where memory runs out (exit status {output.exit_status})")
    else:
        return False
    return True


def storable(text: str) -> str:
    """Replace the characters that a database or a UTF-8 file can't hold: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


class _Contradiction(ValueError):
    """A JSON object has one name twice, with different values."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:  # parsers differ in which of the two they take
            raise _Contradiction(name)
        found[name] = value
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_members)


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """A JSON object that a tool printed. `before` is the text above it: banners and warnings (rule 5)."""

    document: dict[str, Any]
    before: str


def find_printed(text: str) -> PrintedDocument | None:
    """Return the JSON object in output with other text above it; None when it is missing, cut off, or followed by text.

    Text after the document may revoke what the document says, so the document must come last.
    """
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):  # ValueError also for an integer with more digits than Python converts
        return None
    return PrintedDocument(found, text[:start]) if isinstance(found, dict) and not text[end:].strip() else None


def find_document(text: str) -> dict[str, Any] | None:
    found = find_printed(text)
    return None if found is None else found.document


def number(cell: Any) -> float | None:
    """Return a cell as a finite number; None for anything else. Cells are strings until proven numeric (rule 4)."""
    if isinstance(cell, str):
        cell = float(cell) if _DECIMAL.fullmatch(cell.strip()) else None  # 1e999 becomes infinity
    return finite(cell)


def count(cell: Any) -> int | None:
    """Return a cell as a whole number from 0 to 2^63 - 1, like an index, a size or a count; None for anything else."""
    if isinstance(cell, str):
        cell = int(cell) if re.fullmatch("[0-9]{1,19}", cell.strip()) else None
    whole = isinstance(cell, int) and not isinstance(cell, bool) and 0 <= cell < 2**63
    return cell if whole else None


def word(cell: Any) -> str:
    """Return a cell in lower case, "" when it is no text: statuses differ in case between versions."""
    return cell.strip().lower() if isinstance(cell, str) else ""


def shown(cell: Any) -> str:
    """Return a cell as text for a reason. Lists and objects are not printed, as str() of deeply nested ones raises."""
    if isinstance(cell, str | int | float) or cell is None:
        return str(cell)[:LONGEST] or "empty"
    return "a list" if isinstance(cell, list) else "an object"


def rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list; an empty list for anything that is no list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def expected_gpus(builder: ResultBuilder, desired: Desired) -> int | None:
    """Return how many GPUs must pass; None, with a note, when the inventory declares no number (rule 3)."""
    wanted = desired.profile.inventory.gpus
    if wanted is None or wanted < 1:
        builder.unjudged("HardwareProfile.inventory.gpus is not declared, so it is not known how many must pass")
        return None
    return wanted
