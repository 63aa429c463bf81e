"""A backup as the documents tell how to make one, restored: the chain verifies, and work goes on where it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.ledger.conftest import Open
from tests.ledger.postgresql import Server
from tests.ledger.test_audit import ROWS, T0, tamper, write_history
from tests.ledger.test_ledger import certificate, token

Restore = Callable[[], str]


@pytest.fixture
def restored(request: pytest.FixtureRequest, where: str, tmp_path: Path) -> Restore:
    """Copies the ledger of the test as it is now, by the tools of its database; returns where the copy is."""

    def copy() -> str:
        if "://" not in where:
            target = tmp_path / "restored.sqlite"
            with closing(sqlite3.connect(where)) as one, closing(sqlite3.connect(target)) as other:
                one.backup(other)
            return str(target)
        server: Server = request.getfixturevalue("server")
        return server.restored(where)

    return copy


def test_a_restored_ledger_verifies_and_goes_on(ledger: SqlLedger, restored: Restore) -> None:
    write_history(ledger)
    left = ledger.begin("r", "a", "reimage", "", "image.version", {}, token(ledger), T0)
    noted = ledger.audit().head
    place = restored()
    ledger.finish(left, "done", "after the backup", T0)

    again = SqlLedger(place)
    found = again.audit(noted)
    assert (found.rows, found.certificates, found.problem) == (ROWS + 1, 1, "")
    assert again.id == ledger.id
    assert again.nodes(["a", "b"])["a"].certificate == certificate("a")
    assert [number for number, *_ in again.unfinished()] == [left], "as it was when the backup was made"
    again.finish(left, "transient", "the run that began it is gone", T0)
    again.save_certificate(certificate("b"))
    again.hold("a", "restored", "ops", None, T0)
    found = again.audit(noted)
    assert (found.rows, found.certificates, found.problem) == (ROWS + 4, 2, ""), "no number is given twice"
    again.close()


def test_what_the_backup_lacks_is_told_by_the_head_that_was_noted_since(ledger: SqlLedger, restored: Restore) -> None:
    write_history(ledger)
    place = restored()
    ledger.hold("a", "since", "ops", None, T0)
    noted = ledger.audit().head
    again = SqlLedger(place)
    assert again.audit().problem == ""
    assert again.audit(noted).problem == "rewritten"
    again.close()


def test_a_backup_of_a_changed_journal_is_found_when_it_is_restored(
    ledger: SqlLedger, reopen: Open, where: str, restored: Restore
) -> None:
    write_history(ledger)
    tamper(where, "UPDATE journal SET detail = 'it went well' WHERE id = 2")
    again = SqlLedger(restored())
    assert (again.audit().row, again.audit().problem) == (2, "changed")
    again.close()
