"""Whatever code, tests and documents cite is there: sections of DESIGN, and IDs of PITFALLS.

`pytest tests/docs/test_citations.py --update` writes the last column of PITFALLS anew: the files that cite each ID.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

DESIGN, PITFALLS = ROOT / ".github" / "DESIGN.md", ROOT / ".github" / "PITFALLS.md"
GROUPS = ("Pitfalls", "Conventions", "Acceptance")
ROW = re.compile(r"^\| ((?:rule )?[A-Z]?\d+(?:\.\d+)?) \| ([^|]+) \| ([^|]+) \|(?: ([^|\n]*) \|)?$", re.MULTILINE)

_ID = r"[A-Z]\d{1,2}(?:-[A-Z]?\d{1,2})?"
_LIST = rf"{_ID}(?:(?:, | and ){_ID})*"
_NUMBERS = r"\d+(?:\.\d+)?(?:(?:, | and )\d+(?:\.\d+)?)*"
_CITED = {
    "Conventions": (re.compile(rf"\b[Cc]onventions? ((?:[A-Z]\b, )?{_LIST})"),),
    "Pitfalls": (
        re.compile(rf"\b[Pp]itfalls?:? ({_LIST})"),
        re.compile(r"(?<![\w\])])\(((?:[A-N]\d{1,2})(?:, [A-N]\d{1,2})*)\)"),
        re.compile(r"(?:\"\"\"|# )([A-N]\d{1,2}(?:, [A-N]\d{1,2})*)[:.,;]"),
    ),
    "Acceptance": (
        re.compile(r"\bacceptance ((?:rule )?\d+(?:\.\d+)?)"),
        re.compile(r"\bacceptance section (\d+(?:\.\d+)?)"),
    ),
}
_DESIGN = re.compile(rf"\bDESIGN(?: sections?)? ({_NUMBERS})")
_INVARIANT = re.compile(rf"\b[Ii]nvariants? ({_NUMBERS})")


class Citation(NamedTuple):
    """A document's ID, and the file that cites it."""

    group: str
    id: str
    file: str


@cache
def sources() -> dict[str, str]:
    """All that may cite, but for the documents that define the IDs."""
    found = [
        *(
            path
            for folder in ("reconciler", "tests")
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".yaml")
        ),
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / ".github").rglob("*.md") if path != PITFALLS),
        ROOT / "README.md",
        ROOT / "pyproject.toml",
    ]
    own = Path(__file__)
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(found) if path != own}


def spread(cited: str) -> Iterator[str]:
    """E2-E4 is E2, E3 and E4."""
    for first, last in re.findall(r"((?:rule )?[A-Z]?\d+(?:\.\d+)?)(?:-[A-Z]?(\d+))?", cited):
        if not last:
            yield first
            continue
        letter, number = re.match(r"([A-Z]?)(\d+)", first).groups()  # type: ignore[union-attr]  # _LIST matched it
        yield from (f"{letter}{at}" for at in range(int(number), int(last) + 1))


def citations_of(file: str, text: str) -> Iterator[Citation]:
    for group, patterns in _CITED.items():
        for pattern in patterns:
            for match in pattern.finditer(text):
                yield from (Citation(group, one, file) for one in spread(match[1]))
            text = pattern.sub("", text)  # an ID of conventions is not one of pitfalls too


@cache
def citations() -> list[Citation]:
    return sorted({one for file, text in sources().items() for one in citations_of(file, text)})


def sections(text: str) -> dict[str, str]:
    return {group: text.partition(f"\n## {group}\n")[2].partition("\n## ")[0] for group in GROUPS}


def rows(text: str) -> dict[tuple[str, str], str]:
    """(group, ID) -> who keeps it."""
    return {
        (group, id_): (kept or "").strip()
        for group, section in sections(text).items()
        for id_, _, _, kept in ROW.findall(section)
    }


def written(text: str) -> str:
    """PITFALLS with its last column as the citations are now: code first, then tests."""
    kept: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in citations():
        if one.file.startswith(("reconciler/", "tests/")):
            kept[one.group, one.id].append(f"`{one.file}`")
    for group, section in sections(text).items():

        def anew(row: re.Match[str], group: str = group) -> str:
            return f"| {row[1]} | {row[2]} | {row[3]} | {', '.join(kept[group, row[1]])} |"

        text = text.replace(section, ROW.sub(anew, section))
    return text


def test_every_id_that_is_cited_is_in_pitfalls() -> None:
    known = rows(PITFALLS.read_text())
    assert {one for one in citations() if (one.group, one.id) not in known} == set()


def test_pitfalls_name_who_keeps_each_rule(pytestconfig: pytest.Config) -> None:
    """As the citations are: a rule that code cites names its module or test, and no file that is gone is named."""
    text = PITFALLS.read_text()
    if pytestconfig.getoption("--update"):
        PITFALLS.write_text(written(text))
        return
    wanted = rows(written(text))
    changed = {row: (kept, wanted[row]) for row, kept in rows(text).items() if kept != wanted[row]}
    assert changed == {}, "run: pytest tests/docs/test_citations.py --update"


def test_every_section_of_the_design_that_is_cited_is_there() -> None:
    text = DESIGN.read_text()
    known = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))
    assert {str(number) for number in range(1, 15)} <= known
    cited = {
        (number, file)
        for file, source in sources().items()
        for found in _DESIGN.findall(source)
        for number in spread(found)
    }
    assert len(cited) > 50
    assert {one for one in cited if one[0] not in known} == set()


def test_every_invariant_that_is_cited_is_there_and_has_its_test() -> None:
    table = DESIGN.read_text().partition("\n## 13. ")[2].partition("\n## ")[0]
    known = dict(re.findall(r"^\| (\d+) \| ([\w, ]+?) \| [^|]*\|$", table, re.MULTILINE))
    unbuilt = set(re.findall(r"^\| (\d+) \| [\w, ]+ \| not built yet[^|]*\|$", table, re.MULTILINE))
    cited = {
        number for source in sources().values() for found in _INVARIANT.findall(source) for number in spread(found)
    }
    assert cited <= set(known)
    assert [number for number in cited if number in unbuilt] == []
    tests = "\n".join(text for file, text in sources().items() if file.startswith("tests/"))
    for number, names in known.items():
        if number not in unbuilt:
            assert all(f"def test_{name}" in tests for name in names.split(", ")), (number, names)


def test_citations_are_read() -> None:
    text = '"""Power (pitfalls A9, I1).\n"""\n# A7: on\n# B2 is a GPU\nalltoall(H20)\n'
    text += "# pitfalls E2-E4, conventions R1, acceptance 4.1"
    found = {(one.group, one.id) for one in citations_of("x.py", text)}
    assert found == {
        ("Conventions", "R1"), ("Acceptance", "4.1"),
        *(("Pitfalls", one) for one in ("A9", "I1", "A7", "E2", "E3", "E4")),
    }  # fmt: skip
