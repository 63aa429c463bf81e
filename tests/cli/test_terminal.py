"""What people see on a terminal: lines folded between words, commands whole, and colours unless NO_COLOR says no."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable

import click
import pytest

from reconciler.cli.terminal import say, show
from tests.cli.shell import reconciler

LONG = (
    "gpu-a001: GPU 3 (SN1652923000123, PCI 0000:5d:00.0) fell off the bus twice; its locator LED is on, and it is off"
)
COMMAND = (
    "  reconciler apply /srv/fleets/hall-3/fleet-spec --plan /srv/plans/hall-3.json --yes --ledger /srv/hall-3.sqlite"
)
PATH = "/srv/fleets/hall-3/" + "a-long-name/" * 8 + "plan.json"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def seen(*calls: Callable[[], object]) -> str:
    """Return what a terminal is sent."""
    terminal = Terminal()
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        for call in calls:
            call()
    return terminal.getvalue()


@pytest.mark.parametrize("err", [False, True])
def test_a_line_is_folded_between_words(err: bool) -> None:
    text = seen(lambda: say(LONG, err=err))
    rows = text.splitlines()
    assert len(rows) == 2
    assert max(map(len, rows)) <= 80
    assert " ".join(text.split()) == LONG


def test_what_is_copied_stays_in_one_line() -> None:
    text = seen(lambda: say("Next:", COMMAND, f"written to {PATH}"))
    assert COMMAND in text.splitlines(), "two lines would be two commands"
    assert PATH in text, "a path is no two words"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_the_same_on_a_terminal(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    piped = reconciler("completion", shell).out
    monkeypatch.setattr("tests.cli.shell.io.StringIO", Terminal)
    assert reconciler("completion", shell).out == piped


DOCUMENT = """\
INSECURE: no host key is verified
Plan plan-1 for fleet lab: 2 nodes to change

Nodes to change, by what disrupts them most:
  pool     nodes  reimage  reboot
  train-1  2      1        1

  1.   reimage  reimage  because the plan failed  to boot
  held     gpu-a001  converged  a person said reboot
"""
COLOURED = {"INSECURE:": "red", "reimage": "red", "held": "yellow", "converged": "green"}


def test_colours_are_of_words_that_say_how_a_node_is() -> None:
    shown = seen(lambda: show(DOCUMENT))
    assert STYLE.sub("", shown) == DOCUMENT
    for word, colour in COLOURED.items():
        assert click.style(word, fg=colour, bold=word == "INSECURE:" or None) in shown
    assert click.style("Nodes to change, by what disrupts them most:", bold=True) in shown
    for plain in (
        "  pool     nodes  reimage  reboot\n",
        "because the plan failed  to boot\n",
        "a person said reboot\n",
    ):
        assert plain in shown, "heads of tables, and sentences, which may quote a machine, have none"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    text = seen(lambda: show(DOCUMENT), lambda: say("=== Plan", bold=True, colour="cyan"))
    assert text == DOCUMENT + "=== Plan\n"


def test_documents_for_machines_have_no_colours() -> None:
    assert "\x1b" not in seen(lambda: show(DOCUMENT, "markdown"))
