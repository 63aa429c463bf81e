"""The same tests over an SQLite file and over a real PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger

Open = Callable[[], SqlLedger]


def _server_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("no PostgreSQL server is installed here")
    return found[-1].parent if found else Path(on_path or "").parent


def _as_other_user() -> dict[str, str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": name}
    pytest.skip("root can't start PostgreSQL, and there is no other user")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes a new, empty database; returns its URL. The server listens on a socket in its own directory alone."""
    programs, user = _server_programs(), _as_other_user()
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:  # short: sun_path
        home = Path(name)
        if user:
            shutil.chown(home, user["user"])
        run = {"check": True, "capture_output": True, "cwd": name, **user}
        data = home / "data"
        subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "r", "--no-sync"], **run)  # type: ignore[call-overload]  # a mapping of mixed keywords
        options = f"-c listen_addresses='' -c unix_socket_directories={name} -c fsync=off -c max_connections=60"
        log = home / "log"
        subprocess.run([programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start"], **run)  # type: ignore[call-overload]  # as above
        numbers = itertools.count()

        def database() -> str:
            name = f"ledger{next(numbers)}"
            subprocess.run([programs / "createdb", "-h", home, "-U", "r", name], **run)  # type: ignore[call-overload]  # as above
            return f"postgresql://r@/{name}?host={home}"

        try:
            yield database
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)  # type: ignore[call-overload]  # as above


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state" / "demo.sqlite")
    database: Callable[[], str] = request.getfixturevalue("postgresql")
    return database()


@pytest.fixture
def reopen(where: str) -> Iterator[Open]:
    """Opens the test's ledger, each time as another process would."""
    opened: list[SqlLedger] = []

    def again() -> SqlLedger:
        opened.append(SqlLedger(where, lock_timeout_s=5.0))
        return opened[-1]

    yield again
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(reopen: Open) -> SqlLedger:
    return reopen()
