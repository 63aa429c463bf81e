"""Documents in files that nobody wrote with care: an error that names the file, and never a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.kube.failures import KubeFailure, from_response
from reconciler.drivers.kube.objects import document
from reconciler.drivers.ledger.rows import from_json
from reconciler.model.json_text import parse_json
from reconciler.model.records import read_mark
from reconciler.render.comment import mark_of
from tests.cli.shell import SPEC, reconciler

DEEP = "[" * 100_000
NUMBERS = ["9" * 309, "9" * 5000, "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1e308", "-1", DEEP, '"\\ud800"']


@pytest.fixture
def plan(demo: Path, tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    reconciler("plan", SPEC, "--observation", demo, "--out", file)
    return file


@pytest.fixture(params=["plan", "demo"])
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def numbers(value: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each number, and one for each key: what stands below a node stands below all."""
    if isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(child, (*steps, step))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield steps


def put(document: Any, steps: tuple[Any, ...], text: str) -> str:
    """The document with this text in that place."""
    parent = document
    for step in steps[:-1]:
        parent = parent[step]
    before, parent[steps[-1]] = parent[steps[-1]], "<here>"
    try:
        return json.dumps(document).replace('"<here>"', text)
    finally:
        parent[steps[-1]] = before


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "NaN", "{", "", "\\ud800", '"\\ud800"'],
    ids=lambda text: text[:9],  # pytest puts the id into the environment, with which no program may start then
)
@pytest.mark.parametrize(
    "words",
    [("show", "FILE"), ("drift", SPEC, "--observation", "FILE"), ("apply", SPEC, "--plan", "FILE", "--yes")],
    ids=lambda words: words[0],
)
def test_what_is_no_document(words: tuple[Any, ...], text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    done = reconciler(*(file if word == "FILE" else word for word in words))
    assert done.code == 64, done.err
    assert str(file) in done.err
    assert "Traceback" not in done.err


def test_no_number_of_a_document_crashes_show(file: Path, tmp_path: Path) -> None:
    """Each kind of number once, with a value of each kind in turn."""
    whole = json.loads(file.read_text())
    places = {tuple(step for step in steps if not isinstance(step, int))[-3:]: steps for steps in numbers(whole)}
    chosen = random.Random(0)
    for at, steps in enumerate(places.values()):
        text = NUMBERS[at % len(NUMBERS)] if at < len(NUMBERS) else chosen.choice(NUMBERS)
        changed = tmp_path / "changed.json"
        changed.write_text(put(whole, steps, text))
        for output in ("human", "markdown", "json"):
            done = reconciler("show", changed, "--output", output)
            assert done.code in (0, 64), (steps, text[:20], done.err[-2000:])
            assert "Traceback" not in done.err
            if text in {"NaN", "Infinity", "-Infinity", "1e999", "-1e999"}:
                assert done.code == 64, (steps, text)
                assert str(changed) in done.err


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "9" * 5000, "{"])
def test_no_reader_of_json_gives_up(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
    with pytest.raises(ValueError, match="value is not JSON"):
        from_json(text, "value")
    with pytest.raises(KubeFailure):
        document(text.encode())
    assert isinstance(from_response(500, text.encode()), KubeFailure)
    assert mark_of(f"<!-- reconciler:v1 {text} -->\nx") == {}
    mark = read_mark(text)
    assert mark is not None
    assert mark.ledger == "?"


@pytest.mark.parametrize("key", ["ledger", "plan", "reason", "at"])
@pytest.mark.parametrize("value", [1, None, [], {}, True])
def test_a_mark_of_other_types_is_somebody_elses(key: str, value: object) -> None:
    """Whoever may annotate a node may write anything."""
    good: dict[str, object] = {"ledger": "a", "plan": "p", "reason": "r", "at": "", "cordoned": True}
    mark = read_mark(json.dumps(good | {key: value}))
    assert mark is not None
    assert mark.ledger == "?"
