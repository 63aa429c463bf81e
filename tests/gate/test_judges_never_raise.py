"""Whatever a tool prints, its judge gives a verdict that a file and a database can hold (invariant 18).

Documents are spoiled in the text that arrives, not as values: an integer of 309 digits, an escape of half a character
and a repeated name exist there alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import GOOD, SEEN, Case, judge, wanted

JUNK = {
    "309 digits": "1" + "0" * 308,
    "5000 digits": "9" * 5000,
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "1e999": "1e999",
    "1e-999": "1e-999",
    "minus": "-1",
    "half": "0.5",
    "true": "true",
    "false": "false",
    "null": "null",
    "half a character": '"\\ud800"',
    "NUL": '"\\u0000"',
    "digits of another script": '"\\u0661"',
    "underscore": '"1_000"',
    "empty": '""',
    "word": '"x"',
    "long": '"' + "x" * 100_000 + '"',
    "list": "[]",
    "object": "{}",
    "list of lists": "[[[]]]",
    "deep": "[" * 400 + "]" * 400,
    "too deep": '{"a":' * 100_000,
    "cut": "",
}
# Values that are no evidence, wherever they are in a document that passes, and why.
NO_EVIDENCE = {
    "dcgmi-diag": {"category"},  # DCGM moved tests between categories; names say what ran
    "nvbandwidth": {"min", "max", "average"},  # they count cells that are N/A as 0; the judge takes its own
    "fio": {"jobname", "write_ios"},  # one command runs per drive, read-only; the disk's name says which was read
    "nccl-tests": set[str](),
}
DOCUMENTS = [case for case in GOOD if case.tool != "nccl-tests"]


def check(result: TestResult) -> TestResult:
    """What is kept of it can be kept."""
    assert isinstance(result.verdict, Verdict)
    assert result.verdict is Verdict.PASS or result.reasons
    assert all(isinstance(value, float) and math.isfinite(value) for value in result.metrics.values()), result.metrics
    for text in (*result.reasons, result.tool_version, result.evidence):
        text.encode()
        assert "\0" not in text
    json.dumps([result.reasons, dict(result.metrics)], allow_nan=False)
    assert sum(map(len, result.reasons)) < 10_000
    return result


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def spoiled(text: str, path: tuple[Any, ...], junk: str) -> str:
    """The document with other text at one place."""
    document = json.loads(text)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = "@junk@"
    before, _, after = json.dumps(document).partition('"@junk@"')
    return before + junk + after


@cache
def every_place(text: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(places(json.loads(text)))


@pytest.mark.parametrize("junk", JUNK, ids=str)
@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case.tool)
def test_not_evidence_is_not_pass_at_any_place(case: Case, junk: str) -> None:
    """Where places are alike, the row of one GPU represents all."""
    for path in every_place(case.text):
        if any(isinstance(step, int) and 2 <= step < 7 for step in path):
            continue
        result = check(judge(case, spoiled(case.text, path, JUNK[junk])))
        if not NO_EVIDENCE[case.tool] & set(map(str, path)):
            assert result.verdict is not Verdict.PASS, (path, junk)


@given(st.sampled_from(DOCUMENTS), st.data())
def test_two_spoilt_places_do_not_mend_each_other(case: Case, data: st.DataObject) -> None:
    paths = st.sampled_from(every_place(case.text)).filter(
        lambda path: not NO_EVIDENCE[case.tool] & set(map(str, path))
    )
    junk = st.sampled_from([JUNK[name] for name in JUNK if name not in ("too deep", "cut", "5000 digits")])
    text = spoiled(case.text, data.draw(paths), data.draw(junk))
    try:
        again = [path for path in places(json.loads(text)) if not NO_EVIDENCE[case.tool] & set(map(str, path))]
        text = spoiled(text, data.draw(st.sampled_from(again)), data.draw(junk))
    except (ValueError, RecursionError):
        pass  # spoilt so far that Python writes it no more: what is there is judged
    assert check(judge(case, text)).verdict is not Verdict.PASS


WHOLE = {
    "nothing": "",
    "blank": " \n\t",
    "braces": "{" * 100_000,
    "brackets": "[" * 100_000,
    "deep": '{"nvbandwidth":' * 50_000,
    "number": "9" * 100_000,
    "a list": "[]",
    "an empty object": "{}",
    "null": "null",
    "half a character": "{\ud800}",
    "NUL": "\0" * 1000,
    "one long line": "x" * 1_000_000,
    "many lines": "#\n" * 300_000,
    "spaces": "# Out of bounds values" + " " * 300_000 + "x",
    "ranks": "#  Rank " * 50_000,
    "devices": "#  Rank  0 " + "device " * 50_000,
    "digits": "9" * 5000 + " " + "9" * 5000 + "\n",
    "a huge size": "# algbw \n" + "  ".join(["9" * 400] * 13) + "\n",
    "many documents": '{"DCGM Diagnostic": {}}\n' * 1000,
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.tool)
@pytest.mark.parametrize("status", [0, 255])
def test_no_text_raises_or_passes(case: Case, name: str, status: int) -> None:
    for text in (WHOLE[name], WHOLE[name] + case.text[: len(case.text) // 2]):
        assert check(judge(case, text, exit_status=status)).verdict is not Verdict.PASS


@given(st.sampled_from(GOOD), st.text(), st.text(st.characters(exclude_categories=())), st.integers(-300, 300))
def test_any_text_is_judged(case: Case, text: str, stderr: str, status: int) -> None:
    for timed_out in (False, True):
        output = CommandResult(status, text, stderr, timed_out)
        assert check(TOOLS[case.tool].judge(case.test, wanted(), SEEN, [output])).verdict is not Verdict.PASS


def lines_of(case: Case) -> list[str]:
    """Of a document, one member a line, as the tools print it."""
    text = case.text if case.tool == "nccl-tests" else json.dumps(json.loads(case.text), indent=1)
    return text.splitlines(keepends=True)


@given(st.sampled_from(GOOD), st.data())
def test_a_text_with_lines_moved_about_is_judged(case: Case, data: st.DataObject) -> None:
    """A line that is dropped, doubled, cut or put elsewhere: judged, and what passes has every figure that it had."""
    lines = lines_of(case)
    at, to = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(lines) - 1))
    cut = data.draw(st.integers(0, 80))
    how = data.draw(st.sampled_from(["drop", "double", "cut", "move"]))
    line = lines.pop(at)
    if how == "double":
        lines[at:at] = [line, line]
    elif how == "cut":
        lines.insert(at, line[:cut])
    elif how == "move":
        lines.insert(to, line)
    result = check(judge(case, "".join(lines)))
    if result.verdict is Verdict.PASS:
        assert result.metrics == judge(case).metrics


@pytest.mark.parametrize("tool", sorted({case.tool for case in GOOD}))
def test_no_spoilt_recording_raises(tool: str, samples: Path) -> None:
    """Real outputs, each with junk for a number, without a line, and cut."""
    case = next(case for case in GOOD if case.tool == tool)
    for path in sorted((samples / tool).iterdir()):
        if path.suffix in (".src", ".stderr") or path.stat().st_size > 60_000:
            continue
        text = path.read_text(errors="surrogateescape")
        lines = text.splitlines(keepends=True)
        step = max(1, len(lines) // 25)
        for at in range(0, len(lines), step):
            check(judge(case, "".join(lines[:at] + lines[at + 1 :])))
            check(judge(case, "".join(lines[:at])))
            for junk in ("1" + "0" * 308, "9" * 5000, "NaN", "1e999", "\ud800"):
                key, colon, _ = lines[at].rpartition(":")
                check(judge(case, "".join([*lines[:at], f"{key}{colon} {junk}\n", *lines[at + 1 :]])))
