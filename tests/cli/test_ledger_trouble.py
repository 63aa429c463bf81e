"""A ledger that can't be used: one line that names it and says what to do, exit code 1, and nothing half-written."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import SPEC, Done, reconciler


def drift(observation: Path, ledger: Path | str) -> Done:
    return reconciler("drift", SPEC, "--observation", observation, "--ledger", str(ledger), "--create-ledger")


def check(done: Done, *said: str, code: int = 1) -> None:
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == 1, done.err
    for words in said:
        assert words in done.err


def test_a_directory_that_can_not_be_made(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check(drift(demo, tmp_path / "file" / "ledger.sqlite"), f"{tmp_path}/file/ledger.sqlite", "can't be created")


def test_a_directory_in_its_place(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    check(drift(demo, tmp_path / "ledger.sqlite"), "ledger.sqlite can't be opened")


def test_a_file_that_may_not_be_written(demo: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    ledger = tmp_path / "ledger.sqlite"
    assert drift(demo, ledger).code == 4
    ledger.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        check(drift(demo, ledger), "read-only")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_is_something_else(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    ledger.write_text("this is a letter, and a long one. " * 100)
    check(drift(demo, ledger), "is not a ledger")
    assert ledger.read_text().startswith("this is a letter")


def test_a_damaged_file(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    assert drift(demo, ledger).code == 4
    for extra in tmp_path.glob("ledger.sqlite-*"):
        extra.unlink()
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:2048] + b"\xff" * (len(whole) - 2048))
    check(drift(demo, ledger), "is damaged")


def test_a_ledger_of_a_newer_version(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    assert drift(demo, ledger).code == 4
    with sqlite3.connect(ledger) as connection:
        changed = connection.execute("UPDATE meta SET value = '99' WHERE key LIKE '%version%'").rowcount
    connection.close()
    assert changed == 1
    check(drift(demo, ledger), "newer version", "upgrade")


def test_a_url_that_is_none(demo: Path) -> None:
    check(drift(demo, "mysql://user:hunter2@host/db"), "can't be kept in 'mysql'", code=64)
    check(drift(demo, "postgresql://user:hunter2@127.0.0.1:1/db"), "127.0.0.1")
    assert "hunter2" not in drift(demo, "postgresql://user:hunter2@127.0.0.1:1/db").err


def test_a_ledger_that_somebody_else_locks(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    assert drift(demo, ledger).code == 4
    before = rows(ledger)
    holder = sqlite3.connect(ledger, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        check(drift(demo, ledger), "ledger.sqlite is locked by another process")
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert rows(ledger) == before
    assert drift(demo, ledger).code == 4


def rows(ledger: Path) -> dict[str, int]:
    connection = sqlite3.connect(ledger)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    connection.close()
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    mount = ("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place))
    if subprocess.run(mount, capture_output=True, timeout=20).returncode != 0:
        pytest.skip("this system lets nobody mount a small file system")
    yield place
    subprocess.run(("umount", str(place)), check=True, timeout=20)


def fill(place: Path) -> None:
    with (place / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(b"\0" * 4096)


def test_a_full_disk(demo: Path, small_disk: Path) -> None:
    ledger = small_disk / "ledger.sqlite"
    assert drift(demo, ledger).code == 4
    before = rows(ledger)
    fill(small_disk)
    done = drift(demo, ledger)
    check(done, "ledger.sqlite can't be", "disk")
    (small_disk / "ballast").unlink()
    assert rows(ledger) == before, "something was half-written"
    assert drift(demo, ledger).code == 4


def test_a_full_disk_under_a_plan_leaves_the_older_one(demo: Path, small_disk: Path, tmp_path: Path) -> None:
    plan = small_disk / "plan.json"
    plan.write_text("an older plan")
    fill(small_disk)
    done = reconciler("plan", SPEC, "--observation", demo, "--out", plan)
    assert done.code == 1
    assert f"{plan} can't be written: No space left" in done.err
    assert plan.read_text() == "an older plan"
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "plan.json"]
