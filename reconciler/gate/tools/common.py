"""What the judges share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.gate.certificate import worse
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.observed import Observed

EVIDENCE = 4000  # characters kept of what a tool printed


@dataclass(frozen=True, slots=True)
class Tool:
    """`commands`: argv of each run, () = judged from the observation alone; a sentence when it can't be run here."""

    commands: Callable[[GateTest, Desired, Observed], tuple[tuple[str, ...], ...] | str]
    judge: Callable[[GateTest, Desired, Observed, Sequence[CommandResult]], TestResult]


@dataclass(slots=True)
class Sheet:
    """Collects a verdict: it starts at pass and can only get worse. A pass needs `evidence_of` something."""

    verdict: Verdict = Verdict.PASS
    reasons: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    version: str = ""

    def fail(self, reason: str) -> None:
        self._note(Verdict.FAIL, reason)

    def unjudged(self, reason: str) -> None:
        self._note(Verdict.UNJUDGED, reason)

    def error(self, reason: str) -> None:
        self._note(Verdict.ERROR, reason)

    def _note(self, verdict: Verdict, reason: str) -> None:
        self.verdict = worse(self.verdict, verdict)
        self.reasons.append(reason[:300])

    def check_version(self, test: GateTest, known: tuple[str, ...]) -> None:
        """An unknown version may have renamed what we look for (rule 7)."""
        allowed = test.versions or known
        if not self.version:
            self.unjudged("the tool does not say its version")
        elif not any(_is_or_below(self.version, prefix) for prefix in allowed):
            self.unjudged(f"version {self.version} is not among those that are known: {', '.join(allowed)}")

    def result(self, test: GateTest, outputs: Sequence[CommandResult], *, evidence: str | None = None) -> TestResult:
        shown = "\n".join(output.stdout for output in outputs) if evidence is None else evidence
        return TestResult(
            test.name, test.tool, self.verdict, tuple(self.reasons[:20]), self.metrics, self.version, shown[:EVIDENCE]
        )


def _is_or_below(version: str, prefix: str) -> bool:
    """ "4" covers 4.2.3 and not 40."""
    version, prefix = version.lower().lstrip("v"), prefix.lower().lstrip("v").rstrip(".")
    return version == prefix or version.startswith((prefix + ".", prefix + "-"))


def killed(sheet: Sheet, output: CommandResult) -> bool:
    """A run that was killed, or whose tool is missing, is an error of the gate and says nothing about the hardware."""
    if output.timed_out:
        sheet.error("killed at its timeout")
    elif output.exit_status == 127:
        sheet.error("not installed: " + (output.stderr.strip().splitlines() or ["command not found"])[0])
    else:
        return False
    return True


def find_document(text: str) -> dict[str, Any] | None:
    """The first JSON object in dirty output; banners and warnings come before it (rule 5). None when there is none."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def number(cell: Any) -> float | None:
    """A finite number, or None: cells are strings until proven numeric (rule 4)."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; anything else in it is left out, and a thing that is no list has none."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def expected_gpus(sheet: Sheet, desired: Desired) -> int | None:
    """How many GPUs must show evidence; undeclared inventory can't be judged (rule 3)."""
    wanted = desired.profile.inventory.gpus
    if wanted is None or wanted < 1:
        sheet.unjudged("HardwareProfile.inventory.gpus is not declared, so nothing says how many must pass")
        return None
    return wanted
