"""Texts: folding, escapes, and Markdown that untrusted strings can't break."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import Scope
from reconciler.model.report import DriftReport
from reconciler.model.vocab import Concern, Source
from reconciler.render import drift as drift_text
from reconciler.render.text import fit, fold, html, markdown, plain, value
from reconciler.spec.ranges import expand
from tests import builders as b

HOSTILE = st.text(st.sampled_from([*"a|`*_[]()<>!#@&;\\~\n\r\t:/.", "\u202e", "\x1b", "😀", "\u0000"]), max_size=60)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu-a001"], "gpu-a001"),
        (["gpu-a001", "gpu-a002", "gpu-a003"], "gpu-a[001-003]"),
        (["gpu-a003", "gpu-a001", "gpu-b001"], "gpu-a[001,003], gpu-b001"),
        (["n9", "n10"], "n9, n10"),
        (["login"], "login"),
        ([], ""),
    ],
)
def test_fold(names: list[str], text: str) -> None:
    assert fold(names) == text


@given(st.sets(st.integers(1, 300).map(lambda n: f"gpu-{n:03d}"), min_size=1))
def test_folded_names_expand_to_themselves(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@given(HOSTILE)
def test_plain_has_no_teeth(text: str) -> None:
    shown = plain(text)
    assert not any(ord(char) < 32 or char in "\u202e\x7f" for char in shown)


@given(HOSTILE)
def test_html_has_no_teeth(text: str) -> None:
    shown = html(text)
    assert not set(shown) & set("<>\n\r")
    assert "@a" not in shown
    assert "://" not in shown


@given(HOSTILE)
def test_markdown_has_no_teeth(text: str) -> None:
    """Nothing that formats, mentions, links or closes a table cell survives unescaped (conventions R7)."""
    shown = markdown(text)
    bare = shown
    for escaped in ("\\\\", *(f"\\{char}" for char in "`*_{}[]<>()#+!|~&")):
        bare = bare.replace(escaped, "")
    assert not set(bare) & set("`*_{}[]<>()#+!|~&\n\r")
    assert "@a" not in shown
    assert "://" not in shown


def report(*items: DriftItem, incomplete: tuple[str, ...] = ()) -> DriftReport:
    return DriftReport(
        "1.0", "0.1", "test", SpecSource("spec", "c" * 40, True), b.NOW, b.NOW, b.NOW + timedelta(seconds=3),
        Scope((), (), 12, 12), incomplete, not incomplete, any(i.kind is DriftClass.DRIFTED for i in items), items, {},
        insecure=("TLS certificates of BMCs are not verified",),
    )  # fmt: skip


def item(
    node: str,
    path: str = "bios.X",
    found: Any = "Off",
    kind: DriftClass = DriftClass.DRIFTED,
    detail: str = "",
    **seen: datetime,
) -> DriftItem:
    return DriftItem(node, Concern.BIOS, path, kind, "On", found, source=Source.REDFISH, detail=detail, **seen)


def test_identical_drift_is_one_row() -> None:
    text = drift_text.human(report(*(item(f"n{at:02d}") for at in range(1, 9)), item("n09", found="Auto")))
    assert "n[01-08] (8)" in text
    assert "n09" in text
    assert "9 nodes differ" in text
    assert "with uncommitted changes" in text
    assert "INSECURE: TLS certificates of BMCs are not verified" in text


def test_unknown_values_are_told_by_cause() -> None:
    items = [item("n1", f"bios.{name}", None, DriftClass.UNKNOWN, "timeout") for name in "ABCDE"]
    text = drift_text.human(report(*items, incomplete=("n1",)))
    assert "5 values of bios" in text
    assert "1 node could not be read in full" in text


def test_values() -> None:
    assert value(None) == "?"
    assert value(["Hdd", "Pxe"]) == "Hdd, Pxe"
    assert value("ab" * 32) == "abababababab…"
    assert value({"b": 1, "a": True}) == "a=true, b=1"


def test_a_narrow_terminal_breaks_at_spaces_and_keeps_columns() -> None:
    told = "the first sentence of a report, which no table holds\n  n1  unknown  a reason that is longer than the line"
    assert fit(told, 44).split("\n") == [
        "the first sentence of a report, which no",
        "    table holds",
        "  n1  unknown  a reason that is longer than",
        "               the line",
    ]
    assert fit(told, 200) == told
    steps = "  2.   drain          drain        if needed  because of this and that and more of it"
    assert fit(steps, 70).split("\n")[1] == " " * 46 + "and more of it", (
        "under the last column, not under one before it"
    )
    assert fit(steps, 60).split("\n")[1] == "      this and that and more of it", "no column of a few letters"


@given(HOSTILE, st.integers(20, 80))
def test_a_narrow_terminal_loses_no_word(text: str, width: int) -> None:
    shown = plain(text, 1000)
    assert fit(shown, width).split() == shown.split() or any(len(word) > width - 10 for word in shown.split())
