"""A node with a new mainboard shows another TPM: a person accepts it, by typing what it means, with a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import SPEC, Done, reconciler
from tests.docs.pages import first_words

NODE, NOW = "gpu-a003", datetime(2026, 11, 22, tzinfo=UTC)
*COMMAND, TYPED = first_words("how-to/measured-boot")[1:]  # --confirm, and the sentence


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    place = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(place)
    ledger.bind_endorsement(NODE, "e1", NOW)
    assert ledger.bind_endorsement(NODE, "e2", NOW)
    ledger.close()
    return place


def accept(ledger: Path, *more: str, node: str = NODE) -> Done:
    words = [word.replace(NODE, node) for word in COMMAND[:-1]]
    return reconciler(*words, *more, "--spec", SPEC, "--ledger", ledger)


def endorsement(ledger: Path) -> str | None:
    opened = SqlLedger(ledger)
    try:
        return opened.node(NODE).endorsement
    finally:
        opened.close()


def test_the_typed_sentence_accepts_it_and_history_says_who_and_why(refused: Path) -> None:
    done = accept(refused, "--confirm", TYPED)
    assert done.code == 0, done.err
    assert "showed e2" in done.err
    assert endorsement(refused) == "e2"
    told = reconciler("history", NODE, "--ledger", refused).out
    assert "mainboard replaced, RMA 4711" in told
    assert reconciler("audit", "verify", "--ledger", refused).code == 0


@pytest.mark.parametrize("typed", [[], ["--confirm", "yes"], ["--confirm", "accept TPM of gpu-a001"]])
def test_nothing_else_accepts_it(refused: Path, typed: list[str]) -> None:
    done = accept(refused, *typed)
    assert done.code == 64
    assert f"needs --confirm '{TYPED}'" in done.err
    assert endorsement(refused) == "e1"


def test_without_a_tpm_that_was_refused_there_is_none_to_accept(refused: Path) -> None:
    assert accept(refused, "--confirm", TYPED).code == 0
    again = accept(refused, "--confirm", TYPED)
    assert again.code == 64
    assert "no other TPM was refused on gpu-a003" in again.err
    other = accept(refused, "--confirm", "accept TPM of gpu-a001", node="gpu-a001")
    assert "no TPM of gpu-a001 is enrolled" in other.err
