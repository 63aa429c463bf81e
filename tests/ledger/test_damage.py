"""Damaged rows, files and disks. A ledger that can't be trusted stops what it is about, and says what to do."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger, schema
from reconciler.model.errors import LedgerError
from reconciler.model.records import NodeRecord
from tests.ledger.conftest import Open
from tests.ledger.test_ledger import certificate, token

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)


def damage(where: str, table: sa.Table, row: int | None = None, /, **values: object) -> None:
    """`row`: that one alone."""
    url = where.replace("postgresql:", "postgresql+psycopg:") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    some = sa.true() if row is None else table.c.id == row
    with engine.begin() as connection:
        assert connection.execute(table.update().where(some).values(values)).rowcount
    engine.dispose()


def write_everything(ledger: SqlLedger, node: str) -> None:
    ledger.begin("r", node, "power_cycle", "", "remediation", {"boot_id": "b"}, token(ledger), T0)
    ledger.note_silences([(node, "ssh", True)], T0)
    ledger.remember_applied(node, {"bios.X": 1}, "d", "c", T0)
    ledger.save_certificate(certificate(node))


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        (schema.journal, {"at": "yesterday"}, "time of attempt 1 'yesterday' is not a time"),
        (schema.journal, {"data": "{"}, "intent of attempt 1 is not JSON"),
        (schema.journal, {"data": "[]"}, "not a JSON object"),
        (schema.silences, {"since": "2026-11-01T12:00:00"}, "has no time zone"),
        (schema.applied, {"value": "tru"}, "applied value of bios.X is not JSON"),
        (schema.certificates, {"document": "{}"}, "certificate 1"),
    ],
)
def test_a_malformed_row_stops_its_node_alone(
    where: str, reopen: Open, table: sa.Table, values: dict[str, object], told: str
) -> None:
    ledger = reopen()
    write_everything(ledger, "bad")
    damage(where, table, **values)
    ledger.remember_identities({"good": ("S", None)}, T0)
    records = ledger.nodes(["bad", "good"])
    assert told in records["bad"].malformed
    assert records["good"] == NodeRecord("good", serial="S")
    assert ledger.history("bad"), "the history stays readable"
    ledger.unfinished()


def test_an_outcome_that_is_no_outcome_stops_the_node(where: str, reopen: Open) -> None:
    ledger = reopen()
    attempt = ledger.begin("r", "a", "reimage", "", "", {}, token(ledger), T0)
    ledger.finish(attempt, "splendid", "", T0)
    assert "outcome of attempt 1 is 'splendid'" in ledger.node("a").malformed


def test_a_certificate_of_another_node_is_malformed(where: str, reopen: Open) -> None:
    ledger = reopen()
    ledger.save_certificate(certificate("a"))
    damage(where, schema.certificates, node="b")
    assert ledger.node("b").certificate is None
    assert "is about a" in ledger.node("b").malformed


def test_a_damaged_hold_still_holds(where: str, reopen: Open) -> None:
    ledger = reopen()
    ledger.hold("a", "careful", "ops", T0, T0)
    damage(where, schema.holds, until="soon")
    (hold,) = ledger.node("a").holds
    assert (hold.reason, hold.until) == ("careful", None)
    assert "end of hold 1 'soon' is not a time" in ledger.node("a").malformed
    assert [hold.reason for hold in ledger.holds()] == ["careful"]


def test_a_damaged_lease_lets_nobody_write(where: str, reopen: Open) -> None:
    ledger = reopen()
    token(ledger)
    damage(where, schema.leases, expires_at="never")
    with pytest.raises(LedgerError, match="nobody may write"):
        ledger.acquire("demo", "other", 60, T0)


def test_a_newer_ledger_is_refused(where: str, reopen: Open) -> None:
    reopen().close()
    damage(where, schema.meta, value="999")
    with pytest.raises(LedgerError, match=r"newer version of the reconciler.*upgrade"):
        reopen()


def test_a_ledger_without_version_is_refused(where: str, reopen: Open) -> None:
    reopen().close()
    damage(where, schema.meta, value="one")
    with pytest.raises(LedgerError, match="its version 'one' is not a number"):
        reopen()


# --- SQLite files ----------------------------------------------------------------------------------------------------


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE photos (id INTEGER)")
    with pytest.raises(LedgerError, match="belongs to another program"):
        SqlLedger(path)
    with closing(sqlite3.connect(path)) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 200)
    with pytest.raises(LedgerError, match=r"notes\.txt is not a ledger; name another file"):
        SqlLedger(path)
    assert path.read_text().startswith("dear diary")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(path)
    for number in range(200):
        ledger.set_nonce(f"n{number}", "x" * 500, T0)
    ledger.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 8192))
    with pytest.raises(LedgerError, match=r"ledger.sqlite is damaged; move it away and restore it from a backup"):
        SqlLedger(path).nodes(["n1"])


def test_a_locked_file_is_named_after_a_bounded_wait(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(path, lock_timeout_s=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"ledger.sqlite is locked by another process"):
            ledger.set_nonce("a", "n", T0)
        assert ledger.node("a").nonce is None, "reading goes on"
    ledger.set_nonce("a", "n", T0)
    ledger.close()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Every write past `size` fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(path)
    ledger.set_nonce("a", "before", T0)

    def write_much() -> None:
        with ledger.batch():
            ledger.set_nonce("a", "after", T0)
            for number in range(2000):
                ledger.set_nonce(f"n{number}", "x" * 2000, T0)

    size = max(file.stat().st_size for file in tmp_path.iterdir())
    with files_of_at_most(size), pytest.raises(LedgerError, match=r"ledger.sqlite can't be (read or )?written"):
        write_much()
    assert ledger.node("a").nonce == "before"
    assert ledger.node("n0") == NodeRecord("n0")
    ledger.set_nonce("a", "after", T0)
    ledger.close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"ledger.sqlite can't be created: .*file"):
        SqlLedger(tmp_path / "file" / "below" / "ledger.sqlite")


def test_a_read_only_directory_is_named(tmp_path: Path) -> None:
    """In a process of its own, which gives up root's right to write anywhere."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o555)
    code = (
        "import os, sys, sqlite3, sqlalchemy.dialects.sqlite\n"
        "from reconciler.drivers.ledger import SqlLedger\n"
        "from reconciler.model.errors import LedgerError\n"
        "os.chdir(sys.argv[1])\n"
        "os.geteuid() or os.setuid(65534)\n"
        "try: SqlLedger('ledger.sqlite')\n"
        "except LedgerError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert "ledger.sqlite can't be opened; check that its directory exists and that this user may write" in done.stdout


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError) as raised:
        SqlLedger(f"postgresql://r:hunter2@/ledger?host={tmp_path}")
    assert "postgresql://r:***@/ledger" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("where", ["mysql://x/y", "not a url://"])
def test_an_address_that_is_no_ledger_is_refused(where: str) -> None:
    with pytest.raises(LedgerError, match="postgresql://"):
        SqlLedger(where)
