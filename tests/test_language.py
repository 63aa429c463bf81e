"""The words of the code are those of .github/GLOSSARY.md: no renamed word comes back, docstrings are sentences."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

GLOSSARY = ROOT / ".github" / "GLOSSARY.md"
FOLDERS = sorted(path.name for path in (ROOT / "reconciler").iterdir() if (path / "__init__.py").exists())
OPENINGS = re.compile(r"(Of|That|What|Who|Whom|Which|Whether|As|With|None)\b")


@cache
def forbidden() -> dict[str, frozenset[str]]:
    """Each word that must not come back, with the identifiers that may have it."""
    section = GLOSSARY.read_text().partition("\n## Words that must not come back\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([^|]*)\|$", section, re.MULTILINE)
    return {word: frozenset(re.findall(r"\w+", names)) for word, names in rows if word != "word"}


def parts(identifier: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def identifiers(tree: ast.AST) -> set[str]:
    """Every name that the code gives or uses."""
    fields = (
        getattr(node, field, None) for node in ast.walk(tree) for field in ("id", "attr", "name", "arg", "asname")
    )
    return {part for name in fields if isinstance(name, str) for part in name.split(".")}


def misnamed(names: set[str]) -> set[str]:
    return {name for name in names for part in parts(name) if part in forbidden() and name not in forbidden()[part]}


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node)
            if told:
                yield told


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / "reconciler" / folder).rglob("*.py"))


def misnamed_of(folder: str) -> dict[str, list[str]]:
    """Each identifier that has such a word, names of modules included, and the files that have it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(folder):
        for name in misnamed(identifiers(tree_of(path)) | {path.stem}):
            found[name].append(str(path.relative_to(ROOT)))
    return dict(sorted(found.items()))


def fragments_of(folder: str) -> list[str]:
    """Each docstring that begins as no sentence does."""
    return [
        f"{path.relative_to(ROOT)}: {told.splitlines()[0]}"
        for path in modules(folder)
        for told in docstrings(tree_of(path))
        if OPENINGS.match(told)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_renamed_words_do_not_come_back(folder: str) -> None:
    found = misnamed_of(folder)
    assert found == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_as_sentences(folder: str) -> None:
    """Subject, verb, object: a fragment that begins with Of or What says nothing to a stranger."""
    found = fragments_of(folder)
    assert found == []


def test_the_words_are_read() -> None:
    assert len(forbidden()) > 20
    assert misnamed({"_read_story", "ServiceStand", "history", "standard", "stylesheet"}) == {
        "_read_story",
        "ServiceStand",
    }
    assert parts("LeaderTerm") == ["leader", "term"]
    assert identifiers(ast.parse("def f(a): return a.b  # told")) == {"f", "a", "b"}


def test_each_term_has_one_row() -> None:
    text = GLOSSARY.read_text().partition("\n## Words that must not come back\n")[0]
    terms = [term.strip() for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for term in row.split(",")]
    named = [term for term in terms if term not in ("term", "---")]
    assert [term for term in named if named.count(term) > 1] == []


def test_classes_that_the_glossary_names_exist() -> None:
    text = GLOSSARY.read_text().partition("\n## Words that must not come back\n")[0]
    named = {
        term
        for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
        for term in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", row)
    }
    defined = {
        node.name for folder in FOLDERS for path in modules(folder) for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    assert len(named) > 5
    assert named - defined == set()
