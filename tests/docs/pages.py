"""README and docs/ as tests read them: their code blocks, the commands that they show, their tables and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
