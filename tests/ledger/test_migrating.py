"""A migration that a person asks for: up and back on both databases, refused beside others, killed in the middle."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.app.clocks import RealClock
from reconciler.drivers.ledger import LedgerMigrator, Order, Outlook, SqlLedger, engine, schema
from reconciler.drivers.ledger.backup import back_up
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION
from reconciler.model.errors import LeaseHeld, LedgerError, Refused, UsageError
from tests.ledger.conftest import Open
from tests.ledger.postgresql import Server
from tests.ledger.test_audit import tamper, write_history
from tests.ledger.test_ledger import token

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
CLOCK = RealClock()
OLDEST = 10  # that can be reached on the way back


def migrated(where: str, to: int = SCHEMA_VERSION, backup: Path | None = None) -> Outlook:
    with LedgerMigrator.opened(where, CLOCK) as migrator:
        return migrator.migrate(Order(to, "alice", T0, backup))


def outlook(where: str, to: int = SCHEMA_VERSION) -> Outlook:
    with LedgerMigrator.opened(where, CLOCK) as migrator:
        return migrator.outlook(to)


def contents(where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of each table, and its columns and indices. Without what a migration notes, and lists of writers."""
    url = where.replace("postgresql:", "postgresql+psycopg:") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        look = sa.inspect(connection)
        rows: dict[str, Any] = {}
        for name in sorted(set(look.get_table_names()) & set(schema.metadata.tables)):
            found = connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()
            kept = [dict(row) for row in found if row.get("event") != "migrate"]
            rows[name] = sorted((row for row in kept if "key" not in row or row["key"] != "journal_head"), key=repr)
        shape = {
            name: (
                sorted(str(column["name"]) for column in look.get_columns(name)),
                sorted(str(index["name"]) for index in look.get_indexes(name)),
            )
            for name in look.get_table_names()
        }
    engine.dispose()
    return rows, shape


@pytest.mark.parametrize("to", range(OLDEST, SCHEMA_VERSION))
def test_the_way_back_and_up_again_loses_nothing(ledger: SqlLedger, where: str, to: int) -> None:
    write_history(ledger)
    ledger.begin("r", "b", "set_bios", "", "bios.X", {}, token(ledger), T0)  # it is open
    ledger.close()
    rows, shape = contents(where)
    there = migrated(where, to)
    assert [(step.before, step.after) for step in there.steps] == [(n, n - 1) for n in range(SCHEMA_VERSION, to, -1)]
    older, _ = contents(where)
    assert {row["key"]: row["value"] for row in older["meta"]}["schema_version"] == str(to)
    again = migrated(where)
    assert [step.after for step in again.steps] == list(range(to + 1, SCHEMA_VERSION + 1))
    back, same = contents(where)
    rows["leases"] = []  # it ran out, and its holder is to begin nothing
    assert (back, same) == (rows, shape)
    opened = SqlLedger(where)
    assert opened.audit().problem == ""
    told = [entry.detail for _, entry in opened.journal(None, 50) if entry.event == "migrate"]
    assert told == [
        f"alice brought the ledger from version {SCHEMA_VERSION} to {to}",
        f"alice brought the ledger from version {to} to {SCHEMA_VERSION}",
    ]
    opened.close()


def test_what_would_lose_rows_is_refused_and_the_backup_named(ledger: SqlLedger, where: str, tmp_path: Path) -> None:
    write_history(ledger)
    ledger.close()
    with pytest.raises(Refused, match=r"version 9 has no place for orders .* restore the backup of before that"):
        migrated(where, 9)
    assert outlook(where, 9).backup == ""
    tamper(where, "DROP TABLE repairs", "DROP TABLE tickets", "ALTER TABLE outbox DROP COLUMN about",
           "UPDATE meta SET value = '9' WHERE key = 'schema_version'")  # fmt: skip
    backup = tmp_path / "before"
    if "://" in where:
        migrated(where)
        tamper(where, """UPDATE journal SET data = '{"from":9,"to":13,"backup":"/b/before"}' WHERE event = 'migrate'""")
        backup = Path("/b/before")
    else:
        migrated(where, backup=backup)
    before = contents(where)
    with pytest.raises(Refused, match=rf"Stop all services and restore the backup {backup}"):
        migrated(where, 9)
    with pytest.raises(Refused, match="restore the backup of before"):
        migrated(where, 8)  # the backup is newer than that
    assert contents(where) == before


def test_a_pruned_journal_stays_where_it_is_understood(ledger: SqlLedger, where: str) -> None:
    ledger.note("", "prune", "a page", T0)
    ledger.close()
    assert outlook(where, 12).obstacles == []
    with pytest.raises(Refused, match="the journal was pruned, which a version before 12 takes for damage"):
        migrated(where, 11)


@pytest.mark.parametrize("to", [0, SCHEMA_VERSION + 1])
def test_a_version_that_no_ledger_has_is_refused(ledger: SqlLedger, where: str, to: int) -> None:
    with pytest.raises(UsageError, match=f"no ledger has version {to}: this reconciler knows 1 to {SCHEMA_VERSION}"):
        outlook(where, to)


def test_nobody_migrates_beside_a_process_that_holds_a_lease(ledger: SqlLedger, where: str) -> None:
    """By itself neither: a newer `plan` would else take the tables from under an older service."""
    ledger.close()
    migrated(where, 11)
    until = (CLOCK.now() + timedelta(minutes=5)).isoformat(timespec="microseconds")
    tamper(
        where, f"INSERT INTO leases (scope, holder, token, expires_at, since) VALUES ('demo', 'old', 1, '{until}', '')"
    )
    before = contents(where)
    held = r"is of version 11 and is to be of version 15, and old holds the lease on demo: stop that process"
    with pytest.raises(LeaseHeld, match=held):
        migrated(where)
    with pytest.raises(LeaseHeld, match=held):
        SqlLedger(where, clock=CLOCK)
    with pytest.raises(LeaseHeld, match=held):
        SqlLedger(where, clock=CLOCK, reading=True)
    assert [lease.holder for lease in outlook(where).leases] == ["old"]
    assert outlook(where, 11).leases == (), "nothing is to be done"
    assert contents(where) == before
    tamper(where, "UPDATE leases SET expires_at = '2026-11-01T12:00:00.000000+00:00'")
    newer = SqlLedger(where, clock=CLOCK)
    assert newer.leases() == [], "whoever held it may wake, and is to begin nothing"
    newer.close()


def test_a_lease_forbids_the_backup_too(
    ledger: SqlLedger, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for one while a migration begins gets it, and the migration ends before its backup, which may be long.

    It holds the fence then, and is to write to tables that a backup locks.
    """
    ledger.close()
    migrated(where, 12)
    monkeypatch.setattr(engine, "back_up", lambda *_: pytest.fail("a backup was begun"))
    until = (CLOCK.now() + timedelta(minutes=5)).isoformat(timespec="microseconds")
    lease = f"INSERT INTO leases (scope, holder, token, expires_at, since) VALUES ('demo', 'x', 1, '{until}', '')"
    with ThreadPoolExecutor(1) as pool:
        if "://" not in where:
            tamper(where, lease)
            begun = pool.submit(migrated, where, backup=tmp_path / "b")
        else:
            asks = sa.create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
            with asks.begin() as connection:
                connection.exec_driver_sql(f"SELECT value FROM meta WHERE key = '{schema.FENCE}' FOR UPDATE").one()
                begun = pool.submit(migrated, where, backup=tmp_path / "b")
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while not begun.done() and not connection.exec_driver_sql(waits).scalar_one():
                    time.sleep(0.01)
                connection.exec_driver_sql(lease)
            asks.dispose()
        with pytest.raises(LeaseHeld, match="x holds the lease on demo"):
            begun.result(30)


def test_a_table_of_others_beside_the_ledger_stays_theirs(postgresql: Any, tmp_path: Path) -> None:
    where = postgresql()
    SqlLedger(where).close()
    migrated(where, 12)
    tamper(where, 'CREATE TABLE "Order" (id INTEGER)')
    migrated(where, backup=tmp_path / "b")
    assert outlook(where).version == SCHEMA_VERSION


def test_a_damaged_lease_forbids_it(ledger: SqlLedger, where: str) -> None:
    ledger.close()
    migrated(where, 11)
    tamper(where, "INSERT INTO leases (scope, holder, token, expires_at, since) VALUES ('demo', 'old', 1, 'x', '')")
    with pytest.raises(LedgerError, match="lease row is damaged, so nobody may migrate it"):
        migrated(where)


def test_who_had_the_ledger_open_takes_no_lease_of_another_version(where: str) -> None:
    open_before = SqlLedger(where, clock=CLOCK)
    open_before.drop(open_before.acquire("demo", "x", 60, CLOCK.now()))
    migrated(where, 12)
    with pytest.raises(
        LedgerError, match=r"was migrated to version 12 while this process, which knows \d+, had it open"
    ):
        open_before.acquire("demo", "x", 60, CLOCK.now())
    migrated(where)
    assert open_before.acquire("demo", "x", 60, CLOCK.now()).holder == "x"
    open_before.close()


def test_a_backup_is_the_ledger_of_before(
    request: pytest.FixtureRequest, ledger: SqlLedger, where: str, tmp_path: Path
) -> None:
    write_history(ledger)
    ledger.close()
    migrated(where, 12)
    before, target = contents(where), tmp_path / "backup"
    migrated(where, backup=target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob("*.part")) == []
    if "://" in where:
        server: Server = request.getfixturevalue("server")
        there = server.database()
        subprocess.run(["pg_restore", "--exit-on-error", "--no-owner", "-d", there, target], check=True)
    else:
        there = str(target)
    assert contents(there) == before
    migrated(where, 12)
    with pytest.raises(UsageError, match="backup is there already"):
        migrated(where, backup=target)
    with pytest.raises(LedgerError, match="can't be written, so nothing was migrated"):
        migrated(where, backup=tmp_path / "nowhere" / "backup")
    assert outlook(where).version == 12


def test_without_pg_dump_a_postgresql_ledger_is_not_migrated(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = postgresql()
    SqlLedger(where).close()
    migrated(where, 12)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LedgerError, match="a backup needs pg_dump, which is not on the PATH"):
        migrated(where, backup=tmp_path / "b")
    assert outlook(where).version == 12
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["postgresql://r:other@/l?password=sesame", "postgresql://r@/l?sslkey=k&sslpassword=sesame"]
)
def test_pg_dump_is_given_no_secret_by_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    program, arguments = tmp_path / "pg_dump", tmp_path / "arguments"
    program.write_text(f'#!/bin/sh\necho "$PGPASSWORD" : "$@" > {arguments}\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    refused = "can be given sslpassword" if "sslpassword" in url else "pg_dump failed"
    with pytest.raises(LedgerError, match=refused):
        back_up(sa.make_url(url), tmp_path / "backup", str)
    if "sslpassword" in url:
        assert not arguments.exists()
    else:
        password, _, words = arguments.read_text().partition(" : ")
        assert (password, "sesame" in words) == ("sesame", False)


KILLED = """
import os, signal, sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from reconciler.app.clocks import RealClock
from reconciler.drivers.ledger import LedgerMigrator, Order, backup, migrations

where, at, to, target = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def killed(real):
    def call(connection):
        real(connection)
        die()
    return call
steps = list(migrations.MIGRATIONS)
if at == "down":
    steps[10] = replace(steps[10], down=killed(steps[10].down))
elif at == "up":
    steps[11] = replace(steps[11], up=killed(steps[11].up))
else:
    backup._copy = backup._dump = die
migrations.MIGRATIONS = tuple(steps)
with LedgerMigrator.opened(where, RealClock()) as migrator:
    migrator.migrate(Order(to, "alice", datetime.now(UTC), target if at == "backup" else None))
"""


@pytest.mark.parametrize(("at", "start", "to"), [("up", 10, 13), ("down", 13, 10), ("backup", 12, 13)])
def test_killed_in_the_middle_it_is_as_before(
    ledger: SqlLedger, where: str, tmp_path: Path, at: str, start: int, to: int
) -> None:
    write_history(ledger)
    ledger.close()
    migrated(where, start)
    before, target = contents(where), tmp_path / "backup"
    words: Sequence[str | Path] = (where, at, str(to), target)
    done = subprocess.run([sys.executable, "-c", KILLED, *words], env=os.environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert contents(where) == before
    assert not target.exists(), "a file of that name is a whole backup"
    migrated(where, to, target if "://" not in where else None)
    assert outlook(where, to).steps == ()
    opened = SqlLedger(where)
    assert opened.audit().problem == ""
    opened.close()


@pytest.mark.parametrize("version", [3, 6])
def test_an_older_ledger_is_brought_up_with_a_backup(
    ledger: SqlLedger, where: str, tmp_path: Path, version: int
) -> None:
    write_history(ledger)
    ledger.close()
    newer = [
        "gate_tests",
        "gate_results",
        "gate_outputs",
        *(["install_attempts", "attestations"] if version == 3 else []),
    ]
    tamper(where, *(f"DROP TABLE {name}" for name in newer),
           f"UPDATE meta SET value = '{version}' WHERE key = 'schema_version'")  # fmt: skip
    backup = None if "://" in where else tmp_path / "before"
    done = migrated(where, backup=backup)
    assert (done.version, done.to, len(done.steps)) == (version, SCHEMA_VERSION, SCHEMA_VERSION - version)
    again = SqlLedger(where)
    assert again.audit().problem == ""
    again.close()
    if backup is not None:
        with closing(sqlite3.connect(backup)) as kept:
            [(found,)] = kept.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchall()
        assert found == str(version)


def test_a_ledger_whose_journal_lost_its_head_is_migrated_too(ledger: SqlLedger, reopen: Open, where: str) -> None:
    ledger.close()
    migrated(where, 12)
    tamper(where, "UPDATE meta SET value = 'x' WHERE key = 'journal_head'")
    assert migrated(where).version == 12
    assert reopen().audit().problem == "head"
