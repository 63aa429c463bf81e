"""The page about backups, typed on both databases: what is restored is the ledger, and its head is still known."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SCHEMA_VERSION, SqlLedger
from reconciler.drivers.ledger.schema import VERSION
from reconciler.model.errors import LedgerError
from tests.cli.shell import reconciler
from tests.docs.pages import blocks, first_words, page, text
from tests.ledger.postgresql import NoServer, Server, running_server

NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
LINES = [line for block in blocks("sh", text(page("how-to/backup"))) for line in block.splitlines()]
SETTING = first_words("how-to/backup")[1].partition("=")[0]  # of `export`

pytestmark = pytest.mark.tool


def line(program: str, *words: str) -> str:
    """The one line of the page that calls it so."""
    [found] = [one for one in LINES if one.startswith(program) and all(word in one for word in words)]
    return found


def typed(command: str, folder: Path, **variables: str) -> None:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def written(where: str, run: str = "run-1") -> str:
    """Begin a run in the ledger, and return the head of its journal."""
    ledger = SqlLedger(where)
    ledger.start_run(run, "apply", "c0ffee", "", NOW)
    ledger.end_run(run, 0, "done", NOW)
    ledger.close()
    return str(verified(where)["head"])


def verified(where: str, *words: str) -> dict[str, object]:
    done = reconciler("audit", "verify", "--ledger", where, "-o", "json", *words)
    assert done.code == 0, done.out + done.err
    found: dict[str, object] = done.json
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    missing = [name for name in ("pg_dump", "pg_restore") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)}")
    try:
        with running_server() as found:
            yield found
    except NoServer as error:
        pytest.skip(str(error))


@pytest.mark.wire
def test_postgresql_is_restored(server: Server, tmp_path: Path) -> None:
    before, after = server.database(), server.database()
    head = written(before)
    command = line("pg_dump").replace("postgresql://reconciler@db.example.com/fleet", f"'{before}'")
    assert before in command
    typed(command, tmp_path)
    written(before, "run-2")  # which the backup does not have
    assert "createdb" in line("createdb"), "the server of the test has made it"
    typed(line("pg_restore"), tmp_path, RECONCILER_LEDGER=after)
    assert verified(after, "--head", head)["head"] == head
    assert verified(before)["head"] != head


def test_no_program_is_given_a_password_by_its_arguments() -> None:
    """Which everybody on the machine may read."""
    calls = [one for one in LINES if one.startswith(("pg_", "createdb"))]
    assert {one.split()[0] for one in calls} == {"pg_dump", "pg_restore", "createdb"}
    [given] = [one.partition("RECONCILER_LEDGER=")[2] for one in LINES if "RECONCILER_LEDGER=" in one]
    named = [*re.findall(r"postgresql[^ ]*", " ".join(calls)), given]
    assert len(named) == 2
    for url in named:  # as the page sets it before
        assert re.fullmatch(r"postgresql://[a-z]+@[a-z.]+/[a-z]+", url), url
    assert "$RECONCILER_LEDGER" not in line("pg_dump"), "what a service is given may hold one"


@pytest.mark.wire
def test_a_password_file_is_enough(server: Server, tmp_path: Path) -> None:
    """For pg_dump and for the reconciler: the file's line is asked for, on a server that wants a password."""
    with server.with_password("s3cret") as url:
        passwords = tmp_path / "pgpass"
        passwords.write_text("*:*:*:*:s3cret\n")
        passwords.chmod(0o600)
        command = line("pg_dump").replace("postgresql://reconciler@db.example.com/fleet", f"'{url}'")
        typed(command, tmp_path, **{SETTING: str(passwords)})
        done = reconciler("ledger", "info", "--ledger", url, "--create-ledger", env={SETTING: str(passwords)})
        assert done.code == 0, done.err
        passwords.write_text("*:*:*:*:other\n")
        with pytest.raises(AssertionError, match="password authentication failed"):
            typed(command, tmp_path, **{SETTING: str(passwords)})


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3")
def test_sqlite_is_restored(tmp_path: Path) -> None:
    place = tmp_path / "FLEET.sqlite"
    here = str(place)
    head = written(here)
    typed(line("sqlite3", ' ".backup ledger.backup"').replace("/var/lib/reconciler/FLEET.sqlite", here), tmp_path)
    written(here, "run-2")
    for left in tmp_path.glob("FLEET.sqlite*"):
        left.unlink()
    typed(line("sqlite3 ledger.backup").replace("/var/lib/reconciler/FLEET.sqlite", here), tmp_path)
    assert verified(here, "--head", head)["head"] == head


def test_the_ledger_is_migrated_and_taken_back(tmp_path: Path) -> None:
    """The page's commands, as they are, but off a terminal."""
    where = str(tmp_path / "ledger.sqlite")
    written(where)

    def said(*words: str, yes: bool = False) -> str:
        command = shlex.split(line("reconciler migrate", *words))[1:]
        done = reconciler(*command, *(["--yes"] if yes else []), env={"RECONCILER_LEDGER": where})
        assert done.code == 0, done.err
        return done.out

    back = shlex.split(line("reconciler migrate", "--to"))[1:]
    assert f"would be brought from version {SCHEMA_VERSION} to 12" in said("--to")
    back.remove("--check")
    assert reconciler(*back, "--yes", env={"RECONCILER_LEDGER": where}).code == 0
    assert f"would be brought from version 12 to {SCHEMA_VERSION}" in said("--check fleet-spec", "migrate --check")
    assert f"was brought from version 12 to {SCHEMA_VERSION}" in said("migrate fleet-spec", yes=True)
    assert len(list(tmp_path.glob("*.backup"))) == 2


def test_an_older_version_refuses_the_ledger_of_a_newer_one(tmp_path: Path) -> None:
    """As the page says: down is done by a backup."""
    where = tmp_path / "ledger.sqlite"
    written(str(where))
    with closing(sqlite3.connect(where)) as database, database:
        database.execute("UPDATE meta SET value = '9999' WHERE key = ?", (VERSION,))
    with pytest.raises(LedgerError, match=r"was written by a newer version .* upgrade the reconciler"):
        SqlLedger(where)
    assert re.search(r"An older version can't take the ledger", text(page("how-to/backup")))
