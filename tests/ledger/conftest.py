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
from typing import Any

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


class Server:
    """A real one, which listens on a socket in its own directory alone."""

    def __init__(self, home: Path, programs: Path, user: dict[str, str]) -> None:
        self._home = home
        self._programs = programs
        self._run: dict[str, Any] = {"check": True, "capture_output": True, "cwd": home, **user}
        self._numbers = itertools.count()
        self._call("initdb", "-D", self._data, "-A", "trust", "-U", "r", "--no-sync")
        self.start()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _call(self, program: str, *words: str | Path) -> None:
        subprocess.run([self._programs / program, *words], **self._run)

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self._home} -c fsync=off -c max_connections=60"
        self._call("pg_ctl", "-D", self._data, "-l", self._home / "log", "-o", options, "-w", "start")

    def stop(self) -> None:
        """At once, as when it crashes."""
        self._call("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def database(self) -> str:
        """A new, empty one; its URL."""
        name = f"ledger{next(self._numbers)}"
        self._call("createdb", "-h", self._home, "-U", "r", name)
        return f"postgresql://r@/{name}?host={self._home}"

    def say(self, *statements: str) -> None:
        """As its administrator."""
        words = [word for statement in statements for word in ("-c", statement)]
        self._call("psql", "-h", self._home, "-U", "r", "-d", "postgres", "-X", "-q", *words)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    programs, user = _server_programs(), _as_other_user()
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:  # short: sun_path
        if user:
            shutil.chown(name, user["user"])
        found = Server(Path(name), programs, user)
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture(scope="session")
def postgresql(server: Server) -> Callable[[], str]:
    """Makes a new, empty database; returns its URL."""
    return server.database


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
