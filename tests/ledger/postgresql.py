"""A real PostgreSQL server for tests, on a socket in a directory of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class NoServer(Exception):
    """No PostgreSQL server can be started here; the message says why."""


def _server_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise NoServer("no PostgreSQL server is installed here")
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
    raise NoServer("root can't start PostgreSQL, and there is no other user")


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

    @contextlib.contextmanager
    def with_password(self, password: str) -> Iterator[str]:
        """While the block runs, an account needs a password: the URL of a new database as that."""
        url = self.database()
        sql = f"CREATE ROLE p LOGIN PASSWORD '{password}'; GRANT ALL ON SCHEMA public TO p"
        self._call("psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, url)
        rules = self._data / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"local all p scram-sha-256\n{before}")
        self._call("pg_ctl", "-D", self._data, "reload")
        try:
            yield url.replace("//r@", "//p@")
        finally:
            rules.write_text(before)
            self._call("pg_ctl", "-D", self._data, "reload")

    def restored(self, url: str) -> str:
        """Dump a database with pg_dump, and restore it into a new one; its URL."""
        dump, there = self._home / "dump", self.database()
        self._call("pg_dump", "--format=custom", "-f", dump, "-d", url)
        self._call("pg_restore", "--exit-on-error", "-d", there, dump)
        return there

    def say(self, *statements: str) -> None:
        """As its administrator."""
        words = [word for statement in statements for word in ("-c", statement)]
        self._call("psql", "-h", self._home, "-U", "r", "-d", "postgres", "-X", "-q", *words)


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server, and stop it at the end. NoServer where that can't be done."""
    programs, user = _server_programs(), _as_other_user()
    if importlib.util.find_spec("psycopg") is None:
        raise NoServer("psycopg is not installed here")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:  # short: sun_path
        if user:
            shutil.chown(name, user["user"])
        found = Server(Path(name), programs, user)
        try:
            yield found
        finally:
            found.stop()
