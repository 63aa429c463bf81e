"""A backup of a ledger, by the tools of its database: a copy of an SQLite file, a dump of a PostgreSQL database.

It is written under another name, checked, and renamed last: a file with the wanted name is a whole backup.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from reconciler.model.errors import LedgerError, UsageError

# Of libpq's parameters, those that it reads from no variable.
_SECRETS: Final = ("oauth_client_secret", "scram_client_key", "scram_server_key", "sslpassword")


def back_up(url: sa.URL, target: Path, hide: Callable[[str], str]) -> int:
    """Write what is committed to a new file, and return its size. `hide`: takes secrets out of what programs say.

    Raise UsageError where the file is there already, LedgerError where it can't be written.
    """
    if target.exists():
        raise UsageError(f"{target} is there already: name another file for the backup")
    part = target.with_name(f"{target.name}.part")  # of an attempt that was killed, if it is there
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        if url.get_backend_name() == "sqlite":
            _copy(Path(str(url.database)), part)
        else:
            _dump(url, part, hide)
        part.rename(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the backup {target} can't be written, so nothing was migrated: {error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(source: Path, part: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(part)) as other:
        one.backup(other)
        [(found,)] = other.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {found}")


def _dump(url: sa.URL, part: Path, hide: Callable[[str], str]) -> None:
    """Run pg_dump. The password is in its environment, since everybody may read its arguments."""
    query: dict[str, Any] = dict(url.query)
    for name in _SECRETS:
        if name in query:
            raise LedgerError(
                f"pg_dump can be given {name} of the ledger's URL by its arguments alone, which everybody may read: "
                "make a backup yourself and give --no-backup"
            )
    password = query.pop("password", url.password)  # SQLAlchemy takes that of the query, too, where there are both
    there = sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    secret: Mapping[str, str] = {} if password is None else {"PGPASSWORD": str(password)}
    address = there.render_as_string(hide_password=False)
    words = ["pg_dump", "--no-password", "--format=custom", f"--file={part}", f"--dbname={address}"]
    try:
        done = subprocess.run(words, env=os.environ | secret, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LedgerError(
            "a backup needs pg_dump, which is not on the PATH: install PostgreSQL's client, or make a backup yourself "
            "and give --no-backup"
        ) from None
    if done.returncode != 0:
        said = hide(" ".join((done.stderr or done.stdout).split()))
        raise LedgerError(f"pg_dump failed, so nothing was migrated: {said}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
