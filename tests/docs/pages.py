"""README and docs/ as tests read them: their code blocks, the commands that they show, their tables and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

README, DOCS = ROOT / "README.md", ROOT / "docs"


@cache
def text(path: Path) -> str:
    return path.read_text()


def pages() -> list[Path]:
    """README and every page of docs/."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def documents() -> list[Path]:
    """All that is written for people: the pages, and what is in .github/."""
    return [*pages(), *sorted((ROOT / ".github").rglob("*.md"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(where: str) -> Path:
    return DOCS / f"{where}.md"


@dataclass(frozen=True)
class Step:
    """A command that a page shows, and the lines that it shows of the output."""

    command: str
    shown: tuple[str, ...]


def blocks(language: str, content: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", content, re.MULTILINE | re.DOTALL)


def steps(path: Path) -> list[Step]:
    """The commands of a page's `console` blocks, which tests type word for word."""
    found: list[Step] = []
    for line in "".join(blocks("console", text(path))).splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:], ()))
        else:
            found[-1] = Step(found[-1].command, (*found[-1].shown, line))
    return found


def first(path: Path) -> str:
    """The first command that a page shows in a block, without its comment; "" where it shows none."""
    for language, block in re.findall(r"^```(sh|console)\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ ") if language == "console" else line and not line.startswith("#"):
                return str(line).removeprefix("$ ").partition(" #")[0].rstrip()
    return ""


def first_words(where: str, swapped: Mapping[str, str] | None = None) -> list[str]:
    """The words of the page's first command, for a test that types it. `swapped`: shown word -> what it is here.

    tests/docs/test_first.py finds the tests that call this by its name and the name of the page.
    """
    words = shlex.split(first(README if where == "README" else page(where)))
    here = swapped or {}
    assert [shown for shown in here if not any(shown in word for word in words)] == [], f"not shown by {where}"
    either = "|".join(map(re.escape, here)) or "(?!)"
    return [re.sub(either, lambda found: here[found[0]], word) for word in words]


def table(path: Path, first: str) -> list[tuple[str, ...]]:
    """The rows of the page's table whose first column is headed `first`."""
    rows = text(path).partition(f"\n| {first} | ")[2].partition("\n\n")[0].splitlines()[2:]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Each link within the project: the file and the anchor that it names, either of them maybe empty."""
    prose = re.sub(r"^```.*?^```$", "", text(path), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not target.startswith(("http://", "https://", "mailto:")):
            file, _, anchor = target.partition("#")
            yield file, anchor
