"""The answer of a look at a soak, which a node wrote."""

from __future__ import annotations

import pytest

from reconciler.gate.soak.look import Look, read
from reconciler.model.gate import CommandResult

UNIT = "LoadState=loaded\nActiveState=active\nSubState=running\n"


def looked(*lines: str) -> Look | str:
    return read(CommandResult(0, "\n".join(["now boot-1", UNIT + "began boot-1", *lines, "end", ""]), ""))


def test_the_time_since_it_began_is_read() -> None:
    found = looked("elapsed 111600")
    assert isinstance(found, Look)
    assert (found.elapsed_s, found.lasted_s) == (111600, None)


@pytest.mark.parametrize("said", ["-40", "\u00b2", "9" * 5000, "", "soon"])
def test_a_time_that_is_none_is_not_known_and_ends_no_soak(said: str) -> None:
    found = looked(f"elapsed {said}")
    assert isinstance(found, Look)
    assert found.elapsed_s is None


@pytest.mark.parametrize("said", ["-40", "\u00b2", "9" * 5000, "soon"])
def test_an_end_that_can_not_be_read_is_no_end(said: str) -> None:
    """`str.isdigit` takes a superscript two for a number, and int() refuses it."""
    assert looked(f"done {said}") == "the state of the soak is incomplete"
