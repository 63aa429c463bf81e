"""Check the characters of the texts in a file, which go into files, commands and reports."""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_TEXT: Final = 16_384  # characters of one text: a script of a page or two, ten times the longest public key
_FORBIDDEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, bidirectional and invisible ones, surrogates, line ends


def check_text(text: str) -> None:
    """Raise ValueError for a text that is too long or has characters other than printable ones, tabs and newlines."""
    _check(text, "\n\t", "no control, invisible or bidirectional characters")


def check_line(text: str) -> None:
    """Raise ValueError for a text that does not fit in one line, one cell or one argument."""
    _check(text, "", "one line without control characters")


def _check(text: str, allowed: str, rule: str) -> None:
    if len(text) > MAX_TEXT:
        raise ValueError(f"{text[:40]!r}... has more than {MAX_TEXT} characters")
    if text.isprintable():
        return
    for char in text:
        if char not in allowed and unicodedata.category(char) in _FORBIDDEN:
            shown = repr(text) if len(text) <= 80 else f"{text[:80]!r}..."
            raise ValueError(f"{shown} has the character U+{ord(char):04X}; write {rule}")
