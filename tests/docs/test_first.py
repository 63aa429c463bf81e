"""The first command of every page is typed by a test, or by `make first-commands` where it takes minutes.

Who types it is found by the call of `first_words` with the page's name. The tour types `console` blocks of its pages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.fresh import BY_HAND, line_of
from tests.docs.pages import blocks, first, first_words, name, pages, steps, text
from tests.docs.test_tour import FLEET, GUIDES, TUTORIAL

TOUR = "tests/docs/test_tour.py"
_CALLS = re.compile(r"\bfirst_words\(\s*\"([^\"]+)\"")


def where(path: Path) -> str:
    """A page as `first_words` names it."""
    return name(path).removeprefix("docs/").removesuffix(".md")


SHOWING = {where(path): path for path in pages() if first(path)}


@cache
def typed() -> dict[str, list[str]]:
    """Page -> the tests that type its first command."""
    found: dict[str, list[str]] = {}
    for file in sorted({*(ROOT / "tests").rglob("test_*.py")} - {Path(__file__)}):
        for called in _CALLS.findall(file.read_text()):
            found.setdefault(called, []).append(name(file))
    toured = {step.command for path in (TUTORIAL, FLEET, *GUIDES) for step in steps(path)}
    for called, path in SHOWING.items():
        if first(path) in toured:
            found.setdefault(called, []).append(TOUR)
    return found


@pytest.mark.parametrize("called", SHOWING)
def test_the_first_command_of_a_page_is_typed_or_listed(called: str) -> None:
    by_hand = called in BY_HAND
    assert by_hand != bool(typed().get(called)), (
        f"{called}: $ {first(SHOWING[called])}\ntyped by {typed().get(called, 'no test')}; in fresh.py: {by_hand}"
    )


def test_what_is_typed_by_hand_is_what_the_pages_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBREDFISH", "/trees")
    lines = {called: line_of(called) for called in BY_HAND}
    assert lines["reference/vendors"] == 'make vendor-table TREES="NVIDIA/libredfish=/trees/tests/mockups"'
    assert lines["how-to/postgresql"] == "pip install '.[postgresql]'"


def test_nothing_is_listed_or_typed_that_no_page_shows() -> None:
    assert (set(BY_HAND) | set(typed())) - set(SHOWING) == set()
    assert len(typed()) > len(BY_HAND)


def test_a_command_is_not_typed_with_words_that_the_page_has_lost() -> None:
    with pytest.raises(AssertionError, match="not shown by how-to/repair"):
        first_words("how-to/repair", {"--all": ""})
    assert first_words("how-to/repair", {"list": "done"}) == ["reconciler", "repair", "done"]


def _extras() -> Iterator[tuple[str, str]]:
    for path in pages():
        for found in re.findall(r"(?:pip|pipx) install '[^']*\[([\w,]+)\]'", text(path)):
            yield name(path), found


def test_what_pip_is_asked_for_is_declared() -> None:
    """These are not typed. From the checkout: an index may know the name as somebody else's."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert {(path, extra) for path, given in _extras() for extra in given.split(",") if extra not in extras} == set()
    assert len(list(_extras())) >= 4
    told = [line for path in pages() for block in blocks("sh", text(path)) for line in block.splitlines()]
    told += [line for file in sorted((ROOT / "reconciler").rglob("*.py")) for line in file.read_text().splitlines()]
    assert [line for line in told if "pip install 'gpu-fleet-reconciler" in line] == []
