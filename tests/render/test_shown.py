"""What is shown of strings that others make: nothing acts on a terminal or a CI runner, no URL tells a secret."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.printable import json_lines, lines, shown_url, visible, without_secrets
from reconciler.render.text import page, plain

CONTROLS = [*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", "\u200b", "\u200e", "\u202e",
            "\u2066", "\u2069", "\ufeff", "\U000e0041", "\ud800"]  # fmt: skip
HOSTILE = st.text(st.sampled_from([*CONTROLS, *"a:#[]\\é😀 "]), max_size=40)


def acts(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


@pytest.mark.parametrize("char", CONTROLS)
def test_what_acts_is_shown_and_not_taken_out(char: str) -> None:
    shown = visible(f"a{char}b")
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert shown.isprintable()


def test_escapes_are_those_that_people_know() -> None:
    assert visible("\x1b[31m \u202e \n \x9b \U000e0041 é") == r"\x1b[31m \u202e \n \x9b \U000e0041 é"


@given(HOSTILE)
def test_a_line_stays_one_line(text: str) -> None:
    assert not any(acts(char) for char in visible(text) + plain(text))
    assert page([text, "end"]).count("\n") == 2


@given(HOSTILE)
def test_no_line_is_a_command_to_a_runner(text: str) -> None:
    """As actions/runner reads them: `::` after blanks, and the older `##[`, anywhere."""
    shown = lines(text)
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())
    assert "##[" not in shown
    assert not any(acts(char) for char in shown if char not in "\n\t\u200b")


@given(st.dictionaries(HOSTILE, HOSTILE, max_size=3), st.booleans())
def test_json_is_escaped_and_equal_in_value(value: dict[str, str], ascii_only: bool) -> None:
    document = json.dumps(value, indent=1, ensure_ascii=ascii_only)
    shown = json_lines(document)
    assert json.loads(shown) == value
    assert "##[" not in shown
    assert not any(acts(char) for char in shown if char != "\n")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u@h/x?password=pw", "postgresql://u@h/x?password=***"),
        ("postgresql://u:p%40w@h:5432/x?sslmode=require&sslpassword=z",
         "postgresql://u:***@h:5432/x?sslmode=require&sslpassword=***"),
        ("postgresql://h1:5432,h2/x", "postgresql://h1:5432,h2/x"),
        ("postgresql://u:p@w/@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u:p?w@h/x", "postgresql://***"),
        ("postgresql:/u:pw@h/x", "postgresql:/u:***@h/x"),
        ("postgresql://u@h/x?options=-c%20a&p%61ssword=z", "postgresql://u@h/x?options=***&***"),
        ("https://TOKEN@github.com/a/b", "https://***@github.com/a/b"),
        ("https://u:pw@github.com/a/b.git?private_token=z#f", "https://***@github.com/a/b.git?private_token=***#***"),
        ("https://h:not-a-port/x", "https://***"),
        ("https://[::1]:443/x?ref=main", "https://[::1]:443/x?ref=main"),
        ("ssh://git@h/x", "ssh://git@h/x"),
        ("sqlite:////var/lib/l.sqlite", "sqlite:////var/lib/l.sqlite"),
        ("/var/lib/l.sqlite", "/var/lib/l.sqlite"),
        ("git@h:a/b", "git@h:a/b"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_what_may_be_a_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert without_secrets(f"can't reach '{url}' now") == f"can't reach '{shown}' now" or "not-a-port" in url


NASTY = st.text(st.sampled_from("aZ0@:/?#&=%+ ;"), max_size=8)
FORMS = ["postgresql://u:{}@h/x", "postgresql://u@h/x?password={}", "https://{}@h/x", "https://h/x#{}"]


@given(NASTY, NASTY, st.sampled_from(FORMS))
def test_no_password_shows_however_it_is_written(before: str, after: str, form: str) -> None:
    """Also those that should have been quoted."""
    secret = before + "Zq7secret" + after
    assert "Zq7secret" not in shown_url(form.format(secret))


def test_settings_of_libpq_in_somebody_elses_words() -> None:
    said = without_secrets("connection failed: host=h password='a b' sslpassword=x user=u")
    assert said == "connection failed: host=h password=*** sslpassword=*** user=u"
