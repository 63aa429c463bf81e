"""`reconciler migrate`: what it says, what it asks, and how it ends."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SCHEMA_VERSION, SqlLedger
from tests.cli.shell import Done, reconciler
from tests.conftest import ROOT
from tests.ledger.test_audit import tamper
from tests.ledger.test_migrating import migrated

OLD = SCHEMA_VERSION - 2


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A ledger of an older version."""
    where = tmp_path / "state" / "demo.sqlite"
    SqlLedger(where).close()
    migrated(str(where), OLD)
    return where


def migrate(place: Path, *words: str | Path) -> Done:
    return reconciler("migrate", "--ledger", str(place), *words)


def version(place: Path) -> str:
    with closing(sqlite3.connect(place)) as database:
        [(found,)] = database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchall()
    return str(found)


def backups(place: Path) -> list[Path]:
    return sorted(place.parent.glob("*.backup*"))


@pytest.fixture
def held(place: Path) -> Path:
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="microseconds")
    tamper(
        str(place),
        f"INSERT INTO leases (scope, holder, token, expires_at, since) VALUES ('demo', 'old', 1, '{until}', '')",
    )
    return place


def test_a_check_says_what_would_be_done_and_does_nothing(place: Path) -> None:
    done = migrate(place, "--check")
    assert (done.code, done.err) == (0, "")
    assert f"{OLD} -> {OLD + 1}  adds the nodes that each of them wrote about" in done.out
    assert f"the ledger {place} would be brought from version {OLD} to {SCHEMA_VERSION}" in done.out
    assert migrate(place, "--check", "--detailed-exitcode").code == 2
    found = migrate(place, "--check", "-o", "json").json
    assert (found["version"], found["to"], found["own"], found["migrated"]) == (
        OLD,
        SCHEMA_VERSION,
        SCHEMA_VERSION,
        False,
    )
    assert [step["after"] for step in found["steps"]] == [OLD + 1, OLD + 2]
    assert (version(place), backups(place)) == (str(OLD), [])


def test_it_migrates_and_says_what_it_did(place: Path) -> None:
    done = migrate(place, "--yes")
    assert done.code == 0, done.err
    [backup] = backups(place)
    assert backup.name.startswith(f"demo.sqlite.v{OLD}-")
    assert f"was brought from version {OLD} to {SCHEMA_VERSION}\nbackup of version {OLD}: {backup}\n" in done.out
    assert (version(place), version(backup)) == (str(SCHEMA_VERSION), str(OLD))
    again = migrate(place, "--yes")
    assert (again.code, again.out.splitlines()[0]) == (
        0,
        f"the ledger {place} is of version {SCHEMA_VERSION}: nothing to do",
    )
    assert migrate(place, "--yes", "-o", "json").json["migrated"] is False
    assert migrate(place, "--check", "--detailed-exitcode").code == 0
    assert backups(place) == [backup]


def test_it_takes_the_ledger_back(place: Path) -> None:
    assert migrate(place, "--yes", "--no-backup").code == 0
    assert backups(place) == []
    back = migrate(place, "--to", str(OLD), "--yes", "--backup", place.parent / "mine", "-o", "json")
    assert back.json["migrated"] is True
    assert back.json["backup"] == str(place.parent / "mine")
    assert (version(place), version(place.parent / "mine")) == (str(OLD), str(SCHEMA_VERSION))


def test_without_a_way_back_it_is_refused_and_names_the_backup(place: Path) -> None:
    assert migrate(place, "--yes").code == 0
    for words in (["--check"], ["--yes"]):
        done = migrate(place, "--to", "9", *words)
        assert done.code == 8
        assert "version 9 has no place for orders to exchange parts, and tickets" in done.err
        assert "restore the backup of before that was upgraded" in done.err
    assert version(place) == str(SCHEMA_VERSION)


def test_beside_a_process_with_a_lease_nothing_is_migrated(held: Path) -> None:
    checked = migrate(held, "--check", "--detailed-exitcode")
    assert checked.code == 6
    assert "lease on demo: held by old" in checked.out
    for words in (["migrate", "--yes"], ["ledger", "info"], ["lease", "list"]):
        done = reconciler(*words, "--ledger", str(held))
        assert (done.code, "old holds the lease on demo" in done.err) == (6, True), words
    assert (version(held), backups(held)) == (str(OLD), [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "off a terminal, migrate needs --yes"),
        (["--yes", "--backup", "b", "--no-backup"], "contradict each other"),
        (["--check", "--no-backup"], "--check makes no backup"),
        (["--yes", "--detailed-exitcode"], "--detailed-exitcode is for --check"),
        (["--yes", "--create-ledger"], "migrate makes no ledger"),
        (["--check", "--to", "99"], "no ledger has version 99"),
    ],
)
def test_what_contradicts_itself_is_refused(place: Path, words: list[str], told: str) -> None:
    done = migrate(place, *words)
    assert (done.code, told in done.err) == (64, True), done.err
    assert version(place) == str(OLD)


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = migrate(tmp_path / "none.sqlite", "--check")
    assert (done.code, "no run has ever used it" in done.err) == (64, True)
    assert not list(tmp_path.glob("none*"))


def test_a_spec_that_this_version_does_not_read_is_told_before_the_ledger_is_touched(
    place: Path, tmp_path: Path
) -> None:
    """Migrated, the ledger would have no version that works with both."""
    spec = tmp_path / "spec"
    shutil.copytree(ROOT / "fleet-spec", spec)
    assert f"the spec {spec} is read by this version" in migrate(place, "--check", spec).out
    fleet = spec / "fleet.yaml"
    fleet.write_text(fleet.read_text().replace("  drift:", "  drifts:"))
    line = fleet.read_text()[: fleet.read_text().index("  drifts:")].count("\n") + 1
    for words in (["--check"], ["--yes"]):
        done = migrate(place, *words, spec)
        assert (done.code, f"{fleet}:{line}:3 spec: unknown key 'drifts'" in done.err) == (3, True), done.err
        assert "the ledger is left as it is" in done.err
    assert (version(place), backups(place)) == (str(OLD), [])
    alone = migrate(place, "--yes", "--fleet", "demo", spec)
    assert (alone.code, "no spec is looked at" in alone.out) == (0, True)
    back = migrate(place, "--to", str(OLD), "--yes", spec)  # the older version may have a field of that name
    assert (back.code, f"let `reconciler validate {spec}` of the older version" in back.out) == (0, True), back.err
    assert version(place) == str(OLD)
